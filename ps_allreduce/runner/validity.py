"""What driving tasks leave beside their raw timings, and whether it is to be trusted.

Pure checks.  A run that fails one is kept and marked invalid with the reason.  It never enters a
figure; what is only a doubt becomes a warning.  Standard library and core only, so that launchers
can import it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import Measurement, WarmupEnd
from ps_allreduce.record.step_table import Phase, StepTable, compute_spans
from ps_allreduce.record.variables import MessageRecord, PlacementUsed, RowsAsked, SparseGradient

#: How far the wall clock and the monotonic clock may drift apart during a run; a clock that was set
#: is further off.
CLOCK_TOLERANCE_S = 0.02

#: One that takes longer than stated by more than this share is a doubt.
LATE_SHARE = 0.03

#: An emulated accelerator is not the one that was asked for if it is early by more than this share
#: of a step, and by more than these seconds per batch.
EARLY_SHARE, EARLY_S = 0.1, 0.0015


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockPair:
    """The wall clock and the monotonic clock of one host at one moment; seconds."""

    wall: float
    monotonic: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverResult:
    """What a driving task leaves beside its raw timings.

    Attributes:
        connected_at, built_at: seconds since the epoch, as those below.
        first_step_at, warm_at, measured_at: when the phase ended.
        checksums_before, checksums_after: exact sums of the trainable weights.
        traces_before, traces_after: number of traces around the measured steps.
        requested_steps: steps of all phases, per worker.
        warmup_end: why its own workers were warm.
        clock_start, clock_end: for relating and checking clocks.
        num_messages: per step and direction.
        messages: what each of them carries, where steps were traced.
        sparse: gradients that tell of some rows only.
    """

    task: str
    connected_at: float
    built_at: float
    first_step_at: float
    warm_at: float
    measured_at: float
    checksums_before: tuple[int, ...]
    checksums_after: tuple[int, ...]
    traces_before: int
    traces_after: int
    requested_steps: int
    warmup_end: WarmupEnd
    clock_start: ClockPair
    clock_end: ClockPair
    gradient_bytes: int
    num_messages: int
    messages: tuple[MessageRecord, ...] = ()
    placement: PlacementUsed | None = None
    sparse: tuple[SparseGradient, ...] = ()
    rows_asked: RowsAsked | None = None


@dataclass(frozen=True, slots=True)
class _Run:
    """What the checks look at."""

    experiment: Experiment
    results: Sequence[DriverResult]
    steps: StepTable

    def by_worker(self) -> list[StepTable]:
        """The steps of every worker."""
        return [self.steps.of_worker(index) for index in range(self.experiment.num_workers)]


def find_problems(
    experiment: Experiment, results: Sequence[DriverResult], steps: StepTable
) -> list[str]:
    """What makes the run invalid, one sentence each; none if it is valid."""
    run = _Run(experiment, results, steps)
    return [problem for check in CHECKS if (problem := check(run))]


def _all_workers(run: _Run) -> str:
    missing = sorted(set(range(run.experiment.num_workers)) - set(run.steps.worker.tolist()))
    names = ", ".join(f"worker:{index}" for index in missing)
    return f"no step was recorded of {names}" if missing else ""


def _finite_loss(run: _Run) -> str:
    bad = np.flatnonzero(~np.isfinite(run.steps.loss))
    if not len(bad) or run.experiment.learning is not None:  # that it does not learn is a result
        return ""
    first = bad[np.argmin(run.steps.step[bad])]
    return (
        f"loss is not finite from step {run.steps.step[first]} of worker:{run.steps.worker[first]}"
    )


def _weights_moved(run: _Run) -> str:
    still = [r.task for r in run.results if r.checksums_before == r.checksums_after]
    return f"the weights did not move ({', '.join(still)})" if still else ""


def _replicas_agree(run: _Run) -> str:
    return "" if _adds_in_any_order(run) else _replicas_differ(run)


def _replicas_differ(run: _Run) -> str:
    if not run.experiment.strategy.replicated:
        return ""
    different = [r.task for r in run.results if r.checksums_after != run.results[0].checksums_after]
    return f"trainable weights of {', '.join(different)} differ from worker:0" if different else ""


def _adds_in_any_order(run: _Run) -> bool:
    """Plain TensorFlow adds repeated rows of sparse gradients by threads, in no fixed order.

    Sums of floats then differ in their last bits from worker to worker.  In the correctness gate,
    where operations are deterministic, they do not.
    """
    own = run.experiment
    sparse = any(result.sparse for result in run.results)
    return own.strategy.as_shipped and sparse and not own.workload.deterministic


def _replicas_drift(run: _Run) -> str:
    found = _replicas_differ(run) if _adds_in_any_order(run) else ""
    return found and f"{found}: plain TensorFlow adds up repeated rows in no fixed order"


def _no_retrace(run: _Run) -> str:
    retraced = [r.task for r in run.results if r.traces_after != r.traces_before]
    return f"a step function was traced again ({', '.join(retraced)})" if retraced else ""


def _steps_add_up(run: _Run) -> str:
    asked = run.results[0].requested_steps
    made = [len(table) for table in run.by_worker()]
    right = sum(made) == asked * run.experiment.num_workers
    if not run.experiment.strategy.steps_may_differ:
        right = right and set(made) == {asked}
    if not right:
        return f"{asked} steps per worker were asked for but the workers made {made}"
    return ""


def _warm(run: _Run) -> str:
    measurement = run.experiment.measurement
    if not isinstance(measurement, Measurement):
        return ""
    warmup = measurement.warmup
    for index, table in enumerate(run.by_worker()):
        warm = table.phase <= Phase.WARMUP
        count = int(warm.sum())
        seconds = float(table.end[warm].max() - table.start.min()) if count else 0.0
        if count < warmup.least_steps or seconds < warmup.least_s:
            return (
                f"worker:{index} warmed up for {count} steps and {seconds:.1f} s, not for "
                f"{warmup.least_steps} steps and {warmup.least_s:g} s"
            )
    return ""


def _clocks_steady(run: _Run) -> str:
    for result in run.results:
        wall = result.clock_end.wall - result.clock_start.wall
        monotonic = result.clock_end.monotonic - result.clock_start.monotonic
        if abs(wall - monotonic) > CLOCK_TOLERANCE_S:
            return f"the wall clock of {result.task} was set by {wall - monotonic:+.3f} s"
    return ""


def _computed_for_as_long_as_stated(run: _Run) -> str:
    """An emulated accelerator may be slower than stated, if processors are busy, but not faster."""
    for pace in _paces(run):
        early_s = max(EARLY_SHARE * pace.stated_s, EARLY_S * run.experiment.workload.accumulation)
        if pace.taken_s < pace.stated_s - early_s:
            return f"the emulated accelerator of {pace}"
    return ""


def find_doubts(
    experiment: Experiment, results: Sequence[DriverResult], steps: StepTable
) -> list[str]:
    """What does not make the run invalid, but a reader has to know."""
    run = _Run(experiment, results, steps)
    return [doubt for look in DOUBTS if (doubt := look(run))]


def _never_steady(run: _Run) -> str:
    if warmup_end(run.results) is not WarmupEnd.LIMIT:
        return ""
    seconds = max(result.warm_at - result.first_step_at for result in run.results)
    return f"step times were not steady after {seconds:.1f} s of warm-up, which ended all the same"


def warmup_end(results: Sequence[DriverResult]) -> WarmupEnd:
    """Why the warm-up of a run was over: it reached its limit if that of any task did."""
    ends = {result.warmup_end for result in results}
    return WarmupEnd.LIMIT if WarmupEnd.LIMIT in ends else ends.pop()


def _slower_than_stated(run: _Run) -> str:
    paces = _paces(run)
    late = [pace for pace in paces if pace.taken_s > (1 + LATE_SHARE) * pace.stated_s]
    if not late:
        return ""
    latest = max(late, key=lambda pace: pace.taken_s / pace.stated_s)
    return (
        f"{len(late)} of {len(paces)} emulated accelerators were slower than stated: that of "
        f"{latest}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pace:
    """Seconds of a step of an emulated accelerator, as stated for its worker and as it was."""

    worker: int
    stated_s: float
    taken_s: float

    def __str__(self) -> str:
        times = f"{self.taken_s * 1e3:.1f} ms for a step of {self.stated_s * 1e3:.1f} ms"
        return f"worker:{self.worker} took {times}"


def _paces(run: _Run) -> list[_Pace]:
    """Medians over the measured steps of every emulated accelerator; none without one."""
    load = run.experiment.of_each
    if load.emulated is None:
        return []
    measured = run.steps.select(run.steps.phase == Phase.MEASURED)
    step_s = (load.emulated.forward_s + load.emulated.backward_s) * load.accumulation
    paces = []
    for table in measured.by_worker():
        worker = int(table.worker[0])
        stated_s = step_s * load.emulated.scales(worker, table.step)
        median_s = float(np.median(stated_s))
        taken_s = median_s + float(np.median(compute_spans(table) - stated_s))
        paces.append(_Pace(worker=worker, stated_s=median_s, taken_s=taken_s))
    return paces


def _placed_as_planned(run: _Run) -> str:
    deviations = [text for r in run.results if r.placement for text in r.placement.deviations]
    return deviations[0] if deviations else ""


CHECKS: tuple[Callable[[_Run], str], ...] = (
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

DOUBTS: tuple[Callable[[_Run], str], ...] = (_never_steady, _slower_than_stated, _replicas_drift)
