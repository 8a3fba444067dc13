"""What communication costs the processors of hosts, what recording costs, and whether clocks agree.

Decides which processor time counts for a step: that of the measured window where samples cover it,
else that of the whole run; and how busy the processors of a run were.  The bytes of a step are
worked out in `fastest_step`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.point.measurement import SETTLING_STEPS
from ps_allreduce.record.records import RecordingTimes, RunRecord
from ps_allreduce.record.step_table import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorTime:
    """What a step of every worker costs.

    Attributes:
        by_host: processor seconds of the tasks of each host.
        over: `window` or, where samples are too few, the whole `run`.
    """

    by_host: Mapping[str, float]
    over: str


def processor_time(
    record: RunRecord, window: Window, all_steps: int, step_s: float
) -> ProcessorTime | None:
    """From samples within the measured window where they suffice; None where nothing is known.

    Args:
        all_steps: of all workers, warm-ups included.
        step_s: seconds in which every worker makes a step.
    """
    used = {task.task: _used_in_window(record, task.task, window) for task in record.tasks}
    over, num_steps = "window", window.length_s / step_s
    if None in used.values():
        used = {task.task: task.cpu_s for task in record.tasks}
        over, num_steps = "run", all_steps / record.experiment.num_workers
    by_host: dict[str, float] = {}
    for task in record.tasks:
        seconds = used[task.task]
        if seconds is None:
            return None
        by_host[task.host] = by_host.get(task.host, 0.0) + seconds / num_steps
    return ProcessorTime(by_host=by_host, over=over)


def task_seconds(record: RunRecord, window: Window, step_s: float) -> dict[str, float]:
    """Processor seconds of tasks in a step of every worker, of those that samples tell of.

    Args:
        step_s: seconds in which every worker makes a step.
    """
    used = {task.task: _used_in_window(record, task.task, window) for task in record.tasks}
    return {
        task: seconds * step_s / window.length_s
        for task, seconds in used.items()
        if seconds is not None
    }


def mean_seconds(seconds: Mapping[str, float], kind: TaskType) -> float | None:
    """Of the tasks of a kind, of what is known of tasks; None without any."""
    known = [each for task, each in seconds.items() if TaskId.parse(task).type is kind]
    return statistics.fmean(known) if known else None


def busy_share(record: RunRecord, window: Window | None) -> float | None:
    """How busy the processors of a run were in its window, 0 to 1; None where nothing tells.

    Of emulated hosts, the machine below them, whoever used it.  Else the core whose tasks used it
    most; a task uses all its cores alike.
    """
    if window is None or record.experiment.network is not None:
        return record.machine_busy
    used_s: dict[tuple[str, int], float] = {}
    for task in record.tasks:
        seconds = _used_in_window(record, task.task, window)
        if seconds is None:
            return None
        for core in task.cores:
            so_far = used_s.get((task.host, core), 0.0)
            used_s[task.host, core] = so_far + seconds / len(task.cores)
    return min(1.0, max(used_s.values()) / window.length_s) if used_s else None


def _used_in_window(record: RunRecord, task: str, window: Window) -> float | None:
    """From samples between and around which the rate is steady; None if they miss half of it."""
    seen = [(sample.time, sample.cpu_s[task]) for sample in record.samples if task in sample.cpu_s]
    times, seconds = zip(*seen, strict=True) if seen else ((0.0,), (0.0,))
    known = np.clip([window.start, window.end], times[0], times[-1])
    length_s = float(known[1] - known[0])
    if length_s < window.length_s / 2:
        return None
    return float(np.diff(np.interp(known, times, seconds))[0]) * window.length_s / length_s


def seconds_per_gigabyte(cpu: ProcessorTime, num_workers: int, gradient_bytes: int) -> float:
    """Processor seconds of all tasks for 1e9 bytes of workers' gradients."""
    return 1e9 * sum(cpu.by_host.values()) / (num_workers * gradient_bytes)


def core_bits_per_s(traffic: Mapping[str, tuple[float, float]], cpu: ProcessorTime) -> float | None:
    """The rate of links, each direction, at which one core per host would be busy all the time.

    Of the host that would be so first; k cores that share the work keep up with k times as much.
    None where nothing crosses a link.

    Args:
        traffic: bytes that each host sends and receives in a step.
    """
    rates = [
        8 * max(traffic[host]) / seconds
        for host, seconds in cpu.by_host.items()
        if seconds > 0 and any(traffic.get(host, ()))
    ]
    return min(rates, default=None)


def recording_ratio(stretches: RecordingTimes) -> float:
    """Time of a step with recording over that without, the median of all pairs; 1 is no cost."""
    pairs = zip(stretches.recorded_s, stretches.bare_s, strict=True)
    return statistics.median(recorded / bare for recorded, bare in pairs)


def clock_ratio(record: RunRecord) -> float | None:
    """Time of all measured steps by the driving task, over that by their own timestamps.

    The task times them from asking for the first to having the rows of all.  None where steps were
    not measured.
    """
    metrics, outside_s = record.metrics, record.phases.measured_s
    if metrics is None or outside_s is None:
        return None
    steps = metrics.measured_steps + SETTLING_STEPS
    inside_s = steps * record.experiment.global_batch / metrics.examples_per_sec
    return outside_s / inside_s
