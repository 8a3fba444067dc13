"""The traced steps of a run: their parts, and the way of every message.

Decides which launch of a point is shown, where the parts of a step begin and end, and since when a
message is under way.  All of it is pure but for the reading of one file.  Where moments contradict
each other they are put in order: clocks are read beside the computation, so a moment may be noted a
little late.  Spans are those of `ps_allreduce.record.step_table`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.data.cases import Point
from ps_allreduce.record.files import RunFiles, load_raw
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.step_table import (
    EventKind,
    EventTable,
    Floats,
    Phase,
    StepTable,
    forward_ends,
    forward_starts,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that took time; seconds since the epoch."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What became of one message of a traced step; seconds since the epoch, in this order.

    Attributes:
        number: position in sending order, or of the variable where each travels on its own.
        ready: its gradient was ready.
        turn: from here on it may be under way: fewer than `in_flight` of those before it are.
        acknowledged: the worker knew that the server has it; of a collective, it was averaged.
        back: the new value was on the worker.
    """

    worker: int
    step: int
    number: int
    ready: float
    turn: float
    acknowledged: float
    back: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRun:
    """A run, and the raw timings of its traced steps alone, by worker and step."""

    record: RunRecord
    steps: StepTable
    events: EventTable

    @classmethod
    def of(cls, record: RunRecord, steps: StepTable, events: EventTable) -> TracedRun | None:
        """None where no step was traced."""
        rows = np.flatnonzero(steps.phase == Phase.EVENTS)
        if not len(rows):
            return None
        rows = rows[np.lexsort((steps.step[rows], steps.worker[rows]))]
        return cls(record=record, steps=steps.select(rows), events=events)

    @property
    def communicates(self) -> bool:
        """Gradients leave the worker, and somebody sees into the steps."""
        return self.record.experiment.strategy.communicates() and len(self.events.time) > 0

    def is_acknowledged(self, number: int) -> bool:
        """A server says that it has the message; with host aggregation it may be a worker."""
        messages = self.record.messages
        to_server = bool(messages) and messages[number].server is not None
        return to_server and not self.record.experiment.strategy.host_aggregation

    def is_of_rows(self, number: int) -> bool:
        """It stands for all rows of tables that a step exchanges."""
        messages = self.record.messages
        return bool(messages) and messages[number].of_rows

    def message_name(self, number: int) -> str:
        """`bucket 3`; where every variable travels on its own, `gradient 3`; `rows` of tables."""
        if self.is_of_rows(number):
            return "rows"
        what = "gradient" if self.record.experiment.strategy.wire is None else "bucket"
        return f"{what} {number}"


def traced_run(point: Point) -> TracedRun | None:
    """Of the launches of a point that count, the one with the median rate; None without any."""
    by_rate = point.rates.to_numpy().argsort(kind="stable")
    if not len(by_rate):
        return None
    run_id = point.launches["run_id"].iloc[by_rate[(len(by_rate) - 1) // 2]]
    path = Path(point.attempts.index[point.attempts["run_id"] == run_id][0])
    raw = RunFiles(path).raw
    if not raw.exists():
        return None
    record = next(each for each in point.records if each.run_id == run_id)
    return TracedRun.of(record, *load_raw(raw))


def parts_of(run: TracedRun) -> list[list[Span]]:
    """The parts of every step, in the order of the rows; none where nobody sees into a step.

    Rows that are fetched, input wait, forward and backward pass of every batch, and then what is
    left up to the end of the step.  What lies before the first part is the start of the step.
    """
    steps = run.steps
    if not steps.batches.shape[1]:
        return [[] for _ in range(len(steps))]
    rest = "exchange" if run.record.experiment.strategy.communicates() else "update"
    starts, ends = forward_starts(steps), forward_ends(steps)
    parts = []
    for row, end in enumerate(steps.end.tolist()):
        computed = [*_computed(steps, row, starts[row], ends[row])]
        left = Span(name=rest, begin=computed[-1].end, end=end)
        parts.append([*_fetched(run, row), *computed, left])
    return parts


def _fetched(run: TracedRun, row: int) -> list[Span]:
    """Rows of tables come before the forward pass, where they come from servers."""
    strategy = run.record.experiment.strategy
    if not (strategy.is_sparse and strategy.uses_servers):
        return []
    begin, end = float(run.steps.start[row]), float(run.steps.end[row])
    (pulled,) = _in_order([float(run.steps.pulled[row])], begin, end)
    return [Span(name="fetch rows", begin=begin, end=pulled)]


def _computed(steps: StepTable, row: int, starts: Floats, ends: Floats) -> Iterator[Span]:
    before, limit = float(steps.start[row]), float(steps.end[row])
    since = float(steps.pulled[row])
    for (ready, _, last), forward, backward in zip(
        steps.batches[row].tolist(), starts.tolist(), ends.tolist(), strict=True
    ):
        moments = [since, ready, forward, backward, last]
        since, ready, forward, backward, last = _in_order(moments, before, limit)
        if since < ready:
            yield Span(name="input wait", begin=since, end=ready)
        yield Span(name="forward", begin=forward, end=backward)
        yield Span(name="backward", begin=backward, end=last)
        since = before = last


def _in_order(moments: Sequence[float], least: float, most: float) -> list[float]:
    """The moments between two others, none before the one in front of it."""
    return [*np.minimum(np.maximum.accumulate([least, *moments])[1:], most).tolist()]


def ways_of(run: TracedRun) -> list[Way]:
    """The way of every message, by worker, step and number; none where nothing is sent."""
    if not run.communicates:
        return []
    limits = limits_of(run.steps)
    return [
        way
        for step, moments in moments_of(run.events).items()
        for way in _ways_of_step(run.record, step, moments, *limits[step])
    ]


def limits_of(steps: StepTable) -> dict[tuple[int, int], tuple[float, float]]:
    """Begin and end of every step, by worker and step."""
    columns = (steps.worker, steps.step, steps.start, steps.end)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {(worker, step): (start, end) for worker, step, start, end in rows}


def moments_of(events: EventTable) -> dict[tuple[int, int], Floats]:
    """By worker and step, in ascending order: a row of moments for every message [m, 3].

    The columns are the kinds of `EventKind`.
    """
    order = np.lexsort((events.kind, events.tensor, events.step, events.worker))
    times = events.time[order].reshape(-1, len(EventKind))
    first = order[:: len(EventKind)]
    steps: dict[tuple[int, int], list[int]] = defaultdict(list)
    keys = zip(events.worker[first].tolist(), events.step[first].tolist(), strict=True)
    for row, key in enumerate(keys):
        steps[key].append(row)
    return {key: times[rows] for key, rows in steps.items()}


def _ways_of_step(
    record: RunRecord, step: tuple[int, int], moments: Floats, begin: float, end: float
) -> Iterator[Way]:
    """Those of one step of one worker."""
    bound = _in_flight(record)
    of_rows = [number for number, each in enumerate(record.messages) if each.of_rows]
    moments[of_rows, EventKind.PULLED] = moments[of_rows, EventKind.PUSHED]  # they are not brought
    earlier: dict[int | None, list[float]] = defaultdict(list)
    for number, (back, ready, pushed) in enumerate(moments.tolist()):
        before = earlier[record.messages[number].server if record.messages else None]
        ready, back = _in_order([ready, back], begin, end)
        waits = bound and len(before) >= bound and number not in of_rows
        held = before[-bound] if waits else ready
        turn, acknowledged = _in_order([max(ready, held), pushed], ready, back)
        before.append(back)
        yield Way(
            worker=step[0],
            step=step[1],
            number=number,
            ready=ready,
            turn=turn,
            acknowledged=acknowledged,
            back=back,
        )


def _in_flight(record: RunRecord) -> int:
    """How many messages may be under way to one server, or in the ring; 0 where nobody counts.

    With host aggregation messages of a host wait for each other in other ways.
    """
    strategy = record.experiment.strategy
    if strategy.wire is None or strategy.host_aggregation or not record.messages:
        return 0
    return strategy.wire.in_flight
