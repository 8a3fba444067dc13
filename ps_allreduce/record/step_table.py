"""Raw step timings, and the figures that are derived from them.

Decides the measurement window and the definitions of throughput, compute, exposed communication and
input wait (`docs/results_format.md`).  Everything is pure: arrays in, numbers out.  All times are
seconds of one wall clock; spans are differences of such times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Phase(IntEnum):
    """What a step was run for; what is evaluated is no step (`record.evaluation_timings`)."""

    FIRST = 0
    WARMUP = 1
    MEASURED = 2
    EVENTS = 3
    EVALUATION = 4


class EventKind(IntEnum):
    """Moments of what is sent in a traced step; PULLED: its new value is on the worker."""

    PULLED = 0
    GRADIENT_READY = 1
    PUSHED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingTable:
    """Columns of equal length."""

    def __post_init__(self) -> None:
        lengths = {each.name: len(getattr(self, each.name)) for each in fields(self)}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{length} of {name}" for name, length in lengths.items())
            raise ValueError(f"columns of different lengths: {told}")

    def select(self, rows: npt.NDArray[Any]) -> Self:
        """The rows named by a boolean mask or an index array."""
        return replace(self, **{each.name: getattr(self, each.name)[rows] for each in fields(self)})


TableT = TypeVar("TableT", bound=TimingTable)


def concatenate(tables: Sequence[TableT]) -> TableT:
    """One table with the rows of several; steps are of equal accumulation and groups."""
    names = [f.name for f in fields(tables[0])]
    columns = {n: np.concatenate([getattr(t, n) for t in tables]) for n in names}
    return replace(tables[0], **columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable(TimingTable):
    """Every step of every worker, in no particular order; n rows.

    Attributes:
        worker, step, phase: integers [n]; `step` counts a worker's steps from 0.
        loss: mean loss of the step's batches [n].
        start: the step function began on the worker, with its first parameter at hand [n].
        pulled: the parameters that the step computes with were at hand [n]; not a number where
            nobody sees into a step.
        end: all updates of the step were applied, and their values are on the worker [n].
        batches: for each accumulated batch the moments input ready, loss ready, last gradient ready
            [n, accumulation, 3], or [n, 0, 3] where nobody sees into a step.
        releases: moments at which emulated gradients were released [n, groups], or [n, 0].
    """

    worker: Integers
    step: Integers
    phase: Integers
    loss: Floats
    start: Floats
    pulled: Floats
    end: Floats
    batches: Floats
    releases: Floats

    def __len__(self) -> int:
        return len(self.worker)

    def of_worker(self, worker: int) -> StepTable:
        """One worker's steps, by step number."""
        rows = np.flatnonzero(self.worker == worker)
        return self.select(rows[np.argsort(self.step[rows], kind="stable")])

    def on_clock(self, ahead: Floats) -> StepTable:
        """The steps on another clock, of which theirs is so many seconds ahead at each [n]."""
        return replace(
            self,
            start=self.start - ahead,
            pulled=self.pulled - ahead,
            end=self.end - ahead,
            batches=self.batches - ahead[:, np.newaxis, np.newaxis],
            releases=self.releases - ahead[:, np.newaxis],
        )

    def by_worker(self) -> list[StepTable]:
        """The steps of every worker that made some."""
        return [self.of_worker(int(worker)) for worker in np.unique(self.worker)]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTable(TimingTable):
    """Moments of everything that is sent in the traced steps; m rows.

    Attributes:
        worker, step, kind, tensor: integers [m]; `tensor` is the position of a bucket in sending
            order, or with TensorFlow's own packs that of a variable among the trainable ones.
        time: seconds [m].
    """

    worker: Integers
    step: Integers
    kind: Integers
    tensor: Integers
    time: Floats


def shift_clocks(
    steps: StepTable, events: EventTable, offsets: Sequence[float]
) -> tuple[StepTable, EventTable]:
    """Put all moments on one clock; worker i's clock is `offsets[i]` seconds ahead of it."""
    ahead = np.asarray(offsets)
    moved = replace(events, time=events.time - ahead[events.worker])
    return steps.on_clock(ahead[steps.worker]), moved


def first_seen(start: Floats, later: Floats) -> Floats:
    """When each step began [n]: no later than anything was seen that comes after.

    Nothing waits for the first clock of a step.  On a busy host it may be read when gradients are
    ready.

    Args:
        start: as the first clock has it [n].
        later: all other moments; not a number where nobody sees into a step [n, m].
    """
    return np.asarray(np.fmin(start, np.fmin.reduce(later, axis=1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From the last worker's last warm-up step to the first worker's last step; seconds."""

    start: float
    end: float

    @property
    def length_s(self) -> float:
        """Duration of the window."""
        return self.end - self.start


def measurement_window(steps: StepTable) -> Window:
    """The window in which all workers were measured.

    Raises:
        ValueError: a worker has no warm-up or no measured step.
    """
    starts, ends = [], []
    for worker in np.unique(steps.worker):
        warm = steps.end[(steps.worker == worker) & (steps.phase <= Phase.WARMUP)]
        measured = steps.end[(steps.worker == worker) & (steps.phase == Phase.MEASURED)]
        if not len(warm) or not len(measured):
            missing = "measured" if len(warm) else "warm-up"
            raise ValueError(f"worker:{worker} has no {missing} step")
        starts.append(float(warm.max()))
        ends.append(float(measured.max()))
    return Window(start=max(starts), end=min(ends))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Figures of one run, over its window.

    Attributes:
        examples_per_sec: examples of the steps inside the window over its length; a step that
            reaches over an end of the window counts by its part inside.
        step_time_p50_s, step_time_p95_s: from the end of a worker's step to the end of its next.
            The parts below are None where nobody sees into a step.
        compute_s: forward and backward time, mean per worker and step.
        forward_s, backward_s: the two parts of `compute_s`, of all batches of a step.
        communication_s: exposed: step time less compute less input wait, mean.
        input_wait_s: waiting for the batches, mean.
        measured_steps: per worker, the mean where workers differ.
        steps_per_worker: whole steps inside the window.
    """

    examples_per_sec: float
    step_time_p50_s: float
    step_time_p95_s: float
    compute_s: float | None
    communication_s: float | None
    input_wait_s: float | None
    forward_s: float | None
    backward_s: float | None
    warmup_steps: int
    measured_steps: int
    window_s: float
    steps_per_worker: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self) if each.name != "steps_per_worker"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{name} must be a number, got {value}")
        for name in ("examples_per_sec", "window_s", "step_time_p50_s", "step_time_p95_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        if min(self.steps_per_worker, default=0) < 1:
            raise ValueError(f"steps of each worker in the window: {self.steps_per_worker}")


def compute_metrics(steps: StepTable, examples_per_step: int) -> Metrics:
    """Derive the figures of a run from its raw timings.

    Raises:
        ValueError: there is no window in which all workers were measured.
    """
    window = measurement_window(steps)
    inside_window, durations, made = [], [], 0.0
    for table in steps.by_worker():
        before = np.concatenate([[np.nan], table.end[:-1]])
        # A step begins where the worker's previous one ended: dispatch gaps belong to the step.
        inside = (before >= window.start) & (table.end <= window.end)
        inside &= table.phase == Phase.MEASURED
        made += _made_inside(before, table.end, window)
        durations.append((table.end - before)[inside])
        inside_window.append(table.select(inside))
    counts = tuple(len(table) for table in inside_window)
    if min(counts) < 1:
        raise ValueError("the window holds no whole step of some worker")
    step_s, whole = np.concatenate(durations), concatenate(inside_window)
    forward_s, backward_s, wait_s = forward_spans(whole), backward_spans(whole), input_spans(whole)
    phases = [table.phase for table in steps.by_worker()]
    return Metrics(
        examples_per_sec=made * examples_per_step / window.length_s,
        step_time_p50_s=float(np.percentile(step_s, 50)),
        step_time_p95_s=float(np.percentile(step_s, 95)),
        compute_s=_mean(forward_s + backward_s),
        communication_s=_mean(step_s - forward_s - backward_s - wait_s),
        input_wait_s=_mean(wait_s),
        forward_s=_mean(forward_s),
        backward_s=_mean(backward_s),
        warmup_steps=min(int((phase <= Phase.WARMUP).sum()) for phase in phases),
        measured_steps=round(float(np.mean([(phase == Phase.MEASURED).sum() for phase in phases]))),
        window_s=window.length_s,
        steps_per_worker=counts,
    )


def _mean(seconds: Floats) -> float | None:
    """None where they are unknown."""
    mean = float(seconds.mean())
    return None if math.isnan(mean) else mean


def _made_inside(begin: Floats, end: Floats, window: Window) -> float:
    """Steps made inside a window; one that reaches over an end of it counts by its part inside.

    Whole steps alone would leave out up to two steps of every worker but one, whose time is in the
    window all the same: half a per cent of a hundred steps, and nothing of a single worker's.
    """
    inside = np.minimum(end, window.end) - np.maximum(begin, window.start)
    return float(np.nansum(np.maximum(inside, 0.0) / (end - begin)))


def compute_spans(steps: StepTable) -> Floats:
    """Seconds of forward and backward work of each step [n].

    These and the other spans are not a number where nobody sees into a step.
    """
    return forward_spans(steps) + backward_spans(steps)


def forward_spans(steps: StepTable) -> Floats:
    """Seconds of the forward passes of each step [n].

    That of a batch begins when its input, the parameters and the batch before it are all there:
    work that ran while parameters were still arriving is hidden communication.
    """
    return _sums(steps, forward_ends(steps) - forward_starts(steps))


def backward_spans(steps: StepTable) -> Floats:
    """Seconds of the backward passes of each step [n], from loss to last gradient."""
    return _sums(steps, steps.batches[:, :, 2] - forward_ends(steps))


def _sums(steps: StepTable, spans: Floats) -> Floats:
    """Over the batches of each step."""
    unknown = steps.batches.shape[1] == 0
    return np.full(len(steps), np.nan) if unknown else np.asarray(spans.sum(axis=1))


def forward_starts(steps: StepTable) -> Floats:
    """When the forward pass of each batch began, as `forward_spans` counts it [n, accumulation]."""
    ready = np.maximum(steps.batches[:, :, 0], steps.pulled[:, np.newaxis])
    previous_end = np.concatenate([steps.start[:, np.newaxis], steps.batches[:, :-1, 2]], axis=1)
    return np.asarray(np.minimum(np.maximum(ready, previous_end), steps.batches[:, :, 2]))


def forward_ends(steps: StepTable) -> Floats:
    """When the forward pass of each batch ended, and the backward pass began [n, accumulation]."""
    # Clocks are read beside the computation, so a moment may be noted a little late.
    return np.clip(steps.batches[:, :, 1], forward_starts(steps), steps.batches[:, :, 2])


def input_spans(steps: StepTable) -> Floats:
    """Seconds in which each step waited for a batch although the parameters were there [n]."""
    since = np.concatenate([steps.pulled[:, np.newaxis], steps.batches[:, :-1, 2]], axis=1)
    return _sums(steps, np.maximum(steps.batches[:, :, 0] - since, 0.0))
