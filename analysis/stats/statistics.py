"""How sure we are: intervals, comparisons and verdicts over launches.

Decides the statistics of the suite.  The unit is the launch: steps within one launch are no
independent replicates.  Rates are averaged and compared on the logarithm, so a ratio and its
inverse say the same thing.  Everything is pure: numbers in, numbers out.  How many launches are
made is not decided here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

#: Below it there is no interval and no verdict: two launches say next to nothing about spread.
MIN_LAUNCHES = 3
CONFIDENCE = 0.95
#: Smaller effects are not called a difference, however narrow the interval.
MIN_EFFECT = 0.02

#: A centre and the ends of its interval; None where they are unknown.
Ends = tuple[float | None, float | None, float | None]

Logs = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over launches with its 95 % interval.

    Attributes:
        mean: geometric mean, in the unit of the values.
        low, high: None below `MIN_LAUNCHES` launches.
    """

    mean: float
    low: float | None
    high: float | None

    @property
    def ends(self) -> Ends:
        """The mean and its interval."""
        return self.mean, self.low, self.high


class Outcome(StrEnum):
    """What may be said of two points."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference shown"
    TOO_FEW = "fewer than three launches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The ratio of two points' rates.

    Attributes:
        ratio: first over second, of geometric means; None without a launch on either side.
        low, high: 95 % interval, None below `MIN_LAUNCHES` launches.
        p_value: two-sided, of the ratio being 1; None as for the interval.
        n_first, n_second: launches that were used.
    """

    ratio: float | None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    n_first: int
    n_second: int

    @property
    def ends(self) -> Ends:
        """The ratio and its interval."""
        return self.ratio, self.low, self.high

    def inverse(self) -> Comparison:
        """The same comparison with the sides exchanged."""
        return Comparison(
            ratio=None if self.ratio is None else 1 / self.ratio,
            low=None if self.high is None else 1 / self.high,
            high=None if self.low is None else 1 / self.low,
            p_value=self.p_value,
            n_first=self.n_second,
            n_second=self.n_first,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Selection:
    """The best of several settings, chosen on other launches than those it is reported on.

    Attributes:
        values: for each turn, the rate of the setting that was best on all others.
        chosen: for each turn, the position of that setting.
    """

    values: pd.Series
    chosen: pd.Series

    @property
    def favourite(self) -> int | None:
        """The setting chosen most often, the first of equals; None where nothing was chosen."""
        return None if self.chosen.empty else int(self.chosen.mode().iloc[0])

    @property
    def votes(self) -> int:
        """How many turns chose the favourite."""
        return int((self.chosen == self.favourite).sum())


def estimate(values: pd.Series | Sequence[float]) -> Estimate:
    """Geometric mean and t-interval on the logarithm.

    Raises:
        ValueError: there is no value, or one that is not positive.
    """
    logs = _logs(values)
    centre = float(logs.mean())
    if len(logs) < MIN_LAUNCHES:
        return Estimate(mean=math.exp(centre), low=None, high=None)
    low, high = _interval(centre, *_mean_error(logs))
    return Estimate(mean=math.exp(centre), low=low, high=high)


def compare(first: pd.Series, second: pd.Series) -> Comparison:
    """Ratio of two points: paired where enough turns are in both, else Welch on the logs.

    A sweep runs in turns, each of which holds every point once; launches of one turn share what
    drifts from turn to turn, and pairing takes it out.  Turns that only one side has are left out
    of a paired comparison.

    Args:
        first, second: a rate (or any positive value) of each launch, by turn (`data.turns`).
    """
    both = pd.concat([first, second], axis="columns", join="inner")
    paired = len(both) >= MIN_LAUNCHES or len(both) == max(len(first), len(second))
    if paired:
        first, second = both.iloc[:, 0], both.iloc[:, 1]
    n, m = len(first), len(second)
    compared = partial(Comparison, n_first=n, n_second=m)
    if min(n, m) == 0:
        return compared(ratio=None)
    a, b = _logs(first), _logs(second)
    centre = float((a - b).mean() if paired else a.mean() - b.mean())
    if min(n, m) < MIN_LAUNCHES:
        return compared(ratio=math.exp(centre))
    error, freedom = _mean_error(a - b) if paired else _welch_error(a, b)
    low, high = _interval(centre, error, freedom)
    p_value = _p_value(centre, error, freedom)
    return compared(ratio=math.exp(centre), low=low, high=high, p_value=p_value)


def _mean_error(values: Logs) -> tuple[float, float]:
    """Standard error of the mean, and degrees of freedom."""
    n = len(values)
    return float(values.std(ddof=1)) / math.sqrt(n), n - 1


def _welch_error(a: Logs, b: Logs) -> tuple[float, float]:
    """The same of the difference of means whose variances differ (Welch 1947)."""
    n, m = len(a), len(b)
    part_a, part_b = float(a.var(ddof=1)) / n, float(b.var(ddof=1)) / m
    # Welch-Satterthwaite; without any spread the degrees of freedom do not matter.
    spread = part_a**2 / (n - 1) + part_b**2 / (m - 1)
    freedom = (part_a + part_b) ** 2 / spread if spread > 0 else n + m - 2
    return math.sqrt(part_a + part_b), freedom


def _p_value(centre: float, error: float, freedom: float) -> float:
    if error == 0.0:
        return 1.0 if centre == 0.0 else 0.0
    return float(2.0 * stdtr(freedom, -abs(centre) / error))


def _interval(centre: float, error: float, freedom: float) -> tuple[float, float]:
    half = error * float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))
    return math.exp(centre - half), math.exp(centre + half)


def _logs(values: pd.Series | Sequence[float]) -> Logs:
    positive = np.asarray(values, dtype=np.float64)
    if not len(positive) or positive.min() <= 0.0:
        raise ValueError(f"a mean on the logarithm needs positive values, got {list(values)}")
    return np.asarray(np.log(positive))


def outcome(comparison: Comparison, adjusted_p: float | None = None) -> Outcome:
    """What may be said: a difference needs an interval without 1 and an effect above 2 %.

    Args:
        comparison: first side over second.
        adjusted_p: within a family of comparisons, the p-value after `holm`; it decides instead of
            the interval, which is of this comparison alone.
    """
    ratio, low, high = comparison.ratio, comparison.low, comparison.high
    if ratio is None or low is None or high is None:
        return Outcome.TOO_FEW
    excludes_one = not low <= 1.0 <= high
    if adjusted_p is not None:
        excludes_one = adjusted_p < 1 - CONFIDENCE
    if not excludes_one or max(ratio, 1 / ratio) <= 1 + MIN_EFFECT:
        return Outcome.NO_DIFFERENCE
    return Outcome.FASTER if ratio > 1 else Outcome.SLOWER


def holm(p_values: pd.Series) -> pd.Series:
    """Adjusted p-values of a family, in the order given; NaN is no test (Holm 1979)."""
    ranked = p_values.dropna().sort_values(kind="stable")
    adjusted = (ranked * np.arange(len(ranked), 0, -1)).clip(upper=1.0).cummax()
    return adjusted.reindex(p_values.index)


def choose_best(candidates: Sequence[pd.Series]) -> Selection:
    """Select the fastest candidate without favouring it: leave one launch out.

    For each turn the candidate with the highest geometric mean over all *other* turns is chosen,
    and its rate in this turn is what counts.  The luckiest launch of the luckiest setting therefore
    gains nothing.  A turn that lacks the chosen candidate has no value.  One candidate needs no
    choice and keeps all its launches.

    Args:
        candidates: a rate of each launch, by turn.
    """
    if len(candidates) == 1:
        kept = candidates[0]
        return Selection(values=kept, chosen=pd.Series(0, index=kept.index))
    rates = pd.concat(candidates, axis="columns", ignore_index=True).sort_index()
    chosen = {turn: _best_without(rates, turn) for turn in rates.index}
    picks = pd.Series({key: pick for key, pick in chosen.items() if pick is not None}, dtype=int)
    values = pd.Series({key: rates[pick][key] for key, pick in picks.items()}, dtype=float)
    return Selection(values=values.dropna(), chosen=picks[values.notna()])


def _best_without(rates: pd.DataFrame, turn: object) -> int | None:
    """The position of the best candidate by all other turns; None where there is none."""
    means = np.log(rates.drop(index=turn)).mean()
    return int(means.idxmax()) if means.notna().any() else None
