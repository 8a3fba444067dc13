"""What driving tasks leave in files: one JSON object each, beside the raw timings.

Standard library and core only, so that launchers can read it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ps_allreduce.record.records import PlacementUsed


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockPair:
    """The wall clock and the monotonic clock of one host at one moment; seconds."""

    wall: float
    monotonic: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverResult:
    """What a driving task leaves beside its raw timings.

    Attributes:
        connected_at, built_at: seconds since the epoch, as those below.
        first_step_at, warm_at, measured_at: when the phase ended.
        checksums_before, checksums_after: exact sums of the trainable weights.
        traces_before, traces_after: number of traces around the measured steps.
        requested_steps: steps of all phases, per worker.
        clock_start, clock_end: for relating and checking clocks.
        num_messages: per step and direction.
    """

    task: str
    connected_at: float
    built_at: float
    first_step_at: float
    warm_at: float
    measured_at: float
    checksums_before: tuple[int, ...]
    checksums_after: tuple[int, ...]
    traces_before: int
    traces_after: int
    requested_steps: int
    clock_start: ClockPair
    clock_end: ClockPair
    gradient_bytes: int
    num_messages: int
    placement: PlacementUsed | None = None
