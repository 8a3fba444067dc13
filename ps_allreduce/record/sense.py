"""Whether the figures of a record can be those of a run, and agree with one another.

Decides what is refused although every value has its type.  Only what no run can leave is refused:
a clock that was set during a run makes strange times, and its record tells so.  That the record
lies where it belongs is checked by `files`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

from ps_allreduce.cluster import TaskId
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.record.step_table import Metrics

#: No phase of a run is longer, whatever a clock did; seconds.
LONGEST_S = 1e9

#: By how much a rate may differ from its steps: it was computed from moments of a double each.
ROUNDING = 1e-6


def judged(record: RunRecord) -> RunRecord:
    """The record; as that of an invalid run if its figures contradict each other."""
    try:
        refuse_nonsense(record)
    except ValueError as error:
        return replace(record, status=Status.INVALID, reason=str(error))
    return record


def refuse_nonsense(record: RunRecord) -> None:
    """See that a record's figures make sense.

    Raises:
        ValueError: they do not; the text says which.
        UserError: a task has a name that none has.
    """
    for task in record.tasks:
        TaskId.parse(task.task)
    for name, amount in _amounts(record):
        if amount is not None and amount < 0:
            raise ValueError(f"{name} is {amount:g}, which is below 0")
    for name, seconds in asdict(record.phases).items():
        if seconds is not None and abs(seconds) > LONGEST_S:
            raise ValueError(f"phases.{name} is {seconds:g} s, longer than any run")
    if any(link.bits_per_s <= 0 for link in record.links):
        raise ValueError("a link has no rate above 0")
    if record.recording is not None:
        recorded, bare = record.recording.recorded_s, record.recording.bare_s
        if not recorded or len(recorded) != len(bare) or min(*recorded, *bare) <= 0:
            raise ValueError("times of recording are no pairs of times above 0")
    if record.status is Status.OK and record.metrics is not None:
        _refuse_contradictions(record, record.metrics)


def _amounts(record: RunRecord) -> Iterator[tuple[str, float | None]]:
    """Whatever is counted, by its name."""
    for name in ("total_cores", "gradient_bytes", "num_messages"):
        yield name, getattr(record, name)
    for each in record.sparse:
        yield f"looked_up of {each.variable}", each.looked_up
    for task in record.tasks:
        yield f"cpu_s of {task.task}", task.cpu_s
        yield f"peak_memory_bytes of {task.task}", task.peak_memory_bytes
    if record.metrics is not None:
        for name in ("warmup_steps", "measured_steps"):
            yield f"metrics.{name}", getattr(record.metrics, name)


def _refuse_contradictions(record: RunRecord, metrics: Metrics) -> None:
    """No part of a step is longer than the window, and the rate is that of the steps."""
    parts = ("step_time_p50_s", "step_time_p95_s", "communication_s")
    for name in (*parts, "compute_s", "input_wait_s", "forward_s", "backward_s"):
        seconds = getattr(metrics, name)
        if seconds is None:
            continue
        if seconds > metrics.window_s or (name not in parts and seconds < 0):
            raise ValueError(
                f"metrics.{name} is {seconds:g} s in a window of {metrics.window_s:g} s"
            )
    workers, whole = len(metrics.steps_per_worker), sum(metrics.steps_per_worker)
    if workers != record.experiment.num_workers:
        raise ValueError(f"metrics.steps_per_worker has {workers} workers")
    # Besides whole steps, each worker has a part of one at either end of the window.
    per_step = record.experiment.of_each.examples_per_step
    made = metrics.examples_per_sec * metrics.window_s / per_step
    if not whole * (1 - ROUNDING) <= made <= (whole + 2 * workers) * (1 + ROUNDING):
        raise ValueError(
            f"metrics.examples_per_sec is {metrics.examples_per_sec:g}: that is {made:.1f} steps "
            f"of {per_step} in a window of {metrics.window_s:g} s, not {whole}"
        )
