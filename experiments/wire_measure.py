"""What one run reached of what its links allow.

Decides which step time, which link rate and which processor time count.  The bytes that a step has
to send are stated by `ps_allreduce.bounds`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.wire_grid import Point
from launchers.protocol import LaunchedRun
from ps_allreduce.bounds import link_bytes, network_time_s, step_bound_s
from ps_allreduce.errors import SuiteError
from ps_allreduce.experiment import Experiment
from ps_allreduce.records import Status
from ps_allreduce.steps import Window, measurement_window

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
        cpu_over: `window` or, where samples are too few, the whole `run`.
    """

    link_bits_per_s: float
    step_s: float
    bound_s: float
    machine_busy: float | None
    cpu_s_per_gigabyte: float | None
    cpu_over: str

    @property
    def fraction(self) -> float:
        """1 is as fast as the links allow."""
        return self.bound_s / self.step_s


class NothingMeasured(SuiteError):
    """A run says nothing about its links."""


def measure(point: Point, run: LaunchedRun) -> Measured:
    """Hold a run against its bound.

    Raises:
        NothingMeasured: it did not succeed, or no link was measured, or not rightly.
    """
    if run.status is not Status.OK or run.gradient_bytes is None:
        raise NothingMeasured(f"{run.status}: {run.reason}")
    if not run.links:
        raise NothingMeasured("no link was measured")
    step_s = step_seconds(point.experiment, run)
    steps_per_s = point.experiment.num_workers / step_s
    cpu_s_per_gigabyte, cpu_over = cpu_per_gigabyte(run, run.gradient_bytes, steps_per_s)
    rate = max(link.bits_per_s for link in run.links)
    measured = Measured(
        link_bits_per_s=rate,
        step_s=step_s,
        bound_s=_bound_s(point, run, run.gradient_bytes, rate),
        machine_busy=run.machine_busy,
        cpu_s_per_gigabyte=cpu_s_per_gigabyte,
        cpu_over=cpu_over,
    )
    if measured.fraction > CREDIBLE:
        raise NothingMeasured(
            f"{measured.fraction:.3f} of the bound cannot be: the rate of the links was measured "
            f"too low ({rate / 1e6:.0f} Mbit/s); leave the machine to the bench"
        )
    return measured


def _bound_s(point: Point, run: LaunchedRun, gradient_bytes: int, rate: float) -> float:
    """From where tasks and parameters really were; a millisecond of no computation is nothing."""
    host_of = {task.task: task.host for task in run.tasks}
    servers = run.placement.bytes_per_server if run.placement else ()
    crossings = link_bytes(point.experiment, host_of, servers, gradient_bytes)
    network_s = network_time_s(crossings, rate)
    emulated = point.experiment.workload.emulated
    if emulated is None or not point.compute_s:
        return network_s
    return step_bound_s(emulated.forward_s, emulated.backward_s, network_s)


def step_seconds(experiment: Experiment, run: LaunchedRun) -> float:
    """Seconds in which every worker makes a step on average.

    Raises:
        NothingMeasured: no metrics.
    """
    if run.metrics is None:
        raise NothingMeasured("the run has no metrics")
    return experiment.global_batch / run.metrics.images_per_sec


def cpu_per_gigabyte(
    run: LaunchedRun, gradient_bytes: int, steps_per_s: float
) -> tuple[float | None, str]:
    """Processor seconds of all tasks per 1e9 bytes of gradients, and over what they are known.

    Args:
        steps_per_s: of all workers together.
    """
    if run.steps is None:
        return None, ""
    used = _cpu_in_window(run, measurement_window(run.steps))
    if used is not None:
        length_s = measurement_window(run.steps).length_s
        return 1e9 * used / (gradient_bytes * steps_per_s * length_s), "window"
    known = [task.cpu_s for task in run.tasks if task.cpu_s is not None]
    if not known or len(known) < len(run.tasks):
        return None, ""
    return 1e9 * sum(known) / (gradient_bytes * len(run.steps)), "run"


def _cpu_in_window(run: LaunchedRun, window: Window) -> float | None:
    """From samples between and around which the rate is steady; None if they miss half of it."""
    used = 0.0
    for task in run.tasks:
        mine = [(s.time, s.cpu_s[task.task]) for s in run.samples if task.task in s.cpu_s]
        times, seconds = zip(*mine, strict=True) if mine else ((0.0,), (0.0,))
        known = np.clip([window.start, window.end], times[0], times[-1])
        length_s = float(known[1] - known[0])
        if length_s < window.length_s / 2:
            return None
        used += float(np.diff(np.interp(known, times, seconds))[0]) * window.length_s / length_s
    return used
