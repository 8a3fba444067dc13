"""What launcher and fork server say to each other: one JSON object per line over a socket.

Version 1.  The launcher sends requests, the fork server reports; `type` names the kind of message.
Standard library and core only, so that launchers can import it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.experiment import Experiment, Workload
from ps_allreduce.placement import VariableSpec
from ps_allreduce.records import PlacementUsed, Sample
from ps_allreduce.serialization import from_json, to_json

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask:
    """Fork one task of a run.

    Attributes:
        tf_config: text for TF_CONFIG, empty for a single worker without a cluster.
        cores: processors that the task is pinned to.
        threads: TensorFlow's intra-operation threads.
        log: file that takes the task's output.
        result: the driving task writes `<result>.json` and `<result>.npz`.
        weights: file for the final weights, None if nobody asked for them.
        recording_rounds: not 0: instead of measuring, time so many pairs of recorded and bare
            stretches; the driving task writes an `OverheadResult` to `<result>.json`.
    """

    task: str
    tf_config: str
    experiment: Experiment
    cores: tuple[int, ...]
    threads: int
    environment: Mapping[str, str]
    data_dir: str
    log: str
    result: str
    weights: str | None = None
    recording_rounds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeModel:
    """Fork a process that builds a model and reports its variables in creation order."""

    workload: Workload
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareInput:
    """Fork a process that makes the digits if need be, and checks the input's files."""

    workload: Workload
    data_dir: str
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertImages:
    """Fork a process that writes a folder of images as TFRecord files."""

    source: str
    target: str
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAll:
    """Kill every process that was forked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """TensorFlow is imported; requests can be served."""

    version: int
    import_s: float
    pid: int
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A process was forked; `name` is the task or the kind of request."""

    name: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A task has got somewhere.

    Attributes:
        event: `connected`, `built`, `phase:<name>`, `variables`, `input`, `done` or `failed`.
        time: seconds since the epoch.
        text: a reason, for `failed`.
        user_error: the failure is the user's mistake.
        variables: the answer to `DescribeModel`.
        counts: the answer to `PrepareInput` (records) and `ConvertImages` (images per class).
    """

    name: str
    event: str
    time: float
    text: str = ""
    user_error: bool = False
    variables: tuple[VariableSpec, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """A forked process has ended; a negative status is a signal."""

    name: str
    pid: int
    status: int
    cpu_s: float
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A look at all forked processes and the network."""

    sample: Sample


MESSAGES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        StartTask,
        DescribeModel,
        PrepareInput,
        ConvertImages,
        EndAll,
        Ready,
        Started,
        Event,
        Exited,
        Sampled,
    )
}


def encode(message: object) -> bytes:
    """One line."""
    body = {"type": type(message).__name__, **to_json(message)}
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Any:
    """The message in a line.

    Raises:
        LaunchError: the line is no message of this version.
    """
    try:
        body = json.loads(line)
        return from_json(MESSAGES[body.pop("type")], body)
    except (ValueError, KeyError, AttributeError, TypeError, UserError) as error:
        raise LaunchError(
            f"not a message of version {VERSION} ({error!r}): {line[:200]!r}"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockPair:
    """The wall clock and the monotonic clock of one host at one moment; seconds."""

    wall: float
    monotonic: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverResult:
    """What a driving task leaves beside its raw timings.

    Attributes:
        checksums_before, checksums_after: exact sums of the trainable weights.
        traces_before, traces_after: number of traces around the measured steps.
        requested_steps: steps of all phases, per worker.
        clock_start, clock_end: for relating and checking clocks.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadResult:
    """What recording costs: durations in seconds of stretches of equal length, in pairs."""

    recorded_s: tuple[float, ...]
    bare_s: tuple[float, ...]
    steps_per_stretch: int
