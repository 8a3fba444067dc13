"""The timed loop: first step, warm-up, measured steps, traced steps, evaluation; or learning.

Decides how many steps are made and to which phase each belongs, and says before each stretch how
long the rest will take at least.  It knows no TensorFlow: a driver makes the steps, a clock is
handed in.  All driving tasks make the same number of steps because they agree on every number.

Decides also whether step times are steady: pure, arrays in, answers out.  How long a warm-up waits
for the answer is decided in `point.measurement`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np

from ps_allreduce.point.measurement import (
    SETTLING_STEPS,
    Evaluation,
    Learning,
    Measurement,
    WarmupEnd,
)
from ps_allreduce.record.step_table import Floats, Integers, Phase

#: Steps are taken together in about so many batches; of fewer steps, each is one.
BATCHES = 30

#: The oldest of the batches do not count: where a warm-up is over, it ended before the rest.
OLDEST = 0.25

#: A trend is shown if its statistic is so many standard deviations from none: two-sided, 5 %.
SHOWN = 1.96

#: A smaller change between the halves is none.
TOLERANCE = 0.01

RowsT = TypeVar("RowsT")
RowsT_co = TypeVar("RowsT_co", covariant=True)

#: The first steps are slow: a duration takes more steps than they suggest.
MARGIN = 1.1

#: Of a step, the share of a forward pass at least.
FORWARD = 0.2

#: Steps that the slowest worker makes once all have settled, where steps are dealt; the window
#: begins and ends within one of its steps.
LEAST_OF_SLOWEST = 8

#: Of the steps before the second evaluation, one in so many is warm-up for the rate.
LEADING = 4

#: Workers that share cores and never wait for each other begin a stretch so far apart: 0.8 s were
#: seen with four on two cores.  A window in which all of them make steps is to be longer.
APART_S = 3.0


class Driver(Protocol[RowsT_co]):
    """What the loop needs of a backend."""

    def run(self, num_steps: int, *, events: bool = False) -> RowsT_co:
        """Make steps on all workers this task drives."""

    def evaluate(self, evaluation: Evaluation) -> RowsT_co:
        """Evaluate what was trained, on the workers this task drives."""

    def agree(self, value: float) -> float:
        """The largest of all driving tasks' values."""


@dataclass(frozen=True, slots=True)
class Stretch(Generic[RowsT]):
    """Steps that were made in one go.

    Attributes:
        num_steps: of every worker; if steps are dealt, the mean over all workers.
        leading: how many steps of each worker, the first ones, still count as warm-up.
    """

    phase: Phase
    num_steps: int
    rows: RowsT
    leading: int = 0


@dataclass(frozen=True, slots=True)
class TimedSteps(Generic[RowsT]):
    """Everything that was run, and why the warm-up was over.

    Attributes:
        evaluated: of each evaluation a row for each batch.
    """

    stretches: list[Stretch[RowsT]]
    warmup_end: WarmupEnd
    evaluated: list[RowsT] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings(Generic[RowsT]):
    """What the loop is handed.

    Attributes:
        clock: seconds, monotonic.
        progress: told of every phase as it begins.
        expect: told how many seconds are needed from now on, at least.
        ends: of rows, the worker of each step and when it ended, in seconds on the worker's clock.
        scores: of the rows of an evaluation, mean loss and accuracy; below all others of none.
        num_workers: of all driving tasks.
        examples_per_round: of a step of all workers.
        meet: workers wait for each other, or one task drives all of them.
    """

    clock: Callable[[], float]
    progress: Callable[[Phase], None]
    expect: Callable[[float], None]
    ends: Callable[[RowsT], tuple[Integers, Floats]]
    scores: Callable[[RowsT], tuple[float, float]]
    num_workers: int
    examples_per_round: int
    meet: bool = True


def timed_loop(
    driver: Driver[RowsT], measurement: Measurement | Learning, around: Surroundings[RowsT]
) -> TimedSteps[RowsT]:
    """Run one measurement: the first step of every worker, then what its kind asks for."""
    around.progress(Phase.FIRST)
    stretches = [Stretch(Phase.FIRST, 1, driver.run(1))]
    around.progress(Phase.WARMUP)
    if isinstance(measurement, Learning):
        return _learn(driver, measurement, around, stretches)
    return _measure_window(driver, measurement, around, stretches)


def _measure_window(
    driver: Driver[RowsT],
    measurement: Measurement,
    around: Surroundings[RowsT],
    stretches: list[Stretch[RowsT]],
) -> TimedSteps[RowsT]:
    made = _Progress()
    step_s, warmup_end = _warm_up(driver, measurement, around, stretches, made)
    around.expect(measurement.least_measured_s(step_s))
    apart_s = 0.0 if around.meet else APART_S
    wanted = max(
        measurement.measured_steps,
        math.ceil((measurement.measured_s + apart_s) * MARGIN / step_s),
        made.rounds_of_slowest(SETTLING_STEPS + LEAST_OF_SLOWEST + 1) - SETTLING_STEPS,
    )
    total = SETTLING_STEPS + int(driver.agree(wanted))
    # What a phase takes is held against what its steps note: nothing else belongs to it.
    around.progress(Phase.MEASURED)
    stretches.append(Stretch(Phase.MEASURED, total, driver.run(total), leading=SETTLING_STEPS))
    if measurement.event_steps:
        around.progress(Phase.EVENTS)
        count = measurement.event_steps
        stretches.append(Stretch(Phase.EVENTS, count, driver.run(count, events=True)))
    evaluated = []
    if measurement.evaluation is not None:
        around.progress(Phase.EVALUATION)
        around.expect(max(measurement.evaluation.shares(around.num_workers)) * FORWARD * step_s)
        evaluated.append(driver.evaluate(measurement.evaluation))
    return TimedSteps(stretches, warmup_end, evaluated)


def _learn(
    driver: Driver[RowsT],
    learning: Learning,
    around: Surroundings[RowsT],
    stretches: list[Stretch[RowsT]],
) -> TimedSteps[RowsT]:
    """Train until the target or a bound is reached, and evaluate meanwhile.

    The first step of every worker comes before the first evaluation, and before the clock of
    training begins: functions are traced, and connections are made.
    """
    around.progress(Phase.MEASURED)
    evaluated = [driver.evaluate(learning.evaluation)]
    count, leading = learning.evaluation_steps, max(1, learning.evaluation_steps // LEADING)
    seconds, is_over = 0.0, False
    while not is_over:
        begin = around.clock()
        stretches.append(Stretch(Phase.MEASURED, count, driver.run(count), leading))
        seconds += around.clock() - begin
        evaluated.append(driver.evaluate(learning.evaluation))
        loss, accuracy = map(driver.agree, around.scores(evaluated[-1]))
        examples = sum(stretch.num_steps for stretch in stretches) * around.examples_per_round
        is_over = learning.is_over(examples, driver.agree(seconds), loss, accuracy)
        leading = 0
        around.expect(seconds / (len(stretches) - 1))
    return TimedSteps(stretches, WarmupEnd.FIXED, evaluated)


@dataclass(slots=True)
class _Progress:
    """How far the workers of this task have come in their warm-up.

    Attributes:
        seconds: taken by steps and the fetching of their rows.
        times: of the rounds of every stretch.
        ends: of all steps of each worker, seconds on its clock.
    """

    seconds: float = 0.0
    times: list[Floats] = field(default_factory=list)
    ends: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    num_workers: int = 1

    def add(self, workers: Integers, ends: Floats, num_steps: int, seconds: float) -> None:
        """Note a stretch."""
        self.num_workers = len(workers) // num_steps
        self.seconds += seconds
        self.times.append(round_times(workers, ends, self.num_workers))
        for worker, end in zip(workers.tolist(), ends.tolist(), strict=True):
            self.ends[worker].append(end)

    @property
    def fewest(self) -> int:
        """Steps of the worker that has made fewest: where steps are dealt, it may be none."""
        return min(map(len, self.ends.values())) if len(self.ends) == self.num_workers else 0

    @property
    def rounds(self) -> int:
        """Steps over workers."""
        return sum(map(len, self.ends.values())) // self.num_workers

    def rounds_for(self, steps: int) -> int:
        """Rounds in which that worker makes so many steps, or as many as were made so far."""
        needed = math.ceil(steps * self.rounds / max(self.fewest, 1))
        return max(steps, min(self.rounds, needed))

    def rounds_of_slowest(self, steps: int) -> int:
        """Rounds in which the slowest worker makes so many steps; 0 where none is slower.

        Counts of the warm-up say too little: in each of its stretches the slowest makes a step, and
        the others wait for it.
        """
        if self.fewest in (self.rounds, 1):
            return 0
        step_s = [float(np.median(np.diff(sorted(ends)))) for ends in self.ends.values()]
        rounds_per_s = sum(1 / max(each, 1e-9) for each in step_s) / self.num_workers
        return math.ceil(steps * max(step_s) * rounds_per_s)

    def is_steady(self) -> bool:
        """Whether steps have come at one speed."""
        return is_steady(np.concatenate(self.times))


def _warm_up(
    driver: Driver[RowsT],
    measurement: Measurement,
    around: Surroundings[RowsT],
    stretches: list[Stretch[RowsT]],
    made: _Progress,
) -> tuple[float, WarmupEnd]:
    """Warm up until no worker needs more; return seconds per step of the last stretch, and why.

    A single step comes first, for a first look.  Every stretch ends with an agreement, which
    empties pipelines; between two, nothing waits.
    """
    warmup, chunk = measurement.warmup, 1
    while True:
        begin = around.clock()
        stretch = Stretch(Phase.WARMUP, chunk, driver.run(chunk))
        taken = max(around.clock() - begin, 1e-9)
        stretches.append(stretch)
        made.add(*around.ends(stretch.rows), chunk, taken)
        step_s = taken / chunk
        end = warmup.end(made.fewest, made.seconds, made.is_steady)
        more = 0 if end else warmup.further_steps(made.fewest, made.seconds, step_s)
        chunk = int(driver.agree(made.rounds_for(more)))
        if end and not chunk:
            return step_s, end
        least_s = max(chunk * step_s, warmup.shortest_s(step_s) - made.seconds)
        around.expect(least_s + measurement.least_measured_s(step_s))


def round_times(workers: Integers, ends: Floats, num_workers: int) -> Floats:
    """Seconds of each round: as many steps, of whatever worker, as there are workers.

    So dealt steps, of which a fast worker makes more, have one speed; a worker that drives itself
    has its own step times.  Clocks of workers may differ: every worker's counts from the end of its
    first step.  The time before that holds what comes before the stretch, and is left out.

    Args:
        workers: who made each step of one stretch [n].
        ends: when it ended, seconds, each on its worker's clock [n].
    """
    since_first = ends.copy()
    for worker in np.unique(workers):
        since_first[workers == worker] -= ends[workers == worker].min()
    return np.asarray(np.diff(np.sort(since_first)[num_workers - 1 :: num_workers]))


def is_steady(times: Floats) -> bool:
    """Whether the newer three quarters of step times show no trend, in the order they were made.

    The test is that of Mann and Kendall (H. B. Mann, "Nonparametric Tests against Trend",
    Econometrica 13, 1945), on medians of batches.  It looks at ranks, so a few very long steps do
    not matter; batches take away most of what neighbouring steps have in common.  Why it is not
    MSER-5 (K. P. White, "An Effective Truncation Heuristic for Bias Reduction in Simulation
    Output", Simulation 69, 1997) says `docs/decisions/0014-when-a-warm-up-is-over.md`.
    """
    size = max(1, len(times) // BATCHES)
    number = len(times) // size
    medians = np.median(times[len(times) - number * size :].reshape(number, size), axis=1)
    newer = medians[int(OLDEST * number) :]
    half = len(newer) // 2
    if half < 2:
        return False
    change = np.median(newer[half:]) / np.median(newer[:half]) - 1
    return bool(abs(change) <= TOLERANCE or _trend(newer) < SHOWN)


def _trend(values: Floats) -> float:
    """How far Kendall's S is from 0, in its standard deviations without a trend."""
    number = len(values)
    later, earlier = np.tril_indices(number, -1)
    statistic = np.sign(values[later] - values[earlier]).sum()
    deviation = np.sqrt(number * (number - 1) * (2 * number + 5) / 18)
    return float(max(abs(statistic) - 1, 0) / deviation)
