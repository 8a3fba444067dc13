"""Time goes where the variance is."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.planning.budget import FEWEST_STEPS, MOST_LAUNCHES, WINDOWS_S, ModelPart, spend
from analysis.planning.variances import LaunchCost, PilotResult
from tests.examples import fast

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
