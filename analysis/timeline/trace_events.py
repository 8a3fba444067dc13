"""A traced run as trace events, which Perfetto and chrome://tracing show.

The format is the JSON object of "Trace Event Format" (Google, Nat Duca and Dan Sinclair,
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).

Decides what becomes a process, a thread, a slice and an arrow, and their names.  A host is a
process and a task a thread.  Messages that are under way at once overlap, and slices of a thread
must not, so they have as many threads of their own as are under way at once.  What the moments mean
is decided in `traced`.  Times are whole microseconds since the first traced step began, which is
the resolution of TensorFlow's clock.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis.data.cases import Case, Point
from analysis.timeline.traced import (
    TracedRun,
    Way,
    limits_of,
    moments_of,
    parts_of,
    traced_run,
    ways_of,
)
from analysis.wording import workers_text
from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.record.files import write_atomically
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.step_table import EventKind

#: As the format spells it; all keys are text, all values can be written as JSON.
Event = dict[str, Any]

#: Numbers of threads between two tasks: more messages than this are never under way at once.
_THREADS_APART = 100_000

#: Categories, which viewers can switch off.
STEP, PART, MESSAGE, WAY = "step", "part of a step", "message", "way of a gradient"


@dataclass(frozen=True, slots=True)
class _Thread:
    """Where events are shown."""

    process: int
    number: int

    def event(self, phase: str, name: str, begin: int, **keys: Any) -> Event:
        return {
            "ph": phase,
            "name": name,
            "pid": self.process,
            "tid": self.number,
            "ts": begin,
            **keys,
        }

    def slice(self, category: str, name: str, begin: int, end: int, **args: Any) -> Event:
        """Something that took time."""
        return self.event("X", name, begin, dur=end - begin, cat=category, args=args)

    def instant(self, category: str, name: str, when: int, **args: Any) -> Event:
        return self.event("i", name, when, s="t", cat=category, args=args)

    def label(self, kind: str, **args: Any) -> Event:
        """How a process or thread is called, and where it stands."""
        return {"ph": "M", "name": kind, "pid": self.process, "tid": self.number, "args": args}

    def next(self, lane: int) -> _Thread:
        """A thread below this one, counted from 1."""
        return _Thread(self.process, self.number + lane)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    """A run, where its tasks are shown, and when its first traced step began."""

    run: TracedRun
    threads: Mapping[TaskId, _Thread]
    begin: float

    def micros(self, moment: float) -> int:
        """Whole microseconds since the begin."""
        return round((moment - self.begin) * 1e6)

    def worker(self, index: int) -> _Thread:
        return self.threads[TaskId(TaskType.WORKER, index)]


def trace_of(run: TracedRun) -> dict[str, Any]:
    """The whole trace, ready to be written as JSON."""
    record = run.record
    scene = _Scene(run=run, threads=_threads(record), begin=float(run.steps.start.min()))
    begun = datetime.fromtimestamp(scene.begin, UTC)
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "point": record.experiment.title,
            "run": record.run_id,
            "begin": begun.isoformat(timespec="microseconds"),
        },
        "traceEvents": [
            *_labels(record, scene.threads),
            *_steps(scene),
            *(_ways(scene) if run.communicates else _gradients(scene)),
        ],
    }


def _threads(record: RunRecord) -> dict[TaskId, _Thread]:
    hosts = list(dict.fromkeys(task.host for task in record.tasks))
    return {
        TaskId.parse(task.task): _Thread(hosts.index(task.host) + 1, number * _THREADS_APART + 1)
        for number, task in enumerate(record.tasks)
    }


def _labels(record: RunRecord, threads: Mapping[TaskId, _Thread]) -> Iterator[Event]:
    for task in record.tasks:
        thread = threads[TaskId.parse(task.task)]
        yield thread.label("process_name", name=f"host {task.host}")
        yield thread.label("process_sort_index", sort_index=thread.process)
        yield from _thread_labels(thread, task.task)


def _thread_labels(thread: _Thread, name: str) -> Iterator[Event]:
    yield thread.label("thread_name", name=name)
    yield thread.label("thread_sort_index", sort_index=thread.number)


def _steps(scene: _Scene) -> Iterator[Event]:
    """Every step with its parts inside, and when emulated gradients were released."""
    steps, micros = scene.run.steps, scene.micros
    for row, parts in enumerate(parts_of(scene.run)):
        thread, step = scene.worker(int(steps.worker[row])), int(steps.step[row])
        begin, end = micros(float(steps.start[row])), micros(float(steps.end[row]))
        loss = float(steps.loss[row])
        yield thread.slice(STEP, f"step {step}", begin, end, step=step, loss=loss)
        for part in parts:
            yield thread.slice(PART, part.name, micros(part.begin), micros(part.end), step=step)
        for group, moment in enumerate(steps.releases[row].tolist()):
            when = min(max(micros(moment), begin), end)
            yield thread.instant(PART, "gradients released", when, step=step, group=group)


def _gradients(scene: _Scene) -> Iterator[Event]:
    """Where no gradient leaves its worker: when each was ready."""
    limits = limits_of(scene.run.steps)
    for (worker, step), moments in moments_of(scene.run.events).items():
        thread = scene.worker(worker)
        within = moments[:, EventKind.GRADIENT_READY].clip(*limits[worker, step])
        for number, moment in enumerate(within.tolist()):
            when = scene.micros(moment)
            yield thread.instant(MESSAGE, "gradient ready", when, step=step, gradient=number)


def _ways(scene: _Scene) -> Iterator[Event]:
    """Every message while it is under way, and an arrow from its gradient to its new value."""
    ways = ways_of(scene.run)
    limits = limits_of(scene.run.steps)
    lanes = lanes_of(ways)
    for worker, count in _counts(ways, lanes).items():
        for lane in range(1, count + 1):
            name = f"worker:{worker}, under way {lane}"
            yield from _thread_labels(scene.worker(worker).next(lane), name)
    for number, (way, lane) in enumerate(zip(ways, lanes, strict=True)):
        thread = scene.worker(way.worker).next(lane)
        yield from _message(scene, way, thread)
        yield from _arrow(scene, way, thread, number, limits[way.worker, way.step][1])


def lanes_of(ways: Sequence[Way]) -> list[int]:
    """For every message a number from 1, different for those of a worker under way at once."""
    lanes = [0] * len(ways)
    busy_until: dict[int, list[float]] = {}
    for index in sorted(range(len(ways)), key=lambda index: ways[index].turn):
        way = ways[index]
        ends = busy_until.setdefault(way.worker, [])
        lane = next((lane for lane, end in enumerate(ends) if end <= way.turn), len(ends))
        ends[lane : lane + 1] = [way.back]
        lanes[index] = lane + 1
    return lanes


def _counts(ways: Sequence[Way], lanes: Sequence[int]) -> dict[int, int]:
    """How many lanes each worker has."""
    counts: dict[int, int] = {}
    for way, lane in zip(ways, lanes, strict=True):
        counts[way.worker] = max(counts.get(way.worker, 0), lane)
    return counts


def _message(scene: _Scene, way: Way, thread: _Thread) -> Iterator[Event]:
    """The slice of a message; to a server, its two halves and the acknowledgement as well."""
    name, micros = scene.run.message_name(way.number), scene.micros
    begin, middle, end = micros(way.turn), micros(way.acknowledged), micros(way.back)
    args: dict[str, Any] = {"step": way.step, "waited_us": begin - micros(way.ready)}
    args |= _carried(scene.run.record, way.number)
    yield thread.slice(MESSAGE, name, begin, end, **args)
    if scene.run.is_acknowledged(way.number):
        yield thread.slice(MESSAGE, f"to {args['server']}", begin, middle)
        yield thread.slice(MESSAGE, "waits for its value", middle, end)
        told = f"{name} of worker:{way.worker} acknowledged"
        server = scene.threads[TaskId.parse(args["server"])]
        yield server.instant(MESSAGE, told, middle, step=way.step, bytes=args["bytes"])


def _carried(record: RunRecord, number: int) -> dict[str, Any]:
    """What a message carries and which server holds it; nothing where the record does not tell."""
    if not record.messages:
        return {}
    message = record.messages[number]
    args = {"bytes": message.num_bytes, "variables": list(message.variables)}
    if message.server is None:
        return args
    return {"server": str(TaskId(TaskType.PS, message.server)), **args}


def _arrow(scene: _Scene, way: Way, thread: _Thread, number: int, end: float) -> Iterator[Event]:
    """From the worker's slice in which the gradient is ready, through its message, to its end.

    Viewers bind an end of an arrow to the innermost slice that is open then, and turn an arrow
    around whose second slice begins before the first.  A slice does not hold its own end, so what
    ends one is told a microsecond before.

    Args:
        end: of the step.
    """
    micros, name = scene.micros, scene.run.message_name(way.number)
    keys: dict[str, Any] = {"cat": WAY, "id": number}
    ready, turn, middle = micros(way.ready), micros(way.turn), micros(way.acknowledged)
    yield scene.worker(way.worker).event("s", name, min(ready, micros(end) - 1), **keys)
    since = turn
    if scene.run.is_acknowledged(way.number):
        yield thread.event("t", name, max(turn, middle - 1), **keys)
        since = middle
    yield thread.event("f", name, max(since, micros(way.back) - 1), bp="e", **keys)


def save_traces(case: Case, folder: Path) -> Mapping[Point, Path]:
    """Write the trace of every point with traced steps.

    Raises:
        UserError: no permission, or no space left.
    """
    saved = {}
    for point in case.points:
        run = traced_run(point)
        if run is not None:
            path = folder / trace_name(point)
            text = json.dumps(trace_of(run), separators=(",", ":"), allow_nan=False)
            # No time of writing in it: the same records give the same bytes.
            write_atomically(path, gzip.compress(text.encode(), mtime=0))
            saved[point] = path
    return saved


def trace_name(point: Point) -> str:
    """Told by strategy and workers; the identity tells apart what else differs."""
    workers = workers_text(point.num_workers).replace(" ", "-")
    return f"timeline-{point.setting.strategy}-{workers}-{point.experiment.experiment_id}.json.gz"
