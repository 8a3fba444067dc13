"""Time goes where the variance is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.planning.budget import (
    FEWEST_STEPS,
    LONGEST_S,
    MOST_LAUNCHES,
    SHORTEST_S,
    ModelPart,
    spend,
)
from analysis.planning.pilot import LaunchCost, PilotResult
from tests.examples import fast

COST = LaunchCost(tasks=4, overhead_s=3.0, step_s=0.02)
RESULT = PilotResult(launch=0.05, second=0.02, costs=(COST,))
PART = ModelPart(pilot=RESULT, points=(4,) * 11, main=(4,) * 3)
LAUNCH_S = 3.0 + PART.window_s

SPREADS = st.floats(0.001, 0.5)


@fast
@given(SPREADS, SPREADS, st.floats(0.5, 60.0))
def test_no_other_window_tells_more_in_the_same_time(
    launch: float, second: float, overhead_s: float
) -> None:
    costs = (replace(COST, overhead_s=overhead_s),)
    pilot = replace(RESULT, launch=launch, second=second, costs=costs)

    def variance_times_cost(window_s: float) -> float:
        return (launch**2 + second**2 / window_s) * (overhead_s + window_s)

    others = [variance_times_cost(each) for each in np.geomspace(SHORTEST_S, LONGEST_S, 200)]
    chosen = variance_times_cost(replace(PART, pilot=pilot).window_s)
    assert chosen <= min(others) * 1.01  # windows are rounded


@fast
@given(st.floats(10.0, 4000.0), st.integers(1, 40), st.integers(1, 5))
def test_a_budget_is_kept_where_the_fewest_launches_fit_in(
    budget_s: float, points: int, fewest: int
) -> None:
    part = replace(PART, points=(4,) * points, main=(4,) * min(points, 3))
    spending = spend([part], fewest, budget_s)
    base_s = points * fewest * LAUNCH_S
    assert fewest <= spending.launches <= MOST_LAUNCHES
    if base_s <= budget_s:
        assert spending.expected_s <= budget_s
        more = spending.expected_s + len(part.main) * LAUNCH_S
        assert more > budget_s or spending.launches == MOST_LAUNCHES
    else:
        assert spending.launches == fewest
        assert spending.expected_s == pytest.approx(base_s)


def test_a_window_has_steps_enough_and_models_share_the_time() -> None:
    slow = replace(PART, pilot=replace(RESULT, costs=(replace(COST, step_s=1.0),)))
    assert slow.seconds([4]) == 3.0 + FEWEST_STEPS
    together = spend([PART, slow], 3, 1000.0)
    assert together.launches < spend([PART], 3, 1000.0).launches
    turn_s = LAUNCH_S + slow.seconds([4])
    assert together.launches == 3 + math.floor((1000.0 - 33 * turn_s) / (3 * turn_s))


def test_launches_of_few_tasks_take_less() -> None:
    costs = (LaunchCost(tasks=1, overhead_s=1.0, step_s=0.01), replace(COST, tasks=9))
    part = replace(PART, pilot=replace(RESULT, costs=costs))
    assert part.seconds([1]) == pytest.approx(1.0 + part.window_s)
    assert part.seconds([1, 5, 9]) == pytest.approx(3 * (2.0 + part.window_s))
