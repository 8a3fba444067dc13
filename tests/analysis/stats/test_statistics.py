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
from analysis.stats.statistics import (
    Comparison,
    Outcome,
    Selection,
    estimate,
    holm,
    outcome,
)


def compare(first: dict[int, float], second: dict[int, float]) -> Comparison:
    return statistics.compare(by_repetition(first), by_repetition(second))


def choose_best(candidates: list[dict[int, float]]) -> Selection:
    return statistics.choose_best([by_repetition(each) for each in candidates])


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
    assert [found.ratio, found.low, found.high] == pytest.approx([2.0, 2.0, 2.0])
    assert outcome(found) is Outcome.FASTER


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
    assert (found.low, found.high) == pytest.approx((np.exp(interval.low), np.exp(interval.high)))


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
    assert (found.low, found.high, found.p_value) == (None, None, None)
    assert outcome(found) is Outcome.TOO_FEW


def of(ratio: float, low: float, high: float) -> Comparison:
    return Comparison(ratio=ratio, low=low, high=high, p_value=0.01, n_first=5, n_second=5)


@pytest.mark.parametrize(
    ("comparison", "said"),
    [
        (of(1.5, 1.2, 1.8), Outcome.FASTER),
        (of(0.5, 0.4, 0.6), Outcome.SLOWER),
        (of(1.5, 0.9, 2.5), Outcome.NO_DIFFERENCE),
        (of(1.5, 1.0, 2.5), Outcome.NO_DIFFERENCE),
        (of(1.015, 1.01, 1.02), Outcome.NO_DIFFERENCE),
        (of(1 / 1.015, 0.97, 0.99), Outcome.NO_DIFFERENCE),
        (of(1.03, 1.01, 1.05), Outcome.FASTER),
    ],
)
def test_a_difference_excludes_one_and_exceeds_two_percent(
    comparison: Comparison, said: Outcome
) -> None:
    assert outcome(comparison) is said


def test_within_a_family_the_corrected_p_value_decides() -> None:
    assert outcome(of(1.5, 1.2, 1.8), adjusted_p=0.2) is Outcome.NO_DIFFERENCE
    assert outcome(of(1.5, 1.2, 1.8), adjusted_p=0.04) is Outcome.FASTER


def test_holm_by_hand() -> None:
    # Sorted .01 .02 .03 .04 times 4 3 2 1: .04 .06 .06 .04, made monotonous.
    family = pd.Series([0.03, 0.01, math.nan, 0.04, 0.02])
    adjusted = [0.06, 0.04, math.nan, 0.06, 0.06]
    assert list(holm(family)) == pytest.approx(adjusted, nan_ok=True)
    assert holm(family[:0]).empty


def test_the_lucky_launch_of_a_setting_does_not_choose_itself() -> None:
    # Setting 1 is best only thanks to launch 2; without it setting 0 is.
    found = choose_best([{0: 100, 1: 100, 2: 100}, {0: 90, 1: 90, 2: 1000}])
    assert found.chosen.to_dict() == {0: 1, 1: 1, 2: 0}
    assert found.values.to_dict() == {0: 90, 1: 90, 2: 100}
    assert (found.favourite, found.votes) == (1, 2)


def test_where_nothing_is_to_be_chosen_or_was_measured() -> None:
    found = choose_best([{4: 7.0}])
    assert (found.values.to_dict(), found.favourite) == ({4: 7.0}, 0)
    # A repetition without the chosen candidate has no value.
    found = choose_best([{0: 10.0, 1: 10.0}, {0: 5.0, 1: 5.0, 2: 5.0}])
    assert found.values.to_dict() == {0: 10.0, 1: 10.0}
    # One launch each leaves nothing to choose on.
    found = choose_best([{0: 10.0}, {0: 5.0}])
    assert (found.values.to_dict(), found.favourite, found.votes) == ({}, None, 0)


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
    assert one.low == (None if other.low is None else pytest.approx(other.low, rel=1e-6))
    assert one.p_value == (None if other.p_value is None else pytest.approx(other.p_value))


@given(values=st.dictionaries(st.integers(0, 9), RATES, min_size=3), factor=RATES)
def test_the_unit_of_rates_does_not_matter(values: dict[int, float], factor: float) -> None:
    found = compare({key: value * factor for key, value in values.items()}, values)
    assert found.ratio == pytest.approx(factor, rel=1e-6)


@given(p_values=st.lists(st.floats(0, 1), max_size=12))
def test_holm_never_helps_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = list(holm(pd.Series(p_values, dtype=float)))
    assert all(p <= q <= 1 for p, q in zip(p_values, adjusted, strict=True))
    ranked = [q for _, q in sorted(zip(p_values, adjusted, strict=True))]
    assert ranked == sorted(ranked)


@given(candidates=st.lists(LAUNCHES, min_size=1, max_size=4))
def test_selected_values_are_values_of_the_chosen(candidates: list[dict[int, float]]) -> None:
    found = choose_best(candidates)
    assert list(found.values.index) == list(found.chosen.index)
    for repetition, value in found.values.to_dict().items():
        assert value == candidates[found.chosen.to_dict()[repetition]][int(str(repetition))]
