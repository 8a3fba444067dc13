"""The timed loop against a clock that a test moves; noise ends a warm-up early, trends do not."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce.point.measurement import (
    SETTLING_STEPS,
    Evaluation,
    EvaluationMode,
    FixedWarmup,
    Learning,
    Measurement,
    SteadyWarmup,
    WarmupEnd,
)
from ps_allreduce.record.step_table import Floats, Integers, Phase
from ps_allreduce.runner.loop import (
    APART_S,
    FORWARD,
    MARGIN,
    Stretch,
    Surroundings,
    is_steady,
    round_times,
    timed_loop,
)
from tests.examples import fast
from tests.fakes import FakeClock

#: A row per step: its worker, when it ended, its number.
Rows = npt.NDArray[np.float64]

FIXED = FixedWarmup()


def ends(rows: Rows) -> tuple[Integers, Floats]:
    return rows[:, 0].astype(np.int64), rows[:, 1]


@dataclass(slots=True)
class FakeDriver:
    """Makes steps of one worker that take the time they are told to take.

    Attributes:
        step_s: seconds of the nth step.
        calls: what was asked for, and whether steps were traced.
    """

    clock: FakeClock
    step_s: Callable[[int], float]
    agreement: Callable[[float], float] = lambda value: value
    calls: list[tuple[int, bool]] = field(default_factory=list)
    made: int = 0

    def run(self, num_steps: int, *, events: bool = False) -> Rows:
        self.calls.append((num_steps, events))
        rows = []
        for _ in range(num_steps):
            self.clock.now += self.step_s(self.made)
            rows.append((0, self.clock.now, self.made))
            self.made += 1
        return np.asarray(rows)

    def evaluate(self, evaluation: Evaluation) -> Rows:
        self.clock.now += evaluation.batches
        return np.full((evaluation.batches, 3), self.made)

    def agree(self, value: float) -> float:
        return self.agreement(value)


def steady(step_s: float) -> Callable[[int], float]:
    return lambda _: step_s


def around(
    clock: FakeClock,
    progress: Callable[[Phase], None] = lambda _: None,
    expect: Callable[[float], None] = lambda _: None,
) -> Surroundings[Rows]:
    return Surroundings(
        clock=clock,
        progress=progress,
        expect=expect,
        ends=ends,
        scores=lambda rows: (float(rows[0, 0]), math.nan),
        num_workers=1,
        examples_per_round=8,
    )


def run_loop(
    measurement: Measurement, step_s: Callable[[int], float]
) -> tuple[list[Stretch[Rows]], FakeDriver, list[Phase]]:
    clock = FakeClock(now=1000.0)
    driver = FakeDriver(clock, step_s)
    told: list[Phase] = []
    timed = timed_loop(driver, measurement, around(clock, told.append))
    return timed.stretches, driver, told


def test_workers_that_never_wait_for_each_other_measure_longer_than_they_begin_apart() -> None:
    lengths = {}
    for meet in (True, False):
        clock = FakeClock(now=1000.0)
        apart = replace(around(clock), meet=meet)
        timed = timed_loop(
            FakeDriver(clock, steady(0.1)), Measurement(measured_steps=5, measured_s=1.0), apart
        )
        lengths[meet] = steps_of(timed.stretches, Phase.MEASURED) * 0.1
    assert lengths[False] - lengths[True] == pytest.approx(APART_S * MARGIN, abs=0.2)


def steps_of(stretches: list[Stretch[Rows]], phase: Phase) -> int:
    return sum(stretch.num_steps for stretch in stretches if stretch.phase is phase)


@pytest.mark.parametrize(
    ("step_s", "warm", "measured"),
    [
        pytest.param(2.0, range(10, 11), range(100, 101), id="slow steps by number"),
        pytest.param(0.01, range(500, 511), range(2198, 2203), id="quick ones by time and a tenth"),
    ],
)
def test_steps_are_made_by_number_or_by_time(step_s: float, warm: range, measured: range) -> None:
    measurement = Measurement(warmup=FIXED, measured_steps=100, measured_s=20.0)
    stretches, _, _ = run_loop(measurement, steady(step_s))
    assert steps_of(stretches, Phase.WARMUP) in warm
    assert steps_of(stretches, Phase.MEASURED) - SETTLING_STEPS in measured


@fast
@given(
    st.integers(1, 30),
    st.floats(0, 10),
    st.lists(st.floats(0.005, 3), min_size=1, max_size=20),
)
def test_warm_up_reaches_both_steps_and_seconds(
    warmup_steps: int, warmup_s: float, step_times: list[float]
) -> None:
    # The last step time stays, the first one is tracing.
    fixed = FixedWarmup(least_steps=warmup_steps, least_s=warmup_s)
    measurement = Measurement(warmup=fixed, measured_steps=1)
    clock = FakeClock()
    driver = FakeDriver(clock, lambda n: step_times[min(n, len(step_times) - 1)])
    begun: dict[Phase, tuple[float, int]] = {}

    def progress(phase: Phase) -> None:
        begun[phase] = (clock.now, driver.made)

    timed = timed_loop(driver, measurement, around(clock, progress))
    assert timed.warmup_end is WarmupEnd.FIXED
    (warm_at, steps_before), (measured_at, steps_after) = begun[Phase.WARMUP], begun[Phase.MEASURED]
    assert steps_before == 1
    assert steps_after - steps_before >= warmup_steps
    assert measured_at - warm_at >= warmup_s - 1e-6


def test_the_measured_phase_is_as_long_as_its_steps() -> None:
    clock, begun = FakeClock(), dict[Phase, float]()

    def agree(value: float) -> float:
        clock.now += 5.0
        return value

    def progress(phase: Phase) -> None:
        begun[phase] = clock.now

    measurement = Measurement(warmup=FIXED, measured_steps=20, event_steps=1)
    timed_loop(FakeDriver(clock, steady(0.1), agree), measurement, around(clock, progress))
    assert begun[Phase.EVENTS] - begun[Phase.MEASURED] == pytest.approx(0.1 * (20 + SETTLING_STEPS))


def test_a_first_step_and_then_measured_ones_in_one_go_after_settling() -> None:
    stretches, driver, _ = run_loop(Measurement(measured_steps=100), steady(1.0))
    assert (stretches[0].phase, stretches[0].num_steps) == (Phase.FIRST, 1)
    assert driver.calls[0] == (1, False)
    (measured,) = [s for s in stretches if s.phase is Phase.MEASURED]
    assert measured.num_steps == SETTLING_STEPS + 100
    assert measured.leading == SETTLING_STEPS


def test_only_the_last_stretch_is_traced_and_every_step_is_in_one() -> None:
    stretches, driver, told = run_loop(Measurement(event_steps=3), steady(0.3))
    assert driver.calls[-1] == (3, True)
    assert [events for _, events in driver.calls].count(True) == 1
    assert (stretches[-1].phase, stretches[-1].num_steps) == (Phase.EVENTS, 3)
    assert told == [Phase.FIRST, Phase.WARMUP, Phase.MEASURED, Phase.EVENTS]
    assert [row[2] for stretch in stretches for row in stretch.rows] == list(range(driver.made))


def test_nothing_is_traced_unless_asked_for() -> None:
    stretches, _, told = run_loop(Measurement(), steady(1.0))
    assert stretches[-1].phase is Phase.MEASURED
    assert told == [Phase.FIRST, Phase.WARMUP, Phase.MEASURED]


def test_the_time_that_is_needed_is_told_before_every_stretch() -> None:
    measurement = Measurement(measured_steps=30, measured_s=3.0, event_steps=2)
    times = {0: 20.0, 1: 0.6}  # the first step is traced, the second is slow
    clock = FakeClock()
    driver = FakeDriver(clock, lambda step: times.get(step, 0.5))
    told: list[tuple[float, float]] = []
    timed_loop(driver, measurement, around(clock, expect=lambda s: told.append((clock.now, s))))
    (looked_at, first), *_, (_, last) = told
    assert looked_at == pytest.approx(20.6)
    assert first == pytest.approx(9 * 0.6 + 30 * 0.6 + 2 * 0.6)
    assert last == pytest.approx(30 * 0.5 + 2 * 0.5)


def test_one_quick_step_does_not_make_a_long_warm_up() -> None:
    times = {1: 0.001}
    brief = Measurement(warmup=FIXED, measured_steps=1)
    stretches, driver, _ = run_loop(brief, lambda n: times.get(n, 1.0))
    assert steps_of(stretches, Phase.WARMUP) == 10
    assert [count for count, _ in driver.calls][:3] == [1, 1, 9]


class Meeting:
    """Lets several drivers, each in a thread of its own, agree on the largest value."""

    def __init__(self, parties: int) -> None:
        self._barrier = threading.Barrier(parties, timeout=10)
        self._values: list[float] = []

    def __call__(self, value: float) -> float:
        self._values.append(value)
        self._barrier.wait()
        largest = max(self._values)
        if self._barrier.wait() == 0:
            self._values.clear()
        self._barrier.wait()
        return largest


def run_together(measurement: Measurement, speeds: list[float]) -> list[FakeDriver]:
    """One timed loop per driver at the same time; every one with a clock of its own."""
    meeting = Meeting(len(speeds))
    drivers = [FakeDriver(FakeClock(now=7.0 * s), steady(s), meeting) for s in speeds]
    threads = [
        threading.Thread(
            target=timed_loop,
            args=(driver, measurement, around(driver.clock)),
        )
        for driver in drivers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    return drivers


def test_an_evaluation_comes_last_and_the_loop_says_how_long_it_needs() -> None:
    clock, told, needed = FakeClock(now=1000.0), list[Phase](), list[float]()
    driver = FakeDriver(clock, steady(1.0))
    evaluation = Evaluation(batches=7)
    measurement = Measurement(measured_steps=2, event_steps=1, evaluation=evaluation)
    timed = timed_loop(driver, measurement, around(clock, told.append, needed.append))
    assert told[-3:] == [Phase.MEASURED, Phase.EVENTS, Phase.EVALUATION]
    (evaluated,) = timed.evaluated
    assert (evaluated == driver.made).all()  # all steps were made before
    assert needed[-1] == pytest.approx(7 * FORWARD)


class LearningDriver(FakeDriver):
    """Loses 0.1 with every step."""

    def evaluate(self, evaluation: Evaluation) -> Rows:
        self.clock.now += 100.0
        return np.full((evaluation.batches, 3), 10 - 0.1 * self.made)


@pytest.mark.parametrize(
    ("stop", "steps"),
    [
        pytest.param({"target_loss": 7.5}, 31, id="first evaluation at the target"),
        pytest.param({"most_examples": 161}, 21, id="examples"),
        pytest.param({"most_s": 11.0}, 21, id="seconds of training alone"),
        pytest.param({"target_loss": 11.0}, 11, id="never before some steps"),
    ],
)
def test_training_that_learns_ends_with_an_evaluation(stop: dict[str, float], steps: int) -> None:
    clock = FakeClock(now=1000.0)
    driver = LearningDriver(clock, steady(1.0))
    timed = timed_loop(driver, learning(**stop), around(clock))
    assert driver.made == steps
    assert len(timed.evaluated) == len(timed.stretches) == (steps - 1) // 10 + 1
    assert timed.stretches[1].leading  # the rate has a window of its own


def learning(**stop: float) -> Learning:
    """Evaluated every ten steps."""
    evaluation = Evaluation(batches=1, mode=EvaluationMode.SEQUENTIAL)
    settings: dict[str, Any] = {"most_examples": 10_000, **stop}
    return Learning(evaluation=evaluation, evaluation_steps=10, **settings)


@fast
@given(st.lists(st.floats(0.005, 2), min_size=2, max_size=3), st.sampled_from([3.0, 0.0]))
def test_drivers_of_different_speed_make_the_same_steps(
    speeds: list[float], fixed_s: float
) -> None:
    warmup = FixedWarmup(least_s=fixed_s) if fixed_s else SteadyWarmup()
    measurement = Measurement(warmup=warmup, measured_steps=20, measured_s=2.0, event_steps=1)
    drivers = run_together(measurement, speeds)
    assert all(driver.calls == drivers[0].calls for driver in drivers)
    assert drivers[0].calls[-1] == (1, True)
    # Even the quickest is warm, and has measured for long enough.
    quickest = min(speeds)
    assert sum(n for n, _ in drivers[0].calls[1:-2]) * quickest >= warmup.least_s - 1e-6
    assert drivers[0].calls[-2][0] * quickest >= 2.0


def warm_up(
    step_s: Callable[[int], float], warmup: SteadyWarmup | None = None
) -> tuple[int, int, WarmupEnd]:
    """Steps of a steady warm-up, its stretches, and why it was over."""
    clock = FakeClock()
    driver = FakeDriver(clock, step_s)
    measurement = Measurement(warmup=warmup or SteadyWarmup(), measured_steps=1)
    timed = timed_loop(driver, measurement, around(clock))
    warm = [stretch for stretch in timed.stretches if stretch.phase is Phase.WARMUP]
    return sum(stretch.num_steps for stretch in warm), len(warm), timed.warmup_end


@pytest.mark.parametrize(
    ("step_s", "count"),
    [
        pytest.param(1 / 256, 256, id="a second"),
        pytest.param(1 / 64, 100, id="until TensorFlow has settled"),
        pytest.param(3 / 128, 86, id="two seconds, where settling takes longer"),
        pytest.param(1 / 32, 32, id="a second, where settling is of no consequence"),
        pytest.param(7.0, 10, id="ten steps"),
    ],
)
def test_a_flat_start_is_over_after(step_s: float, count: int) -> None:
    steps, stretches, end = warm_up(steady(step_s))
    assert (steps, end) == (count, WarmupEnd.STEADY)
    assert stretches <= 5


def test_a_start_that_gets_faster_is_waited_for() -> None:
    steps, stretches, end = warm_up(lambda n: 0.02 * (1 + 2 * np.exp(-n / 15)))
    # The rest of the decay is less than the test shows.
    assert 90 < steps < 400
    assert end is WarmupEnd.STEADY
    assert stretches <= 8


def test_steps_that_never_get_steady_are_ended_by_the_limit() -> None:
    steps, _, end = warm_up(lambda n: 0.02 * 1.01**n, SteadyWarmup(most_s=3.0))
    assert end is WarmupEnd.LIMIT
    # Long steps end by number.
    steps, _, end = warm_up(lambda n: 5 + n, SteadyWarmup())
    assert (steps, end) == (40, WarmupEnd.LIMIT)


def test_the_wait_after_an_agreement_is_no_step_time() -> None:
    waits = {1, 2}  # the first steps of both stretches
    steps, _, end = warm_up(lambda n: 0.02 + (n in waits))
    assert (steps, end) == (10, WarmupEnd.STEADY)


@dataclass(slots=True)
class DealingDriver:
    """Three workers that are dealt steps; the first one makes most of them.

    Attributes:
        idle: so many steps are dealt before the last worker gets one.
        rare: the last worker makes one of so many steps.
    """

    clock: FakeClock
    idle: int = 0
    rare: int = 10
    made: int = 0

    def run(self, num_steps: int, *, events: bool = False) -> Rows:
        rows = []
        for _ in range(3 * num_steps):
            self.clock.now += 0.005
            self.made += 1
            late = self.made % self.rare == self.rare - 1 and self.made > self.idle
            worker = 2 if late else int(self.made % 3 == 2)
            # Their clocks are an hour apart.
            rows.append((worker, self.clock.now + 3600.0 * worker, self.made))
        return np.asarray(rows)

    def evaluate(self, evaluation: Evaluation) -> Rows:
        raise AssertionError("nothing is evaluated here")

    def agree(self, value: float) -> float:
        return value


@pytest.mark.parametrize("idle", [0, 400])
def test_dealt_steps_are_steady_together_and_every_worker_has_made_enough(idle: int) -> None:
    clock = FakeClock()
    timed = timed_loop(DealingDriver(clock, idle), Measurement(measured_steps=1), around(clock))
    assert timed.warmup_end is WarmupEnd.STEADY
    warm = np.concatenate([s.rows for s in timed.stretches if s.phase is Phase.WARMUP])
    assert np.bincount(warm[:, 0].astype(int)).min() >= 10
    assert len(warm) < 1200
    assert len(timed.stretches) <= 12


def test_the_slowest_worker_of_those_that_are_dealt_steps_makes_enough_to_be_measured() -> None:
    clock = FakeClock()
    measurement = Measurement(warmup=FixedWarmup(least_steps=4), measured_steps=1, measured_s=0.1)
    timed = timed_loop(DealingDriver(clock, rare=60), measurement, around(clock))
    (measured,) = (s.rows for s in timed.stretches if s.phase is Phase.MEASURED)
    assert np.bincount(measured[:, 0].astype(int))[2] >= SETTLING_STEPS + 8


@dataclass(slots=True)
class NearDriver:
    """Two workers take steps when they are free; the one beside the server is 40 times as fast.

    Every call ends when the slow one has ended its step, as joining a coordinator does.
    """

    clock: FakeClock
    slow_s: float = 0.8

    def run(self, num_steps: int, *, events: bool = False) -> Rows:
        begin, rows = self.clock.now, []
        free = {0: begin, 1: begin}
        for number in range(2 * num_steps):
            worker = min(free, key=lambda each: (free[each], each))
            free[worker] += (self.slow_s / 40, self.slow_s)[worker]
            rows.append((worker, free[worker], number))
        self.clock.now = max(free.values())
        return np.asarray(rows)

    def evaluate(self, evaluation: Evaluation) -> Rows:
        raise AssertionError("nothing is evaluated here")

    def agree(self, value: float) -> float:
        return value


def test_a_worker_that_the_warm_up_waited_for_makes_enough_steps_in_the_window() -> None:
    clock = FakeClock()
    measurement = Measurement(warmup=FixedWarmup(least_steps=7), measured_steps=8, measured_s=1.0)
    timed = timed_loop(NearDriver(clock), measurement, around(clock))
    (measured,) = (s.rows for s in timed.stretches if s.phase is Phase.MEASURED)
    assert np.bincount(measured[:, 0].astype(int))[1] >= SETTLING_STEPS + 8


lengths = st.integers(10, 400)
seeds = st.integers(0, 10_000)


def noise(seed: int, count: int, spread: float = 0.02) -> Floats:
    """Step times of one speed."""
    return np.asarray(np.exp(spread * np.random.default_rng(seed).normal(size=count)))


def share_steady(times: list[Floats]) -> float:
    return float(np.mean([is_steady(each) for each in times]))


@pytest.mark.parametrize("count", [10, 20, 50, 200])
@pytest.mark.parametrize("spread", [0.0, 0.02, 0.2])
def test_flat_noise_is_nearly_always_steady(count: int, spread: float) -> None:
    assert share_steady([noise(seed, count, spread) for seed in range(200)]) >= 0.9


@pytest.mark.parametrize("count", [50, 200])
def test_noise_with_outliers_is_steady_too(count: int) -> None:
    series = []
    for seed in range(200):
        times = noise(seed, count, 0.2)
        times[np.random.default_rng(seed).random(count) < 0.03] *= 20
        series.append(times)
    assert share_steady(series) >= 0.9


@fast
@given(seeds, lengths, st.floats(0.3, 5))
def test_a_decaying_start_is_not_steady(seed: int, count: int, excess: float) -> None:
    decay = excess * np.exp(-np.arange(count) / (count / 2))
    assert not is_steady(noise(seed, count, 0.005) * (1 + decay))


@pytest.mark.parametrize("count", [30, 45, 100, 400])
@pytest.mark.parametrize("place", [0.5, 0.6, 0.7])
@pytest.mark.parametrize("change", [0.8, 1.2])
def test_a_step_in_level_is_not_steady(count: int, place: float, change: float) -> None:
    level = np.where(np.arange(count) < place * count, 1.0, change)
    assert share_steady([noise(seed, count) * level for seed in range(100)]) <= 0.1


def test_a_start_that_is_over_does_not_count() -> None:
    series = []
    for seed in range(200):
        times = noise(seed, 100)
        times[:20] *= 3
        series.append(times)
    assert share_steady(series) >= 0.9


def test_a_trend_that_is_smaller_than_anybody_needs_is_none() -> None:
    assert is_steady(np.linspace(1.0, 1.005, 200))
    assert not is_steady(np.linspace(1.0, 1.05, 200))


@pytest.mark.parametrize("count", range(5))
def test_a_few_steps_show_nothing(count: int) -> None:
    assert not is_steady(np.ones(count))


@fast
@given(
    st.integers(1, 8), st.integers(2, 50), st.lists(st.floats(-1e4, 1e4), min_size=8, max_size=8)
)
def test_workers_that_keep_step_have_rounds_of_one_step(
    num_workers: int, steps: int, clocks: list[float]
) -> None:
    rounds = np.repeat(np.arange(1, steps + 1), num_workers) * 0.01
    workers = np.tile(np.arange(num_workers), steps)
    times = round_times(workers, rounds + np.asarray(clocks)[workers], num_workers)
    np.testing.assert_allclose(times, np.full(steps - 1, 0.01), atol=1e-9)


def test_a_round_of_dealt_steps_is_as_many_steps_as_there_are_workers() -> None:
    # The first makes three steps while the second makes one: two steps in half the slow one's time.
    fast_ends, slow_ends = np.arange(31) * 1.0, np.arange(11) * 3.0
    workers = np.repeat([0, 1], [31, 11])
    times = round_times(workers, np.concatenate([fast_ends, slow_ends]), 2)
    assert np.mean(times) == pytest.approx(1.5, abs=0.1)
