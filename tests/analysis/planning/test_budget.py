"""Time goes where the variance is."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.planning.budget import (
    FEWEST_STEPS,
    LEAST_SPREAD,
    MOST_LAUNCHES,
    WINDOWS_S,
    LaunchCost,
    ModelPart,
    PilotResult,
    StepSpread,
    pilot_of,
    spend,
    step_spread,
)
from ps_allreduce.point.strategies import AllReduce, SynchronousServers
from ps_allreduce.record.files import RunFiles
from ps_allreduce.record.records import Phases, RunRecord
from ps_allreduce.record.step_table import Phase, measurement_window
from tests.analysis.builders import metrics, run, save
from tests.examples import fast
from tests.fakes import make_experiment, make_steps

COST = LaunchCost(tasks=4, overhead_s=3.0, step_s=0.02)
RESULT = PilotResult(launch=0.05, second=0.02, costs=(COST,))
PART = ModelPart(pilot=RESULT, points=(4,) * 11, main=(4,) * 3)

SPREADS = st.floats(0.001, 0.5)


@fast
@given(SPREADS, SPREADS, st.floats(0.5, 60.0), st.floats(100.0, 4000.0))
def test_no_other_window_makes_a_narrower_interval_in_the_same_time(
    launch: float, second: float, overhead_s: float, budget_s: float
) -> None:
    costs = (replace(COST, overhead_s=overhead_s),)
    part = replace(PART, pilot=replace(RESULT, launch=launch, second=second, costs=costs))
    chosen = spend([part], 3, budget_s)
    width = part.half_width(chosen.window_s, chosen.launches)
    for window_s in WINDOWS_S:
        base_s = 3 * part.seconds(part.points, window_s)
        if base_s <= budget_s:
            more = math.floor((budget_s - base_s) / part.seconds(part.main, window_s))
            assert width <= part.half_width(window_s, min(3 + more, MOST_LAUNCHES)) + 1e-12


@fast
@given(st.floats(10.0, 4000.0), st.integers(1, 40), st.integers(2, 5))
def test_a_budget_is_kept_where_the_fewest_launches_fit_in(
    budget_s: float, points: int, fewest: int
) -> None:
    part = replace(PART, points=(4,) * points, main=(4,) * min(points, 3))
    spending = spend([part], fewest, budget_s)
    shortest_s = fewest * part.seconds(part.points, WINDOWS_S[0])
    assert fewest <= spending.launches <= MOST_LAUNCHES
    if shortest_s <= budget_s:
        assert spending.expected_s <= budget_s
    else:
        assert (spending.launches, spending.window_s) == (fewest, WINDOWS_S[0])
        assert spending.expected_s == pytest.approx(shortest_s)


def test_launches_that_vary_by_themselves_are_many_and_steps_that_vary_get_long_windows() -> None:
    unlike = replace(PART, pilot=replace(RESULT, second=0.001))
    jumping = replace(PART, pilot=replace(RESULT, second=0.5, launch=0.001))
    assert spend([unlike], 3, 400.0).window_s == WINDOWS_S[0]
    assert spend([jumping], 3, 400.0).window_s >= 3.0
    assert spend([jumping], 3, 400.0).launches < spend([unlike], 3, 400.0).launches


def test_a_window_has_steps_enough_and_models_share_the_time() -> None:
    slow = replace(PART, pilot=replace(RESULT, costs=(replace(COST, step_s=1.0),)))
    assert slow.seconds([4], 1.0) == 3.0 + FEWEST_STEPS
    assert spend([PART, slow], 3, 1000.0).launches < spend([PART], 3, 1000.0).launches


def test_launches_of_few_tasks_take_less() -> None:
    costs = (LaunchCost(tasks=1, overhead_s=1.0, step_s=0.01), replace(COST, tasks=9))
    part = replace(PART, pilot=replace(RESULT, costs=costs))
    assert part.seconds([1], 1.0) == pytest.approx(2.0)
    assert part.seconds([1, 5, 9], 1.0) == pytest.approx(2.0 + 3.0 + 4.0)


STEP_S = 0.02


def noise(
    random: np.random.Generator, spread: float, lag: float, shape: tuple[int, ...]
) -> npt.NDArray[np.float64]:
    """Series that vary by so much, with this autocorrelation."""
    drawn = random.normal(0.0, spread * math.sqrt(1 - lag**2), shape)
    for index in range(1, shape[-1]):
        drawn[..., index] += lag * drawn[..., index - 1]
    return drawn


def launched(
    folder: Path, rates: dict[int, float], spread: float, lag: float = 0.0
) -> dict[Path, RunRecord]:
    """Launches of two points with steps that vary, each by a share of the one before."""
    random, made = np.random.default_rng(1), {}
    for kind in (AllReduce, SynchronousServers):
        for repetition, rate in rates.items():
            lasts = STEP_S * np.exp(noise(random, spread, lag, (50,)))
            phases = [Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * 48]
            steps = make_steps(0, list(np.cumsum(lasts)), phases)
            window_s = measurement_window(steps).length_s
            record = run(
                make_experiment(kind, 2),
                rate,
                repetition,
                metrics=metrics(rate, window_s=window_s),
                phases=Phases(measured_s=5.0, total_s=20.0),
            )
            save(folder, record, steps=steps)
            files = RunFiles.of(folder, record.experiment_id, record.repetition, record.attempt)
            made[files.record] = record
    return made


def test_what_launches_and_windows_vary_by_and_what_a_launch_costs(tmp_path: Path) -> None:
    rates = {0: 90.0, 1: 100.0, 2: 110.0}
    pilot = pilot_of(launched(tmp_path, rates, 0.1))
    assert pilot is not None
    assert pilot.launch == pytest.approx(np.std(np.log(list(rates.values())), ddof=1), rel=0.1)
    assert pilot.second == pytest.approx(0.1 * math.sqrt(STEP_S), rel=0.3)
    assert [cost.tasks for cost in pilot.costs] == [2, 5]
    for cost in pilot.costs:
        assert cost.overhead_s == pytest.approx(15.0)
        assert cost.step_s == pytest.approx(STEP_S, rel=0.1)


def test_launches_that_agree_by_luck_are_not_taken_for_equal(tmp_path: Path) -> None:
    pilot = pilot_of(launched(tmp_path, {0: 100.0, 1: 100.0}, 0.1))
    assert pilot is not None
    assert pilot.launch == LEAST_SPREAD


def test_one_launch_of_each_point_tells_nothing(tmp_path: Path) -> None:
    assert pilot_of(launched(tmp_path, {0: 100.0}, 0.1)) is None
    assert pilot_of({}) is None


def test_steps_that_depend_on_the_one_before_are_known_by_it(tmp_path: Path) -> None:
    runs = launched(tmp_path, dict.fromkeys(range(6), 100.0), 0.1, lag=0.6)
    lags = [found.autocorrelation for run in runs if (found := step_spread(run))]
    assert len(lags) == 12
    assert 0.4 < np.mean(lags) < 0.6  # of 48 steps each, the estimate is low


@pytest.mark.parametrize("lag", [0.0, 0.6])
def test_rates_of_windows_vary_as_their_steps_foretell(lag: float) -> None:
    random, steps, windows = np.random.default_rng(1), 500, 400
    lasts = STEP_S * np.exp(noise(random, 0.05, lag, (windows, steps)))
    rates = steps / lasts.sum(axis=1)
    spread = StepSpread(step_s=STEP_S, spread=0.05, autocorrelation=lag)
    foretold = spread.variance_of_a_second / (steps * STEP_S)
    assert np.log(rates).var() == pytest.approx(foretold, rel=0.2)
