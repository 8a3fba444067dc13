"""The one rule that says what may be said of two sides, and the one value that holds it.

Decides between *faster* (or slower), *equal within 3 %*, and *undecided*.  Headline, tables and
figures only show a `Decision`.  Formulas and sources are in `docs/method.md`:

- A side is faster if the interval of the ratio excludes 1 and the ratio lies outside 3 %.
- Two sides are equal if two one-sided tests show that the ratio lies inside 3 % (Schuirmann 1987).
- The best of several settings meets the best of several others without a choice beforehand: to be
  faster, one setting must beat every rival (Berger 1982), at a level that is divided by the number
  of settings that had the chance (Bonferroni).
- Comparisons that were not planned are corrected for their number (Holm 1979).
- A setting that is decided slower than another one of its side contends no more.
- A sweep that ends once its main interval is narrow enough tests that at a lower level.

Which points are compared is decided in `comparisons`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import stdtrit

from analysis.stats.statistics import CONFIDENCE, MIN_LAUNCHES, Ends, Ratio, compare, estimate

#: Two sides whose ratio lies within this share are called equal.
MARGIN = 0.03

#: More launches than these are not asked for.
MOST_MISSING = 200

#: Of tests and intervals that err in 5 % of cases, and of those of a sweep that ends once its
#: interval is narrow enough.  It ends sooner where launches happen to agree, so at 5 % it would err
#: in up to 7 %; at 3 % it errs in at most 5 %, whatever the spread of launches (by simulation).
LEVEL = 1 - CONFIDENCE
EARLY_STOPPING_LEVEL = 0.03

#: Of the tests by which settings leave their side.  A sweep asks before every turn: at 0.5 % two
#: equal settings are told apart in up to 3 % of sweeps, and the interval of the sides still misses
#: in at most 5 % (by simulation).
LEAVING_LEVEL = 0.005

_LOG_MARGIN = math.log1p(MARGIN)

Floats = npt.NDArray[np.float64]


class Outcome(StrEnum):
    """What may be said of the first of two sides."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUAL = "equal within 3 %"
    UNDECIDED = "undecided"
    TOO_FEW = "fewer than three launches ended well"
    NO_VERDICT = "no verdict"


#: Nothing may be said of the ratio.
UNSURE = (Outcome.TOO_FEW, Outcome.NO_VERDICT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """The best of some settings against the best of some others; mostly there is one of each.

    Attributes:
        comparisons: first over second, a row for each setting of the first side.
        best: the row and the column of the settings with the highest rates.
        doubt: the circumstance that takes the meaning away; empty if there is none.
    """

    comparisons: tuple[tuple[Ratio, ...], ...]
    best: tuple[int, int] = (0, 0)
    doubt: str = ""

    @classmethod
    def of(cls, first: Sequence[pd.Series], second: Sequence[pd.Series]) -> Contest:
        """Settings of two sides by their launches, the best by their means.

        Args:
            first, second: of each setting a positive value of each launch, by turn.
        """
        rows = tuple(tuple(compare(one, other) for other in second) for one in first)
        return cls(comparisons=rows, best=(_highest(first), _highest(second)))

    @property
    def shown(self) -> Ratio:
        """Of the two best settings."""
        return self.comparisons[self.best[0]][self.best[1]]

    def p_at_most(self, log_ratio: float) -> float:
        """One-sided p-value of the ratio of the two best being at most so much (logarithm)."""
        rows = [max(each.p_at_most(log_ratio) for each in row) for row in self.comparisons]
        return min(1.0, len(rows) * min(rows))

    def p_at_least(self, log_ratio: float) -> float:
        """One-sided p-value of the ratio of the two best being at least so much (logarithm)."""
        columns = [max(e.p_at_least(log_ratio) for e in column) for column in self._columns()]
        return min(1.0, len(columns) * min(columns))

    @property
    def p_different(self) -> float:
        """Two-sided p-value of the two best being the same."""
        return min(1.0, 2 * min(self.p_at_most(0.0), self.p_at_least(0.0)))

    @property
    def p_equal(self) -> float:
        """The larger p-value of two one-sided tests of the ratio lying outside the margin."""
        return max(self.p_at_most(-_LOG_MARGIN), self.p_at_least(_LOG_MARGIN))

    def interval(self, level: float) -> tuple[float | None, float | None]:
        """The two-sided interval of the ratio of the two best."""
        if self.shown.ratio is None or self.shown.error is None:
            return None, None
        lows = [min(_ends(row, level / len(self.comparisons), 0)) for row in self.comparisons]
        columns = self._columns()
        highs = [max(_ends(column, level / len(columns), 1)) for column in columns]
        # Where launches are missing, the two best may have met in other turns than the rest.
        return min(self.shown.ratio, max(lows)), max(self.shown.ratio, min(highs))

    @property
    def testable(self) -> bool:
        """There are enough launches, and no circumstance takes the meaning away."""
        return self.shown.error is not None and not self.doubt

    def showing(self, level: float) -> Contest:
        """The same contest, told of settings that show a difference where the two best do not.

        The highest of a few rates may vary too much to show what another setting shows.
        """
        inverse = [tuple(each.inverse() for each in column) for column in self._columns()]
        row, column = self.best
        return replace(
            self, best=(_showing(self.comparisons, row, level), _showing(inverse, column, level))
        )

    def _columns(self) -> list[tuple[Ratio, ...]]:
        return list(zip(*self.comparisons, strict=True))


def _highest(settings: Sequence[pd.Series]) -> int:
    if len(settings) == 1:
        return 0
    return max(range(len(settings)), key=lambda number: estimate(settings[number]).mean)


def _showing(rows: Sequence[tuple[Ratio, ...]], best: int, level: float) -> int:
    """The best setting, unless only others show that they are faster than every rival."""
    shown = [number for number, row in enumerate(rows) if _shows(row, level / len(rows))]
    if best in shown or not shown:
        return best
    return max(shown, key=lambda number: rows[number][0].ratio or 0.0)


def _shows(comparisons: Sequence[Ratio], level: float) -> bool:
    least = [(each.ratio or 0.0, each.interval(level)[0] or 0.0) for each in comparisons]
    return all(ratio > 1 + MARGIN and low > 1 for ratio, low in least)


def _ends(comparisons: Sequence[Ratio], level: float, end: int) -> list[float]:
    ends = [comparison.interval(level)[end] for comparison in comparisons]
    return [math.nan if each is None else each for each in ends]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What may be said of two sides, and from what.

    Attributes:
        outcome: of the first side.
        ratio: first over second; None without a launch on either side.
        low, high: the interval that tells a difference, corrected like the decision: it excludes 1
            exactly if a difference is shown.  None without enough launches.
        p_value: two-sided, of no difference, corrected; None without a test.
        n_first, n_second: launches that were used.
        missing: about how many more launches of each side would decide; None if it is decided, or
            if `MOST_MISSING` would not do.
        doubt: the circumstance that leaves no verdict; empty with any other outcome.
        planned: it is not corrected for the number of all pairs.
    """

    outcome: Outcome
    ratio: float | None
    low: float | None
    high: float | None
    p_value: float | None
    n_first: int
    n_second: int
    missing: int | None = None
    doubt: str = ""
    planned: bool = False

    @property
    def ends(self) -> Ends:
        """The ratio and its interval."""
        return self.ratio, self.low, self.high

    @property
    def half_width(self) -> float | None:
        """How far the interval reaches to either side, as a share of the ratio."""
        if self.low is None or self.high is None:
            return None
        return math.expm1(math.log(self.high / self.low) / 2)

    def inverse(self) -> Decision:
        """The same decision told of the other side."""
        return replace(
            self,
            outcome=_INVERSE.get(self.outcome, self.outcome),
            ratio=None if self.ratio is None else 1 / self.ratio,
            low=None if self.high is None else 1 / self.high,
            high=None if self.low is None else 1 / self.low,
            n_first=self.n_second,
            n_second=self.n_first,
        )


_INVERSE = {Outcome.FASTER: Outcome.SLOWER, Outcome.SLOWER: Outcome.FASTER}


def decide(family: Sequence[Contest], level: float = LEVEL) -> list[Decision]:
    """Decide a family of comparisons, corrected for their number; one alone is not corrected.

    Either kind of claim, a difference and equality, is wrong anywhere in the family with a
    probability of at most `level`.
    """
    different = holm(_p_values(family, lambda contest: contest.p_different))
    equal = holm(_p_values(family, lambda contest: contest.p_equal))
    return [
        _decided(contest, level, share, (float(p_different), float(p_equal)))
        for contest, share, p_different, p_equal in zip(
            family, _shares(family, level), different, equal, strict=True
        )
    ]


def intervals(family: Sequence[Contest], level: float = LEVEL) -> list[Ends]:
    """The ratio and the interval of each, corrected as `decide` corrects it, for doubts."""
    shares = _shares(family, level)
    return [
        (contest.shown.ratio, *contest.interval(share))
        for contest, share in zip(family, shares, strict=True)
    ]


def _shares(family: Sequence[Contest], level: float) -> list[float]:
    """What the correction leaves of the level for each interval.

    One in doubt leaves the family, but shows the interval that the doubt was held against.
    """
    different = _p_values(family, lambda contest: contest.p_different)
    shares = level / _divisors(different, level)
    in_doubt = np.array([bool(contest.doubt) for contest in family], dtype=bool)
    if in_doubt.any():
        before = _shares([replace(contest, doubt="") for contest in family], level)
        shares = np.where(in_doubt, before, shares)
    return [float(share) for share in shares]


def still_open(settings: Sequence[pd.Series]) -> list[int]:
    """The settings of one side that may still be its best one, by their numbers; never none.

    Those leave that are decided slower than another one, corrected for the number of others.  What
    has left stays so while others are launched on, as their launches of later turns are no pairs.

    Args:
        settings: of each a positive value of each launch, by turn.
    """
    slower: set[int] = set()
    for one, other in combinations(range(len(settings)), 2):
        contest = Contest.of([settings[one]], [settings[other]])
        (decision,) = decide([contest], LEAVING_LEVEL / (len(settings) - 1))
        slower |= {Outcome.SLOWER: {one}, Outcome.FASTER: {other}}.get(decision.outcome, set())
    return [number for number in range(len(settings)) if number not in slower]


def _p_values(family: Sequence[Contest], p_value: Callable[[Contest], float]) -> Floats:
    """NaN where there is no test."""
    return np.array([p_value(each) if each.testable else math.nan for each in family], dtype=float)


def _decided(
    contest: Contest, level: float, share: float, p_values: tuple[float, float]
) -> Decision:
    """A decision from corrected p-values.

    Args:
        level: that the p-values are held against.
        share: of the level, what the correction leaves for the interval.
    """
    comparison, p_different = contest.shown, p_values[0]
    outcome = _outcome(contest, level, p_values)
    low, high = contest.interval(share)
    return Decision(
        outcome=outcome,
        ratio=comparison.ratio,
        low=low,
        high=high,
        p_value=None if math.isnan(p_different) else p_different,
        n_first=comparison.n_first,
        n_second=comparison.n_second,
        missing=_missing(contest, outcome, share),
        doubt=contest.doubt if outcome is Outcome.NO_VERDICT else "",
    )


def _outcome(contest: Contest, level: float, p_values: tuple[float, float]) -> Outcome:
    ratio = contest.shown.ratio
    if contest.doubt:
        return Outcome.NO_VERDICT
    if ratio is None or contest.shown.error is None:
        return Outcome.TOO_FEW
    different, equal = (p_value < level for p_value in p_values)
    if equal:
        return Outcome.EQUAL
    if different and abs(math.log(ratio)) > _LOG_MARGIN:
        return Outcome.FASTER if ratio > 1 else Outcome.SLOWER
    return Outcome.UNDECIDED


def _missing(contest: Contest, outcome: Outcome, share: float) -> int | None:
    """How many more launches would decide if their mean and spread stayed what they are."""
    comparison = contest.shown
    launches = min(comparison.n_first, comparison.n_second)
    if outcome is Outcome.TOO_FEW:
        return MIN_LAUNCHES - launches
    if outcome is not Outcome.UNDECIDED or comparison.ratio is None or comparison.error is None:
        return None
    more = np.arange(1, MOST_MISSING + 1)
    error = comparison.error * np.sqrt(launches / (launches + more))
    freedom = comparison.freedom * (launches + more - 1) / (launches - 1)
    far = abs(math.log(comparison.ratio))
    chances = len(contest.comparisons) * len(contest.comparisons[0])
    if far > _LOG_MARGIN:
        decided = far > stdtrit(freedom, 1 - share / chances / 2) * error
    else:
        decided = _LOG_MARGIN - far > stdtrit(freedom, 1 - share / chances) * error
    return int(more[decided][0]) if decided.any() else None


def holm(p_values: Floats) -> Floats:
    """Adjusted p-values of a family, in the order given; NaN is no test (Holm 1979)."""
    order = _ranked(p_values)
    adjusted = np.full(len(p_values), math.nan)
    divisors = np.arange(len(order), 0, -1)
    adjusted[order] = np.maximum.accumulate(np.minimum(p_values[order] * divisors, 1.0))
    return adjusted


def _divisors(p_values: Floats, level: float) -> Floats:
    """What the level of each interval is divided by, so that it agrees with Holm's decision.

    Up to the first that is not shown, Holm's own divisors; all others share its divisor.  1 where
    there is no test.
    """
    order = _ranked(p_values)
    divisors = np.ones(len(p_values))
    shown = int((holm(p_values) < level).sum())
    divisors[order] = np.maximum(np.arange(len(order), 0, -1), len(order) - shown)
    return divisors


def _ranked(p_values: Floats) -> npt.NDArray[np.intp]:
    """The positions of the tests, the smallest p-value first."""
    return np.argsort(p_values, kind="stable")[: int((~np.isnan(p_values)).sum())]
