"""A run while it goes on, and what is kept of it however it ended.

Decides who is to blame, which log tells most, what every task used, and whether a machine that
emulates hosts was itself the limit.  Whether a complete run is valid is decided by `outcome`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from launchers.fork_servers.client import last_lines
from launchers.protocol import LaunchedRun
from launchers.run.gpu_warnings import throttling_warnings
from launchers.run.monitor import RunMonitor
from launchers.run.outcome import Outcome, read_outcome
from ps_allreduce.cluster import TaskId
from ps_allreduce.errors import RecordFormatError
from ps_allreduce.fork_server.messages import StartTask
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import CorePlan, Placed, drivers_of
from ps_allreduce.record.hosts import HostRecord
from ps_allreduce.record.records import BUSY_LIMIT, LinkRecord, Phases, Sample, Status, TaskRecord

LOG_TAIL_LINES = 8

#: Slurm's word for a job that the kernel has ended for want of memory.
OUT_OF_MEMORY = "OUT_OF_MEMORY"


@dataclass(slots=True, kw_only=True)
class RunState:
    """What is known of a run so far.

    Attributes:
        folder: takes the files that are fetched from the hosts.
        remote: the run's folder on every host.
        addresses: of every task in the cluster specification.
        one_machine: several hosts share the cores of one machine.
        post_mortem: what the scheduler says about the end.
    """

    placed: Placed
    folder: Path
    monitor: RunMonitor
    one_machine: bool
    job_id: str | None
    launched_at: float
    ended_at: float = 0.0
    status: Status = Status.INTERRUPTED
    post_mortem: str = ""
    hosts: tuple[HostRecord, ...] = ()
    links: tuple[LinkRecord, ...] = ()
    cores: CorePlan = field(default_factory=lambda: CorePlan({}, 0, False))
    remote: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[TaskId, str] = field(default_factory=dict)
    requests: Sequence[StartTask] = ()

    def host_of(self, request: StartTask) -> str:
        """The host that a task belongs on."""
        return self.placed[TaskId.parse(request.task)]

    def ask_for_weights(self, driver: TaskId) -> None:
        """Have a driving task write the final weights beside its result."""
        self.requests = [
            replace(request, weights=f"{request.result}.weights.npz")
            if request.task == str(driver)
            else request
            for request in self.requests
        ]

    def offset_of(self, task: TaskId) -> float:
        """Seconds by which the clock of a task's host is ahead of the launcher's."""
        found = [host for host in self.hosts if host.name == self.placed[task]]
        return found[0].clock_offset_s if found else 0.0


def result_path(folder: Path | str, task: TaskId) -> Path:
    """Where a driving task leaves its result, without the ending."""
    return Path(folder) / f"result-{task.type}-{task.index}"


def log_path(folder: Path | str, task: TaskId) -> Path:
    """Where a task's output goes."""
    return Path(folder) / f"{task.type}-{task.index}.log"


def conclude(experiment: Experiment, state: RunState) -> LaunchedRun:
    """Everything that is known of the run, as far as it got."""
    monitor = state.monitor
    run = LaunchedRun(
        status=state.status,
        hosts=state.hosts,
        links=state.links,
        job_id=state.job_id,
        oversubscribed=state.cores.oversubscribed,
        total_cores=state.cores.total,
        tasks=tuple(_task_record(request, state) for request in state.requests),
        samples=tuple(monitor.samples),
        log=_merged_log(state),
    )
    if state.status is not Status.OK:
        phases = Phases(
            bring_up_s=_since(state.launched_at, monitor.moment("connected")),
            total_s=state.ended_at - state.launched_at,
        )
        return replace(
            run,
            reason=failure_reason(experiment, state),
            phases=phases,
            log_tail=_log_tail(state),
        )
    results = {task: result_path(state.folder, task) for task in drivers_of(experiment)}
    try:
        outcome = read_outcome(
            experiment, results, state.launched_at, state.ended_at, state.offset_of
        )
    except (OSError, RecordFormatError) as error:
        return replace(run, status=Status.FAILED, reason=f"results are missing: {error}")
    return _with_outcome(run, state, outcome)


def _with_outcome(run: LaunchedRun, state: RunState, outcome: Outcome) -> LaunchedRun:
    names = {f.name for f in fields(outcome)} & {f.name for f in fields(run)}
    complete = replace(run, **{name: getattr(outcome, name) for name in names})
    complete = replace(complete, warnings=(*complete.warnings, *_of_gpus(run, state, outcome)))
    busy = machine_busy(run.samples, outcome.window) if state.one_machine else None
    if busy is None or busy < BUSY_LIMIT:
        return replace(complete, machine_busy=busy)
    warning = (
        f"this machine's processors were {busy:.0%} busy: it may have been the limit, not the "
        "emulated network"
    )
    return replace(complete, machine_busy=busy, warnings=(*complete.warnings, warning))


def _of_gpus(run: LaunchedRun, state: RunState, outcome: Outcome) -> tuple[str, ...]:
    offsets = {host.facts.name: host.clock_offset_s for host in state.hosts}
    used = frozenset(task.gpus for task in run.tasks if task.gpus)
    return throttling_warnings(run.samples, outcome.window, offsets, used)


def machine_busy(samples: Sequence[Sample], window: tuple[float, float]) -> float | None:
    """Share of all processor time that was used around a window; None with too few samples.

    From the last sample before the window to the first one after it, as far as there are any.
    Every host that is emulated here sees the same processors: those of the first one are taken.
    """
    mine = [sample for sample in samples if sample.host == samples[0].host]
    before = [sample for sample in mine if sample.time <= window[0]][-1:]
    after = [sample for sample in mine if sample.time >= window[1]][:1]
    inside = [sample for sample in mine if window[0] < sample.time < window[1]]
    around = [*before, *inside, *after]
    if len(around) < 2:
        return None
    used = around[-1].busy_s - around[0].busy_s
    idle = around[-1].idle_s - around[0].idle_s
    return used / (used + idle) if used + idle > 0 else None


def _since(begin: float, moment: float | None) -> float | None:
    return None if moment is None else moment - begin


def failure_reason(experiment: Experiment, state: RunState) -> str:
    """Why a run did not come to its end, in one sentence."""
    own = _own_reason(experiment, state)
    if not state.post_mortem:
        return own
    parts = [own.rstrip("."), state.post_mortem]
    if OUT_OF_MEMORY in state.post_mortem:
        parts.append("use a smaller --batch-per-worker, or ask for more memory")
    return "; ".join(filter(None, parts))


def _own_reason(experiment: Experiment, state: RunState) -> str:
    monitor = state.monitor
    if state.status is Status.INTERRUPTED:
        return monitor.lost_contact or ("" if state.post_mortem else "interrupted by the operator")
    if state.status is Status.TIMED_OUT:
        return (
            f"not finished after {experiment.profile.deadline_s:g} s; "
            f"last heard of: {monitor.stage}"
        )
    return monitor.lost_contact or _blame(monitor)


def _blame(monitor: RunMonitor) -> str:
    """Why the culprit ended: in its own words, or in those that its fork server found for it."""
    name, reason = monitor.culprit()
    told = [event.text for event in monitor.events if (event.name, event.event) == (name, "failed")]
    return f"{name}: {told[-1]}" if told else reason


def _log_tail(state: RunState) -> str:
    """The last lines of the log that tells most: the culprit's, or the first driver's."""
    task = state.monitor.drivers[0]
    if state.status is Status.FAILED and not state.monitor.lost_contact:
        task = TaskId.parse(state.monitor.culprit()[0])
    return last_lines(log_path(state.folder, task), LOG_TAIL_LINES)


def _task_record(request: StartTask, state: RunState) -> TaskRecord:
    monitor, task = state.monitor, TaskId.parse(request.task)
    exited = monitor.exited.get(request.task)
    placed = monitor.placed.get(request.task)
    killed = request.task in monitor.ended_by_us
    return TaskRecord(
        task=request.task,
        host=state.placed[task],
        address=state.addresses[task],
        cores=request.cores if placed is None else placed.cores,
        gpus=None if placed is None else placed.gpus,
        pid=monitor.pids.get(request.task, 0),
        exit=None if exited is None or killed else exited.status,
        cpu_s=None if exited is None else exited.cpu_s,
        peak_memory_bytes=None if exited is None else exited.peak_memory_bytes,
    )


def _merged_log(state: RunState) -> str:
    parts = []
    for request in state.requests:
        path = log_path(state.folder, TaskId.parse(request.task))
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        parts.append(f"==> {request.task} <==\n{text.rstrip()}\n")
    return "\n".join(parts)
