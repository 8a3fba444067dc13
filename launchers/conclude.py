"""The tasks of one launch, and what became of them.

Decides what is kept of a run however it ended: who is to blame, which log tells most, what every
task used.  Whether a complete run is valid is decided by `outcome`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from launchers.fork_server import last_lines
from launchers.layout import CorePlan, drivers_of
from launchers.outcome import read_outcome
from launchers.protocol import LaunchedRun
from launchers.run_monitor import RunMonitor
from ps_allreduce.cluster import TaskId
from ps_allreduce.errors import RecordFormatError
from ps_allreduce.experiment import Experiment
from ps_allreduce.records import Phases, Status, TaskRecord
from ps_allreduce.runner.messages import StartTask

LOG_TAIL_LINES = 8


@dataclass(frozen=True, slots=True)
class Prepared:
    """The tasks of one launch with everything they need."""

    requests: Sequence[StartTask]
    addresses: Mapping[TaskId, str]
    cores: CorePlan
    scratch: Path


def result_path(scratch: Path, task: TaskId) -> Path:
    """Where a driving task leaves its result, without the suffix."""
    return scratch / f"result-{task.type}-{task.index}"


def conclude(
    experiment: Experiment,
    prepared: Prepared,
    monitor: RunMonitor,
    status: Status,
    launched_at: float,
) -> LaunchedRun:
    """Everything that is known of the run, as far as it got."""
    ended_at = time.time()
    run = LaunchedRun(
        status=status,
        hosts=(socket.gethostname(),),
        interface="lo",
        tasks=_task_records(prepared, monitor),
        samples=tuple(monitor.samples),
        log=_merged_log(prepared),
    )
    if status is not Status.OK:
        phases = Phases(
            bring_up_s=_since(launched_at, monitor.moment("connected")),
            total_s=ended_at - launched_at,
        )
        reason = failure_reason(experiment, monitor, status)
        return replace(
            run, reason=reason, phases=phases, log_tail=_log_tail(prepared, monitor, status)
        )
    results = [result_path(prepared.scratch, task) for task in drivers_of(experiment)]
    try:
        outcome = read_outcome(experiment, results, launched_at, ended_at)
    except (OSError, RecordFormatError) as error:
        return replace(run, status=Status.FAILED, reason=f"results are missing: {error}")
    return replace(run, **{field.name: getattr(outcome, field.name) for field in fields(outcome)})


def _since(begin: float, moment: float | None) -> float | None:
    return None if moment is None else moment - begin


def failure_reason(experiment: Experiment, monitor: RunMonitor, status: Status) -> str:
    """Why a run did not come to its end, in one sentence."""
    if status is Status.INTERRUPTED:
        return "interrupted by the operator"
    if status is Status.TIMED_OUT:
        return (
            f"not finished after {experiment.profile.deadline_s:g} s; "
            f"last heard of: {monitor.stage}"
        )
    return monitor.lost_contact or monitor.culprit()[1]


def _log_tail(prepared: Prepared, monitor: RunMonitor, status: Status) -> str:
    """The last lines of the log that tells most: the culprit's, or the first driver's."""
    task = str(monitor.drivers[0])
    if status is Status.FAILED and not monitor.lost_contact:
        task = monitor.culprit()[0]
    (log,) = [request.log for request in prepared.requests if request.task == task]
    return last_lines(Path(log), LOG_TAIL_LINES)


def _task_records(prepared: Prepared, monitor: RunMonitor) -> tuple[TaskRecord, ...]:
    return tuple(
        _task_record(request, prepared.addresses[TaskId.parse(request.task)], monitor)
        for request in prepared.requests
    )


def _task_record(request: StartTask, address: str, monitor: RunMonitor) -> TaskRecord:
    exited = monitor.exited.get(request.task)
    killed = request.task in monitor.ended_by_us
    return TaskRecord(
        task=request.task,
        host=socket.gethostname(),
        address=address,
        cores=request.cores,
        pid=monitor.pids.get(request.task, 0),
        exit=None if exited is None or killed else exited.status,
        cpu_s=None if exited is None else exited.cpu_s,
        peak_memory_bytes=None if exited is None else exited.peak_memory_bytes,
    )


def _merged_log(prepared: Prepared) -> str:
    parts = []
    for request in prepared.requests:
        path = Path(request.log)
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        parts.append(f"==> {request.task} <==\n{text.rstrip()}\n")
    return "\n".join(parts)
