"""What is kept of a run however it ended.

Decides how its end is told, which log tells most, what every task used, how the results of the
drivers become those of one run, whether that is valid, and what becomes a warning.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from launchers.fork_servers.client import last_lines
from launchers.run.samples import (
    load_warnings,
    machine_busy,
    throttling_warnings,
    with_foreign_loads,
    with_loads,
    with_tcp,
)
from launchers.run.state import RunState, log_path, result_path
from launchers.run.traffic import traffic_records, traffic_warnings
from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.errors import RecordFormatError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import RecordingComparison
from ps_allreduce.record.evaluation_timings import (
    EvaluationTable,
    EvaluationTimes,
    LearningCurve,
    evaluation_times,
    learned,
)
from ps_allreduce.record.files import load_evaluation, load_raw, read_json
from ps_allreduce.record.records import (
    BUSY_LIMIT,
    Phases,
    RecordingTimes,
    RunOutcome,
    Status,
    TaskRecord,
)
from ps_allreduce.record.step_table import (
    EventTable,
    Metrics,
    StepTable,
    compute_metrics,
    concatenate,
    shift_clocks,
)
from ps_allreduce.runner.validity import DriverResult, find_doubts, find_problems, warmup_end
from ps_allreduce.serialization import from_json

T = TypeVar("T")

#: Moments of a result, on the clock of the driver's host.
MOMENTS = ("connected_at", "built_at", "first_step_at", "warm_at", "measured_at")

LOG_TAIL_LINES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedRun(RunOutcome):
    """What became of one launch, and what is kept beside its record.

    Attributes:
        host_fault: a fault of a host, not of the run, which is interrupted then; its `reason`.
        steps, events, evaluated: raw timings; None if the run did not get so far.
        log: the output of all tasks, one after the other.
        log_tail: the last lines of the log that explains why the run did not succeed.
    """

    host_fault: str = ""
    steps: StepTable | None = None
    evaluated: EvaluationTable | None = None
    events: EventTable | None = None
    log: str = ""
    log_tail: str = ""


def conclude(state: RunState) -> LaunchedRun:
    """Everything that is known of the run, as far as it got."""
    monitor = state.monitor
    run = LaunchedRun(
        status=state.status,
        hosts=with_loads(state.hosts, monitor.samples),
        links=state.links,
        ports=state.ports,
        job_id=state.job_id,
        oversubscribed=state.cores.oversubscribed,
        total_cores=state.cores.total,
        tasks=tuple(_task_record(task, state) for task in state.tasks),
        samples=tuple(monitor.samples),
        log=_merged_log(state),
    )
    if state.status is not Status.OK:
        connected = monitor.moment("connected")
        phases = Phases(
            bring_up_s=None if connected is None else connected - state.launched_at,
            total_s=state.ended_at - state.launched_at,
        )
        reason = failure_reason(state)
        fault = reason if state.is_host_fault else ""
        tail = _log_tail(state)
        return replace(run, reason=reason, host_fault=fault, phases=phases, log_tail=tail)
    try:
        return _with_results(run, state)
    except (OSError, RecordFormatError) as error:
        return replace(run, status=Status.FAILED, reason=f"results are missing: {error}")


def _with_results(run: LaunchedRun, state: RunState) -> LaunchedRun:
    experiment = state.request.experiment
    results = {task: result_path(state.folder, task) for task in state.monitor.drivers}
    if isinstance(experiment.measurement, RecordingComparison):
        total = Phases(total_s=state.ended_at - state.launched_at)
        times = read_result(RecordingTimes, results[state.monitor.drivers[0]])
        return replace(run, recording=times, phases=total)
    run, window = merge_results(
        run, experiment, results, state.launched_at, state.ended_at, state.offset_of
    )
    offsets = {host.name: host.clock_offset_s for host in state.hosts}
    used = frozenset(task.gpus for task in run.tasks if task.gpus)
    hosts = with_foreign_loads(run.hosts, run.samples, window, state.launcher_s)
    hosts = with_tcp(hosts, run.samples, window)
    warnings = [
        *run.warnings,
        *load_warnings(hosts),
        *throttling_warnings(run.samples, window, offsets, used),
    ]
    busy = machine_busy(run.samples, window) if state.one_machine else None
    # One host sends nothing over the emulated network.
    if busy is not None and busy >= BUSY_LIMIT and len(hosts) > 1:
        warnings.append(
            f"this machine's processors were {busy:.0%} busy: it may have been the limit, not the "
            "emulated network"
        )
    traffic = traffic_records(state.monitor, window)
    warnings += traffic_warnings(state.monitor.streams, traffic)
    return replace(run, hosts=hosts, machine_busy=busy, traffic=traffic, warnings=tuple(warnings))


def failure_reason(state: RunState) -> str:
    """Why a run did not come to its end, in one sentence."""
    monitor, told = state.monitor, state.post_mortem
    if state.status is Status.TIMED_OUT:
        stopped = monitor.culprit()[1] if monitor.stopped else f"last heard of: {monitor.stage}"
        return f"not finished after {state.deadline_s:.4g} s; {stopped}"
    reason = monitor.lost_contact
    if state.status is Status.FAILED:
        reason = reason or monitor.culprit()[1]
    elif not reason and not told:
        reason = "interrupted by the operator"
    return "; ".join(filter(None, [reason.rstrip("."), told])) if told else reason


def _log_tail(state: RunState) -> str:
    """The last lines of the log that tells most: the culprit's, or the first driver's.

    None of a task whose crash is explained: they are a stack.
    """
    task = state.monitor.drivers[0]
    if state.status is Status.FAILED and not state.monitor.lost_contact:
        name = state.monitor.culprit()[0]
        if state.monitor.is_explained(name):
            return ""
        task = next((each for each in state.tasks if str(each) == name), task)
    return last_lines(log_path(state.folder, task), LOG_TAIL_LINES)


def _task_record(task: TaskId, state: RunState) -> TaskRecord:
    monitor, name = state.monitor, str(task)
    exited, placed = monitor.exited.get(name), monitor.placed.get(name)
    killed = name in monitor.ended_by_us
    return TaskRecord(
        task=name,
        host=state.placed[task],
        address=state.addresses[task],
        cores=state.tasks[task].cores if placed is None else placed.cores,
        gpus=None if placed is None else placed.gpus,
        settings={} if placed is None else placed.settings,
        pid=monitor.pids.get(name, 0),
        exit=None if exited is None or killed else exited.status,
        cpu_s=None if exited is None else exited.cpu_s,
        peak_memory_bytes=None if exited is None else exited.peak_memory_bytes,
    )


def _merged_log(state: RunState) -> str:
    parts = []
    for task in state.tasks:
        path = log_path(state.folder, task)
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        parts.append(f"==> {task} <==\n{text.rstrip()}\n")
    return "\n".join(parts)


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
        offset_of: seconds by which the clock of a task's host is ahead of the launcher's.

    Returns:
        The run, and begin and end of its measured part, on the launcher's clock.

    Raises:
        OSError, RecordFormatError: a file is missing or damaged.
    """
    drivers = [_driver_result(path, offset_of(task)) for task, path in results.items()]
    offsets = [offset_of(TaskId(TaskType.WORKER, i)) for i in range(experiment.num_workers)]
    steps, events = _timings(results.values(), offsets)
    phases = _phases(drivers, launched_at, ended_at)
    evaluated = concatenate(
        [load_evaluation(Path(f"{path}.npz")).shifted(offsets) for path in results.values()]
    )
    curve: LearningCurve | None = None
    if experiment.learning is not None:
        steps, curve = learned(experiment, experiment.learning, steps, evaluated)
    timed = replace(
        run, phases=phases, steps=steps, events=events, evaluated=evaluated, learned=curve
    )
    merged = _judged(_with_training(timed, drivers), experiment, drivers, steps)
    return merged, (max(d.warm_at for d in drivers), min(d.measured_at for d in drivers))


def _timings(results: Iterable[Path], offsets: Sequence[float]) -> tuple[StepTable, EventTable]:
    """The raw timings of all drivers as one, on the launcher's clock."""
    tables = [shift_clocks(*load_raw(Path(f"{path}.npz")), offsets) for path in results]
    return concatenate([steps for steps, _ in tables]), concatenate([e for _, e in tables])


def _with_training(run: LaunchedRun, drivers: Sequence[DriverResult]) -> LaunchedRun:
    """The run with what its drivers tell of variables, gradients and warm-up."""
    first = drivers[0]
    return replace(
        run,
        placement=next((d.placement for d in drivers if d.placement), None),
        weights_digest=_digest(drivers),
        gradient_bytes=first.gradient_bytes,
        num_messages=first.num_messages,
        messages=first.messages,
        sparse=first.sparse,
        rows_asked=first.rows_asked,
        warmup_end=warmup_end(drivers),
    )


def _judged(
    run: LaunchedRun, experiment: Experiment, drivers: Sequence[DriverResult], steps: StepTable
) -> LaunchedRun:
    """The run with what is wrong with it, and its metrics; None if it has no common window."""
    problems = find_problems(experiment, drivers, steps)
    metrics: Metrics | None = None
    evaluation: EvaluationTimes | None = None
    try:
        metrics = compute_metrics(steps, experiment.of_each.examples_per_step)
        evaluation = _evaluation_of(run, experiment)
    except ValueError as error:
        problems = [*problems, str(error)]
    return replace(
        run,
        status=Status.INVALID if problems else Status.OK,
        reason="; ".join(problems),
        warnings=tuple(find_doubts(experiment, drivers, steps)),
        metrics=metrics,
        evaluation=evaluation,
    )


def _evaluation_of(run: LaunchedRun, experiment: Experiment) -> EvaluationTimes | None:
    if experiment.evaluation is None or run.evaluated is None or run.learned is not None:
        return None
    batch = experiment.of_each.batch_per_worker
    return evaluation_times(run.evaluated, batch, experiment.num_workers)


def read_result(cls: type[T], result: Path) -> T:
    """What a driving task left in `<result>.json`.

    Raises:
        OSError, RecordFormatError: the file is missing or damaged.
    """
    path = Path(f"{result}.json")
    try:
        content = read_json(path)
    except ValueError as error:
        raise RecordFormatError(f"{path}: not a readable result ({error}).") from error
    return from_json(cls, content, str(path))


def _driver_result(path: Path, offset: float) -> DriverResult:
    result = read_result(DriverResult, path)
    return replace(result, **{name: getattr(result, name) - offset for name in MOMENTS})


def _phases(drivers: Sequence[DriverResult], launched_at: float, ended_at: float) -> Phases:
    """Each part ends when the last driver has ended it."""
    ends = [max(getattr(driver, name) for driver in drivers) for name in MOMENTS]
    connected, built, first, warm, measured = ends
    return Phases(
        bring_up_s=connected - launched_at,
        build_s=built - connected,
        first_step_s=first - built,
        warmup_s=warm - first,
        measured_s=measured - warm,
        total_s=ended_at - launched_at,
    )


def _digest(drivers: Sequence[DriverResult]) -> str:
    """Equal for equal trainable weights, whatever their order of computation."""
    return hashlib.sha256(json.dumps(drivers[0].checksums_after).encode()).hexdigest()[:16]
