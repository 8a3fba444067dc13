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
from analysis.planning.pilot import PilotResult
from tests.examples import fast

RESULT = PilotResult(launch=0.05, second=0.02, overhead_s=3.0, step_s=0.02)
PART = ModelPart(pilot=RESULT, points=11, main=3)

SPREADS = st.floats(0.001, 0.5)


@fast
@given(SPREADS, SPREADS, st.floats(0.5, 60.0))
def test_no_other_window_tells_more_in_the_same_time(
    launch: float, second: float, overhead_s: float
) -> None:
    pilot = replace(RESULT, launch=launch, second=second, overhead_s=overhead_s)

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
    part = replace(PART, points=points, main=min(points, 3))
    spending = spend([part], fewest, budget_s)
    base_s = points * fewest * part.launch_s
    assert fewest <= spending.launches <= MOST_LAUNCHES
    if base_s <= budget_s:
        assert spending.expected_s <= budget_s
        more = spending.expected_s + part.main * part.launch_s
        assert more > budget_s or spending.launches == MOST_LAUNCHES
    else:
        assert spending.launches == fewest
        assert spending.expected_s == pytest.approx(base_s)


def test_a_window_has_steps_enough_and_models_share_the_time() -> None:
    slow = replace(PART, pilot=replace(RESULT, step_s=1.0))
    assert slow.launch_s == RESULT.overhead_s + FEWEST_STEPS
    together = spend([PART, slow], 3, 1000.0)
    assert together.launches < spend([PART], 3, 1000.0).launches
    base_s = 33 * (PART.launch_s + slow.launch_s)
    turns = math.floor((1000.0 - base_s) / (3 * (PART.launch_s + slow.launch_s)))
    assert together.launches == 3 + turns
