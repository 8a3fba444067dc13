"""Is a run's measurement to be trusted?

Pure checks over raw timings and results.  A run that fails one is kept, marked invalid with the
reason, and never enters a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.steps import Phase, StepTable, compute_spans
from ps_allreduce.runner.results import DriverResult

#: Wall and monotonic clock may drift apart by so much during a run; a step of the clock is larger.
CLOCK_TOLERANCE_S = 0.02

#: An emulated accelerator that is early by more than this share of a step, and by more than these
#: seconds of every batch, is not the one that was asked for.
EARLY_SHARE, EARLY_S = 0.1, 0.0015


def find_problems(
    experiment: Experiment, results: Sequence[DriverResult], steps: StepTable
) -> list[str]:
    """One sentence for everything that makes the run invalid; none if it is valid."""
    return [problem for check in CHECKS if (problem := check(experiment, results, steps))]


def _all_workers(experiment: Experiment, results: Sequence[DriverResult], steps: StepTable) -> str:
    missing = sorted(set(range(experiment.num_workers)) - set(steps.worker.tolist()))
    names = ", ".join(f"worker:{index}" for index in missing)
    return f"no step was recorded of {names}" if missing else ""


def _finite_loss(experiment: Experiment, results: Sequence[DriverResult], steps: StepTable) -> str:
    bad = np.flatnonzero(~np.isfinite(steps.loss))
    if not len(bad):
        return ""
    first = bad[np.argmin(steps.step[bad])]
    return f"loss is not finite from step {steps.step[first]} of worker:{steps.worker[first]}"


def _weights_moved(
    experiment: Experiment, results: Sequence[DriverResult], steps: StepTable
) -> str:
    still = [r.task for r in results if r.checksums_before == r.checksums_after]
    return f"the weights did not move ({', '.join(still)})" if still else ""


def _replicas_agree(
    experiment: Experiment, results: Sequence[DriverResult], steps: StepTable
) -> str:
    if not experiment.traits.replicated:
        return ""
    different = [r.task for r in results if r.checksums_after != results[0].checksums_after]
    return f"trainable weights of {', '.join(different)} differ from worker:0" if different else ""


def _no_retrace(experiment: Experiment, results: Sequence[DriverResult], steps: StepTable) -> str:
    retraced = [r.task for r in results if r.traces_after != r.traces_before]
    return f"a step function was traced again ({', '.join(retraced)})" if retraced else ""


def _steps_add_up(experiment: Experiment, results: Sequence[DriverResult], steps: StepTable) -> str:
    asked = results[0].requested_steps
    made = [len(table) for table in _by_worker(experiment, steps)]
    right = sum(made) == asked * experiment.num_workers
    if not experiment.traits.deals_steps or experiment.staleness is not None:
        right = right and set(made) == {asked}
    if not right:
        return f"{asked} steps per worker were asked for but the workers made {made}"
    return ""


def _warm(experiment: Experiment, results: Sequence[DriverResult], steps: StepTable) -> str:
    profile = experiment.profile
    for index, table in enumerate(_by_worker(experiment, steps)):
        warm = table.phase <= Phase.WARMUP
        count = int(warm.sum())
        seconds = float(table.end[warm].max() - table.start.min()) if count else 0.0
        if count < profile.warmup_steps or seconds < profile.warmup_s:
            return (
                f"worker:{index} warmed up for {count} steps and {seconds:.1f} s, not for "
                f"{profile.warmup_steps} steps and {profile.warmup_s:g} s"
            )
    return ""


def _clocks_steady(
    experiment: Experiment, results: Sequence[DriverResult], steps: StepTable
) -> str:
    for result in results:
        wall = result.clock_end.wall - result.clock_start.wall
        monotonic = result.clock_end.monotonic - result.clock_start.monotonic
        if abs(wall - monotonic) > CLOCK_TOLERANCE_S:
            return f"the wall clock of {result.task} was set by {wall - monotonic:+.3f} s"
    return ""


def _computed_for_as_long_as_stated(
    experiment: Experiment, results: Sequence[DriverResult], steps: StepTable
) -> str:
    """An emulated accelerator may be slower than stated, where processors are busy, not faster."""
    emulated = experiment.workload.emulated
    if emulated is None:
        return ""
    batches = experiment.workload.accumulation
    stated_s = batches * (emulated.forward_s + emulated.backward_s)
    for index, table in enumerate(_by_worker(experiment, steps)):
        spans = compute_spans(table.select(table.phase == Phase.MEASURED))
        taken_s = float(np.median(spans)) if len(spans) else stated_s
        if taken_s < stated_s - max(EARLY_SHARE * stated_s, EARLY_S * batches):
            return (
                f"the emulated accelerator of worker:{index} took {taken_s * 1e3:.1f} ms for a "
                f"step of {stated_s * 1e3:.1f} ms"
            )
    return ""


def _placed_as_planned(
    experiment: Experiment, results: Sequence[DriverResult], steps: StepTable
) -> str:
    found = [text for r in results if r.placement for text in r.placement.deviations]
    return found[0] if found else ""


def _by_worker(experiment: Experiment, steps: StepTable) -> list[StepTable]:
    return [steps.of_worker(index) for index in range(experiment.num_workers)]


Check = Callable[[Experiment, Sequence[DriverResult], StepTable], str]

CHECKS: tuple[Check, ...] = (
    _all_workers,
    _finite_loss,
    _weights_moved,
    _replicas_agree,
    _no_retrace,
    _steps_add_up,
    _warm,
    _clocks_steady,
    _computed_for_as_long_as_stated,
    _placed_as_planned,
)
