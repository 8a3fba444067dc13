"""What is kept of a run however it ended.

Decides how its end is told, which log tells most, what every task used, and what becomes a warning:
a GPU below the clocks that it could have, a machine that emulates hosts and was itself the limit.
Whether a complete run is valid is decided by `merge`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from launchers.fork_servers.client import last_lines
from launchers.protocol import LaunchedRun
from launchers.run.merge import merge_results, read_result
from launchers.run.state import RunState, log_path, result_path
from ps_allreduce.cluster import TaskId
from ps_allreduce.errors import RecordFormatError
from ps_allreduce.fork_server.messages import StartTask
from ps_allreduce.point.measurement import RecordingComparison
from ps_allreduce.record.gpu_samples import THROTTLING, GpuSample
from ps_allreduce.record.records import (
    BUSY_LIMIT,
    Phases,
    RecordingTimes,
    Sample,
    Status,
    TaskRecord,
)

LOG_TAIL_LINES = 8

#: So many GPUs are named; a large job may have hundreds.
MOST_NAMED = 3


def conclude(state: RunState) -> LaunchedRun:
    """Everything that is known of the run, as far as it got."""
    monitor = state.monitor
    run = LaunchedRun(
        status=state.status,
        hosts=state.hosts,
        links=state.links,
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
        return replace(run, reason=reason, phases=phases, log_tail=_log_tail(state))
    try:
        return _with_results(run, state)
    except (OSError, RecordFormatError) as error:
        return replace(run, status=Status.FAILED, reason=f"results are missing: {error}")


def _with_results(run: LaunchedRun, state: RunState) -> LaunchedRun:
    experiment = state.request.experiment
    results = {task: result_path(state.folder, task) for task in state.drivers}
    if isinstance(experiment.measurement, RecordingComparison):
        first = Path(f"{results[state.drivers[0]]}.json")
        total = Phases(total_s=state.ended_at - state.launched_at)
        return replace(run, recording=read_result(RecordingTimes, first), phases=total)
    run, window = merge_results(
        run, experiment, results, state.launched_at, state.ended_at, state.offset_of
    )
    offsets = {host.facts.name: host.clock_offset_s for host in state.hosts}
    used = frozenset(task.gpus for task in run.tasks if task.gpus)
    warnings = throttling_warnings(run.samples, window, offsets, used)
    busy = machine_busy(run.samples, window) if state.one_machine else None
    if busy is not None and busy >= BUSY_LIMIT:
        limit = (
            f"this machine's processors were {busy:.0%} busy: it may have been the limit, not the "
            "emulated network"
        )
        warnings = (*warnings, limit)
    return replace(run, machine_busy=busy, warnings=warnings)


def throttling_warnings(
    samples: Sequence[Sample],
    window: tuple[float, float],
    offsets: Mapping[str, float],
    used: frozenset[str],
) -> tuple[str, ...]:
    """One sentence for every reason for which GPUs were slowed down inside a window.

    Args:
        window: on the launcher's clock.
        offsets: seconds by which a host's clock is ahead of the launcher's, by its own name.
        used: identities of the GPUs that tasks of the run used; others do not matter.
    """
    seen: dict[tuple[str, str], list[GpuSample]] = {}
    for sample in samples:
        if window[0] <= sample.time - offsets.get(sample.host, 0.0) <= window[1]:
            for gpu in sample.gpus:
                if gpu.identity in used:
                    seen.setdefault((sample.host, gpu.identity), []).append(gpu)
    return tuple(filter(None, (_sentence(reason, seen) for reason in THROTTLING)))


def _sentence(reason: str, seen: Mapping[tuple[str, str], Sequence[GpuSample]]) -> str:
    """Which GPUs were slowed down, those most of the time first; empty if none was."""
    counts = {gpu: sum(reason in look.reasons for look in looks) for gpu, looks in seen.items()}
    shares = {gpu: count / len(seen[gpu]) for gpu, count in counts.items() if count}
    if not shares:
        return ""
    worst = sorted(shares, key=lambda gpu: -shares[gpu])
    named = [f"{gpu[1]} of {gpu[0]} in {shares[gpu]:.0%}" for gpu in worst[:MOST_NAMED]]
    if len(worst) > MOST_NAMED:
        named.append(f"{len(worst) - MOST_NAMED} more")
    return (
        f"{len(worst)} of {len(seen)} GPUs were slowed down by {THROTTLING[reason]} while "
        f"measuring ({', '.join(named)} of the samples)"
    )


def machine_busy(samples: Sequence[Sample], window: tuple[float, float]) -> float | None:
    """Share of all processor time that was used around a window; None with too few samples.

    From the last sample before the window to the first one after it, as far as there are any.
    Every host that is emulated here sees the same processors: those of the first one are taken.
    """
    of_first = [sample for sample in samples if sample.host == samples[0].host]
    before = [sample for sample in of_first if sample.time <= window[0]][-1:]
    after = [sample for sample in of_first if sample.time >= window[1]][:1]
    inside = [sample for sample in of_first if window[0] < sample.time < window[1]]
    around = [*before, *inside, *after]
    if len(around) < 2:
        return None
    used = around[-1].busy_s - around[0].busy_s
    idle = around[-1].idle_s - around[0].idle_s
    return used / (used + idle) if used + idle > 0 else None


def failure_reason(state: RunState) -> str:
    """Why a run did not come to its end, in one sentence."""
    reason = _seen_here(state)
    if not state.post_mortem:
        return reason
    return "; ".join(filter(None, [reason.rstrip("."), state.post_mortem]))


def _seen_here(state: RunState) -> str:
    """The reason without what the scheduler says."""
    monitor = state.monitor
    if state.status is Status.INTERRUPTED:
        return monitor.lost_contact or ("" if state.post_mortem else "interrupted by the operator")
    if state.status is Status.TIMED_OUT:
        return f"not finished after {state.request.deadline_s:g} s; last heard of: {monitor.stage}"
    return monitor.lost_contact or monitor.culprit()[1]


def _log_tail(state: RunState) -> str:
    """The last lines of the log that tells most: the culprit's, or the first driver's."""
    task = state.monitor.drivers[0]
    if state.status is Status.FAILED and not state.monitor.lost_contact:
        task = TaskId.parse(state.monitor.culprit()[0])
    return last_lines(log_path(state.folder, task), LOG_TAIL_LINES)


def _task_record(started: StartTask, state: RunState) -> TaskRecord:
    monitor, task = state.monitor, TaskId.parse(started.task)
    exited = monitor.exited.get(started.task)
    placed = monitor.placed.get(started.task)
    killed = started.task in monitor.ended_by_us
    return TaskRecord(
        task=started.task,
        host=state.placed[task],
        address=state.addresses[task],
        cores=started.cores if placed is None else placed.cores,
        gpus=None if placed is None else placed.gpus,
        pid=monitor.pids.get(started.task, 0),
        exit=None if exited is None or killed else exited.status,
        cpu_s=None if exited is None else exited.cpu_s,
        peak_memory_bytes=None if exited is None else exited.peak_memory_bytes,
    )


def _merged_log(state: RunState) -> str:
    parts = []
    for started in state.tasks:
        path = log_path(state.folder, TaskId.parse(started.task))
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        parts.append(f"==> {started.task} <==\n{text.rstrip()}\n")
    return "\n".join(parts)
