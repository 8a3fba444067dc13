"""The results of the driving tasks, merged into those of one run.

Decides whether a run that came to its end is valid.  Reads the files of the tasks; starts nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from launchers.protocol import LaunchedRun
from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.errors import RecordFormatError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.raw_timings import load_raw
from ps_allreduce.record.records import Phases, Status
from ps_allreduce.record.steps import (
    compute_metrics,
    concatenate,
    shift_clocks,
)
from ps_allreduce.runner.results import DriverResult
from ps_allreduce.runner.validity import find_problems
from ps_allreduce.serialization import from_json

T = TypeVar("T")

#: Moments of a result, on the clock of the driver's host.
MOMENTS = ("connected_at", "built_at", "first_step_at", "warm_at", "measured_at")


def merge_results(
    run: LaunchedRun,
    experiment: Experiment,
    results: Mapping[TaskId, Path],
    launched_at: float,
    ended_at: float,
    offset_of: Callable[[TaskId], float],
) -> tuple[LaunchedRun, tuple[float, float]]:
    """Merge what the drivers wrote (`<result>.json`, `<result>.npz`), and see whether it is valid.

    Args:
        run: what else is known of it.
        offset_of: seconds by which the clock of a task's host is ahead of the launcher's; all
            moments are put on the launcher's clock.

    Returns:
        The run, and begin and end of its measured part.

    Raises:
        OSError, RecordFormatError: a file is missing or damaged.
    """
    drivers = [
        _driver_result(Path(f"{path}.json"), offset_of(task)) for task, path in results.items()
    ]
    offsets = [offset_of(TaskId(TaskType.WORKER, i)) for i in range(experiment.num_workers)]
    tables = [shift_clocks(*load_raw(Path(f"{path}.npz")), offsets) for path in results.values()]
    steps = concatenate([table for table, _ in tables])
    problems = find_problems(experiment, drivers, steps)
    metrics = None
    try:
        metrics = compute_metrics(steps, experiment.workload.examples_per_step)
    except ValueError as error:
        problems = [*problems, str(error)]
    merged = replace(
        run,
        status=Status.INVALID if problems else Status.OK,
        reason="; ".join(problems),
        phases=_phases(drivers, launched_at, ended_at),
        metrics=metrics,
        placement=next((d.placement for d in drivers if d.placement), None),
        weights_digest=_digest(drivers),
        gradient_bytes=drivers[0].gradient_bytes,
        num_messages=drivers[0].num_messages,
        steps=steps,
        events=concatenate([events for _, events in tables]),
    )
    return merged, (max(d.warm_at for d in drivers), min(d.measured_at for d in drivers))


def read_result(cls: type[T], path: Path) -> T:
    """What a driving task left.

    Raises:
        OSError, RecordFormatError: the file is missing or damaged.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecordFormatError(f"{path}: not a readable result ({error}).") from error
    return from_json(cls, content, str(path))


def _driver_result(path: Path, offset: float) -> DriverResult:
    result = read_result(DriverResult, path)
    return replace(result, **{name: getattr(result, name) - offset for name in MOMENTS})


def _phases(drivers: Sequence[DriverResult], launched_at: float, ended_at: float) -> Phases:
    """Each part ends when the last driver has ended it."""
    connected = max(d.connected_at for d in drivers)
    built = max(d.built_at for d in drivers)
    first = max(d.first_step_at for d in drivers)
    warm = max(d.warm_at for d in drivers)
    return Phases(
        bring_up_s=connected - launched_at,
        build_s=built - connected,
        first_step_s=first - built,
        warmup_s=warm - first,
        measured_s=max(d.measured_at for d in drivers) - warm,
        total_s=ended_at - launched_at,
    )


def _digest(drivers: Sequence[DriverResult]) -> str:
    """Equal for equal trainable weights, whatever their order of computation."""
    return hashlib.sha256(json.dumps(drivers[0].checksums_after).encode()).hexdigest()[:16]
