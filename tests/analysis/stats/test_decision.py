"""The rule of decision: what it says, and how often it is wrong."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit

from analysis.stats.decision import (
    EARLY_STOPPING_LEVEL,
    MARGIN,
    Contest,
    Decision,
    Outcome,
    decide,
    holm,
    intervals,
)
from analysis.stats.statistics import Ratio, compare
from tests.examples import fast


def comparison(ratio: float, error: float | None, launches: int = 5) -> Ratio:
    return Ratio(
        ratio=ratio, error=error, freedom=launches - 1, n_first=launches, n_second=launches
    )


def contest(ratio: float, error: float | None, launches: int = 5) -> Contest:
    return Contest(comparisons=((comparison(ratio, error, launches),),))


def decided(ratio: float, error: float | None, launches: int = 5) -> Decision:
    (decision,) = decide([contest(ratio, error, launches)])
    return decision


@pytest.mark.parametrize(
    ("ratio", "error", "said"),
    [
        (1.5, 0.05, Outcome.FASTER),
        (0.5, 0.05, Outcome.SLOWER),
        (1.5, 0.5, Outcome.UNDECIDED),
        (1.0, 0.005, Outcome.EQUAL),
        (1.02, 0.002, Outcome.EQUAL),
        (1 / 1.02, 0.002, Outcome.EQUAL),
        # A difference is shown, but not one that counts, nor that there is none that counts.
        (1.025, 0.005, Outcome.UNDECIDED),
        (1.05, 0.01, Outcome.FASTER),
        (1.5, None, Outcome.TOO_FEW),
    ],
)
def test_one_rule_says_what_may_be_said(ratio: float, error: float | None, said: Outcome) -> None:
    assert decided(ratio, error).outcome is said


def test_equality_takes_two_one_sided_tests() -> None:
    # t(0.95, 4) = 2.131847: the 90 % interval of a ratio of 1 just ends at the margin.
    edge = math.log1p(MARGIN) / 2.131847
    assert decided(1.0, edge * 0.999).outcome is Outcome.EQUAL
    assert decided(1.0, edge * 1.001).outcome is Outcome.UNDECIDED


def test_the_launches_that_are_missing_would_decide() -> None:
    for ratio, error in ((1.1, 0.06), (1.01, 0.02), (0.9, 0.05)):
        found = decided(ratio, error)
        assert found.missing is not None
        for launches, enough in ((4 + found.missing, False), (5 + found.missing, True)):
            later = decided(ratio, error * math.sqrt(5 / launches), launches)
            assert (later.outcome is not Outcome.UNDECIDED) is enough
    assert decided(1.03, 0.5).missing is None
    assert decided(2.0, None, 1).missing == 2
    assert decided(1.5, 0.01).missing is None


def test_a_circumstance_takes_any_decision_away() -> None:
    sure = contest(2.0, 0.01)
    doubtful, other = decide([replace(sure, doubt="the machine drifted"), sure])
    assert (doubtful.outcome, doubtful.doubt) == (Outcome.NO_VERDICT, "the machine drifted")
    assert doubtful.p_value is None
    assert doubtful.ends == intervals([sure, sure])[0]  # which the doubt was held against
    # It may be why there are so few launches.
    (too_few,) = decide([replace(contest(2.0, None), doubt="others failed")])
    assert (too_few.outcome, too_few.missing) == (Outcome.NO_VERDICT, None)
    # It does not count among the comparisons of its family either.
    assert other == decided(2.0, 0.01)


def test_holm_by_hand() -> None:
    # Sorted .01 .02 .03 .04 times 4 3 2 1: .04 .06 .06 .04, made monotonous.
    family = np.array([0.03, 0.01, math.nan, 0.04, 0.02])
    adjusted = [0.06, 0.04, math.nan, 0.06, 0.06]
    assert list(holm(family)) == pytest.approx(adjusted, nan_ok=True)
    assert len(holm(family[:0])) == 0


@given(p_values=st.lists(st.floats(0, 1), max_size=12))
def test_holm_never_helps_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = list(holm(np.array(p_values)))
    assert all(p <= q <= 1 for p, q in zip(p_values, adjusted, strict=True))
    ranked = [q for _, q in sorted(zip(p_values, adjusted, strict=True))]
    assert ranked == sorted(ranked)


CONTESTS = st.builds(contest, st.floats(0.5, 2.0), st.floats(0.001, 0.2), st.integers(3, 9))


@fast
@given(family=st.lists(CONTESTS, min_size=1, max_size=8))
def test_an_interval_and_its_decision_agree_in_any_family(family: list[Contest]) -> None:
    # Doubts are held against these.
    assert intervals(family) == [each.ends for each in decide(family)]
    for decision in decide(family):
        assert decision.ratio is not None
        assert decision.low is not None
        assert decision.high is not None
        assert decision.p_value is not None
        assert decision.low <= decision.ratio <= decision.high
        assert (decision.p_value < 0.05) is not (decision.low <= 1.0 <= decision.high)
        if decision.outcome in (Outcome.FASTER, Outcome.SLOWER):
            assert decision.p_value < 0.05
        assert decision.inverse().inverse().outcome is decision.outcome
        assert decision.inverse().ends[1:] == (1 / decision.high, 1 / decision.low)


def test_the_best_of_several_must_beat_every_rival() -> None:
    row = (comparison(1.3, 0.01), comparison(1.1, 0.2))
    several = Contest(comparisons=(row,), best=(0, 1))
    # One rival that may be as fast leaves it open, however clear the other one is.
    assert decide([several])[0].outcome is Outcome.UNDECIDED
    # Two candidates on the side that is faster have two chances: its p-value is doubled.
    two = Contest(comparisons=((row[0],), (comparison(1.0, 0.01),)))
    (found,), alone = decide([two]), decided(1.3, 0.01)
    assert found.p_value == pytest.approx(2 * (alone.p_value or 0.0))
    assert found.outcome is Outcome.FASTER


def simulated(settings: tuple[int, int], launches: int, seed: int) -> Contest:
    """A sweep of equal settings that share what drifts from turn to turn."""
    random = np.random.default_rng(seed)
    turns = random.normal(0.0, 0.05, launches)
    one, other = (
        [pd.Series(np.exp(turns + random.normal(0.0, 0.02, launches))) for _ in range(count)]
        for count in settings
    )
    rows = tuple(tuple(compare(first, second) for second in other) for first in one)
    best = int(np.argmax([r.mean() for r in one])), int(np.argmax([r.mean() for r in other]))
    return Contest(comparisons=rows, best=best)


@pytest.mark.parametrize("settings", [(1, 1), (1, 2), (1, 4), (3, 3)])
def test_choosing_the_best_raises_no_false_alarms(settings: tuple[int, int]) -> None:
    alarms = sum(
        decide([simulated(settings, 4, seed)])[0].outcome in (Outcome.FASTER, Outcome.SLOWER)
        for seed in range(1000)
    )
    # Of 1,000 at 5 %, 64 is the 97.5 % point of the binomial distribution.
    assert alarms <= 64


#: Launches at which a sweep looks first, and after which it ends in any case.
FEWEST, MOST = 5, 30

#: Half of the width of the interval with which it ends.
NARROW = 0.02


@pytest.mark.parametrize("spread", [0.005, 0.01, 0.02, 0.03, 0.05, 0.1])
def test_sweeps_that_end_once_they_are_narrow_miss_in_at_most_five_of_a_hundred(
    spread: float,
) -> None:
    sweeps = 4000
    logs = np.random.default_rng(1).normal(0.0, spread, (sweeps, MOST))
    counts = np.arange(1, MOST + 1)
    means = logs.cumsum(axis=1) / counts
    squares = (logs**2).cumsum(axis=1) - counts * means**2
    errors = np.sqrt(squares / np.maximum(counts - 1, 1) / counts)
    halves = errors * stdtrit(np.maximum(counts - 1, 1), 1 - EARLY_STOPPING_LEVEL / 2)
    may_end = (np.expm1(halves) <= NARROW) & (counts >= FEWEST) | (counts == MOST)
    missed = 0
    for number, end in enumerate(may_end.argmax(axis=1)):
        comparison = Ratio(
            ratio=math.exp(means[number, end]),
            error=float(errors[number, end]),
            freedom=float(end),
            n_first=int(end) + 1,
            n_second=int(end) + 1,
        )
        (found,) = decide([Contest(comparisons=((comparison,),))], EARLY_STOPPING_LEVEL)
        assert found.low is not None
        assert found.high is not None
        missed += not found.low <= 1.0 <= found.high
    # 3 % would miss if nobody looked; of 4,000 at 5 %, 227 is the 97.5 % point.
    assert 0.02 * sweeps < missed <= 227


def test_another_setting_is_told_of_only_where_it_beats_every_rival() -> None:
    noisy, clear, equal = comparison(1.3, 0.5), comparison(1.2, 0.01), comparison(1.0, 0.01)
    for rivals, row in (((clear, clear), 1), ((clear, equal), 0)):
        rates = Contest(comparisons=((noisy, noisy), rivals))
        assert rates.showing(0.05).best[0] == row
