from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.stats import statistics
from analysis.stats.statistics import Estimate, Ratio, estimate


def compare(first: dict[int, float], second: dict[int, float]) -> Ratio:
    return statistics.compare(by_repetition(first), by_repetition(second))


def by_repetition(rates: dict[int, float]) -> pd.Series:
    return pd.Series(rates, dtype=float)


RATES = st.floats(min_value=1e-3, max_value=1e6)
LAUNCHES = st.dictionaries(st.integers(0, 9), RATES, max_size=8)


def test_interval_of_a_mean_is_student_on_the_logarithm() -> None:
    # Logs 0, 1, 2: mean 1, standard error 1/sqrt(3), t(0.975, 2) = 4.302653.
    found = estimate([1.0, math.e, math.e**2])
    half = 4.302653 / math.sqrt(3)
    assert found.mean == pytest.approx(math.e)
    assert found.low == pytest.approx(math.exp(1 - half), rel=1e-6)
    assert found.high == pytest.approx(math.exp(1 + half), rel=1e-6)
    # Two launches have a mean but no interval.
    found = estimate([4.0, 9.0])
    assert found.mean == pytest.approx(6.0)
    assert (found.low, found.high) == (None, None)


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [-1.0]])
def test_only_positive_values_have_a_mean(values: list[float]) -> None:
    with pytest.raises(ValueError, match="positive values"):
        estimate(values)


def test_paired_comparison_takes_out_what_both_sides_share() -> None:
    # The machine doubles its speed from launch to launch; the ratio is 2 throughout.
    found = compare({0: 200, 1: 400, 2: 800}, {0: 100, 1: 200, 2: 400})
    assert found.ends == pytest.approx((2.0, 2.0, 2.0))
    assert (found.p_at_most(0.0), found.p_at_least(0.0)) == pytest.approx((0.0, 1.0))


@pytest.mark.parametrize(
    ("second", "test", "launches"),
    [
        ({0: 100.0, 1: 90.0, 2: 95.0}, stats.ttest_rel, (3, 3)),
        (
            {5: 100.0, 6: 90.0, 7: 95.0, 8: 99.0},
            partial(stats.ttest_ind, equal_var=False),
            (3, 4),
        ),
    ],
    ids=["paired", "Welch"],
)
def test_comparisons_agree_with_scipy_on_the_logarithm(
    second: dict[int, float], test: Callable[..., Any], launches: tuple[int, int]
) -> None:
    first = {0: 110.0, 1: 120.0, 2: 150.0}
    found = compare(first, second)
    reference = test(*(np.log(by_repetition(rates)) for rates in (first, second)))
    interval = reference.confidence_interval(0.95)
    assert (found.n_first, found.n_second) == launches
    assert found.p_value == pytest.approx(reference.pvalue)
    assert found.ends[1:] == pytest.approx((np.exp(interval.low), np.exp(interval.high)))
    one_sided = test(
        *(np.log(by_repetition(rates)) for rates in (first, second)), alternative="greater"
    )
    assert found.p_at_most(0.0) == pytest.approx(one_sided.pvalue)


def test_a_repetition_that_one_side_lost_leaves_the_pairs() -> None:
    found = compare({0: 2.0, 1: 2.0, 2: 2.0, 3: 9.0}, {0: 1.0, 1: 1.0, 2: 1.0})
    assert found.ratio == pytest.approx(2.0)
    assert (found.n_first, found.n_second) == (3, 3)


@pytest.mark.parametrize(
    ("first", "second", "ratio"),
    [({}, {}, None), ({0: 1.0}, {}, None), ({0: 3.0}, {0: 2.0}, 1.5), ({0: 3.0}, {1: 2.0}, 1.5)],
)
def test_below_three_launches_nothing_is_said(
    first: dict[int, float], second: dict[int, float], ratio: float | None
) -> None:
    found = compare(first, second)
    assert found.ratio == (None if ratio is None else pytest.approx(ratio))
    assert (*found.ends[1:], found.p_value) == (None, None, None)


@given(values=st.lists(RATES, min_size=3, max_size=9))
def test_a_mean_lies_within_its_interval(values: list[float]) -> None:
    found = estimate(values)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.mean <= found.high


@given(first=LAUNCHES, second=LAUNCHES)
def test_exchanging_the_sides_inverts_the_ratio(
    first: dict[int, float], second: dict[int, float]
) -> None:
    one, other = compare(first, second), compare(second, first).inverse()
    assert one.ratio == (None if other.ratio is None else pytest.approx(other.ratio))
    low, expected = one.ends[1], other.ends[1]
    assert low == (None if expected is None else pytest.approx(expected, rel=1e-6))
    assert one.p_value == (None if other.p_value is None else pytest.approx(other.p_value))


@given(values=st.dictionaries(st.integers(0, 9), RATES, min_size=3), factor=RATES)
def test_the_unit_of_rates_does_not_matter(values: dict[int, float], factor: float) -> None:
    found = compare({key: value * factor for key, value in values.items()}, values)
    assert found.ratio == pytest.approx(factor, rel=1e-6)


def test_launches_that_would_tell_are_those_at_which_the_interval_leaves_zero() -> None:
    made = pd.Series([30.0, 10.0, 20.0])
    known = statistics.subtract(made, pd.Series([10.0, 10.0, 10.0]))
    assert known.low is not None
    assert known.low < 0 < known.mean
    # A difference of 10 with standard deviation 10: t(0.975, 6) / sqrt(7) is the first below 1.
    assert statistics.launches_to_tell(known, 3) == 7


def test_what_varies_too_much_or_has_no_interval_is_told_by_no_number_of_launches() -> None:
    assert statistics.launches_to_tell(Estimate(mean=0.01, low=-1.0, high=1.02), 3) is None
    assert statistics.launches_to_tell(Estimate(mean=1.0, low=None, high=None), 2) is None
