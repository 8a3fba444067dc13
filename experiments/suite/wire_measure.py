"""What one run reached of what its links allow.

Decides which step time, which link rate and which processor time count.  The bytes that a step has
to send are stated by `ps_allreduce.bounds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.suite.wire_grid import Point
from launchers.protocol import LaunchedRun
from ps_allreduce.bounds import Crossing, link_bytes, network_time_s, step_bound_s
from ps_allreduce.errors import SuiteError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.records import Status
from ps_allreduce.record.steps import Window, measurement_window

#: A step cannot be faster than its bound; this much more is noise.
CREDIBLE = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One launch of a point.

    Attributes:
        link_bits_per_s: of the fastest link, right before the run.  Links are alike, and other
            work on this machine makes plain TCP look slower, never faster.
        step_s: seconds in which every worker makes a step on average.
        bound_s: least seconds that the links leave such a step.
        machine_busy: share of this machine's processor time.
        cpu_s_per_gigabyte: processor seconds of all tasks per 1e9 bytes of workers' gradients.
        core_bits_per_s: the link rate that one core per host keeps up with.
        cpu_over: what the two are from, see `CpuTime`.
    """

    link_bits_per_s: float
    step_s: float
    bound_s: float
    machine_busy: float | None
    cpu_s_per_gigabyte: float | None = None
    core_bits_per_s: float | None = None
    cpu_over: str = ""

    @property
    def fraction(self) -> float:
        """1 is as fast as the links allow."""
        return self.bound_s / self.step_s


class NothingMeasured(SuiteError):
    """A run says nothing about its links."""


class LinksMismeasured(NothingMeasured):
    """Something else disturbed the measurement of the links before a run."""


def measure(point: Point, run: LaunchedRun) -> Measured:
    """Hold a run against its bound.

    Raises:
        NothingMeasured: it did not succeed, or no link was measured.
        LinksMismeasured: it was faster than its links were measured to be.
    """
    if run.status is not Status.OK or run.gradient_bytes is None:
        raise NothingMeasured(f"{run.status}: {run.reason}")
    if not run.links:
        raise NothingMeasured("no link was measured")
    step_s = step_seconds(point.experiment, run)
    rate = max(link.bits_per_s for link in run.links)
    crossings = _crossings(point, run, run.gradient_bytes)
    measured = Measured(
        link_bits_per_s=rate,
        step_s=step_s,
        bound_s=_bound_s(point, network_time_s(crossings, rate)),
        machine_busy=run.machine_busy,
        **_costs(point, run, run.gradient_bytes, crossings, step_s),
    )
    if measured.fraction > CREDIBLE:
        raise LinksMismeasured(
            f"{measured.fraction:.3f} of the bound cannot be: the rate of the links was measured "
            f"too low ({rate / 1e6:.0f} Mbit/s); leave the machine to the bench"
        )
    return measured


def _crossings(point: Point, run: LaunchedRun, gradient_bytes: int) -> dict[str, Crossing]:
    """From where tasks and parameters really were."""
    host_of = {task.task: task.host for task in run.tasks}
    servers = run.placement.bytes_per_server if run.placement else ()
    return link_bytes(point.experiment, host_of, servers, gradient_bytes)


def _bound_s(point: Point, network_s: float) -> float:
    """A millisecond of no computation is nothing."""
    emulated = point.experiment.workload.emulated
    if emulated is None or not point.compute_s:
        return network_s
    return step_bound_s(emulated.forward_s, emulated.backward_s, network_s)


def _costs(
    point: Point,
    run: LaunchedRun,
    gradient_bytes: int,
    crossings: Mapping[str, Crossing],
    step_s: float,
) -> dict[str, Any]:
    """Processor time, as keyword arguments of `Measured`."""
    workers = point.experiment.num_workers
    cpu = cpu_per_step(run, workers, step_s)
    if cpu is None:
        return {}
    return {
        "cpu_s_per_gigabyte": 1e9 * sum(cpu.by_host.values()) / (workers * gradient_bytes),
        "core_bits_per_s": core_bits_per_s(crossings, cpu),
        "cpu_over": cpu.over,
    }


def step_seconds(experiment: Experiment, run: LaunchedRun) -> float:
    """Seconds in which every worker makes a step on average.

    Raises:
        NothingMeasured: no metrics.
    """
    if run.metrics is None:
        raise NothingMeasured("the run has no metrics")
    return experiment.global_batch / run.metrics.images_per_sec


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """What a step of every worker costs.

    Attributes:
        by_host: processor seconds of the tasks of each host.
        over: `window` or, where samples are too few, the whole `run`.
    """

    by_host: dict[str, float]
    over: str


def cpu_per_step(run: LaunchedRun, num_workers: int, step_s: float) -> CpuTime | None:
    """From samples within the measured window where they suffice; None where nothing is known.

    Args:
        step_s: seconds in which every worker makes a step.
    """
    if run.steps is None:
        return None
    window = measurement_window(run.steps)
    found = {task.task: _cpu_in_window(run, task.task, window) for task in run.tasks}
    over, steps = "window", window.length_s / step_s
    if None in found.values():
        found = {task.task: task.cpu_s for task in run.tasks}
        over, steps = "run", len(run.steps) / num_workers
    by_host: dict[str, float] = {}
    for task in run.tasks:
        used = found[task.task]
        if used is None:
            return None
        by_host[task.host] = by_host.get(task.host, 0.0) + used / steps
    return CpuTime(by_host=by_host, over=over)


def _cpu_in_window(run: LaunchedRun, task: str, window: Window) -> float | None:
    """From samples between and around which the rate is steady; None if they miss half of it."""
    mine = [(s.time, s.cpu_s[task]) for s in run.samples if task in s.cpu_s]
    times, seconds = zip(*mine, strict=True) if mine else ((0.0,), (0.0,))
    known = np.clip([window.start, window.end], times[0], times[-1])
    length_s = float(known[1] - known[0])
    if length_s < window.length_s / 2:
        return None
    return float(np.diff(np.interp(known, times, seconds))[0]) * window.length_s / length_s


def core_bits_per_s(crossings: Mapping[str, Crossing], cpu: CpuTime) -> float | None:
    """The rate of links, each direction, at which one core per host would be busy all the time.

    Of the host that would be so first; k cores that share the work keep up with k times as much.
    None where nothing crosses a link.
    """
    rates = [
        8 * max(crossings[host]) / seconds
        for host, seconds in cpu.by_host.items()
        if seconds > 0 and any(crossings[host])
    ]
    return min(rates, default=None)
