"""How sure we are: intervals, comparisons and verdicts over launches.

Decides the statistics of the suite.  The unit is the launch: steps within one launch are no
independent replicates.  Rates are averaged and compared on the logarithm, so a ratio and its
inverse say the same thing.  Everything is pure: numbers in, numbers out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

#: Below it there is no interval and no verdict: two launches say next to nothing about spread.
MIN_LAUNCHES = 3
CONFIDENCE = 0.95
#: Smaller effects are not called a difference, however narrow the interval.
MIN_EFFECT = 0.02

#: A rate (or any positive value) of each launch, by repetition.
Launches = Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over launches with its 95 % interval.

    Attributes:
        mean: geometric mean, in the unit of the values.
        low, high: None below `MIN_LAUNCHES` launches.
        n: launches.
    """

    mean: float
    low: float | None
    high: float | None
    n: int


class Pairing(StrEnum):
    """How the launches of two points were set against each other."""

    PAIRED = "paired by repetition"
    WELCH = "unpaired (Welch)"


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
    pairing: Pairing

    def inverse(self) -> Comparison:
        """The same comparison with the sides exchanged."""
        return Comparison(
            ratio=None if self.ratio is None else 1 / self.ratio,
            low=None if self.high is None else 1 / self.high,
            high=None if self.low is None else 1 / self.low,
            p_value=self.p_value,
            n_first=self.n_second,
            n_second=self.n_first,
            pairing=self.pairing,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The best of several settings, chosen on other launches than those it is reported on.

    Attributes:
        values: for each repetition, the rate of the setting that was best on all others.
        chosen: for each repetition, the position of that setting.
    """

    values: Launches
    chosen: Mapping[int, int]

    @property
    def favourite(self) -> int | None:
        """The setting chosen most often, the first of equals; None where nothing was chosen."""
        picks = list(self.chosen.values())
        return max(sorted(set(picks)), key=picks.count) if picks else None

    @property
    def votes(self) -> int:
        """How many repetitions chose the favourite."""
        return sum(1 for pick in self.chosen.values() if pick == self.favourite)


def estimate(values: Sequence[float]) -> Estimate:
    """Geometric mean and t-interval on the logarithm.

    Raises:
        ValueError: there is no value, or one that is not positive.
    """
    logs = _logs(values)
    centre = float(logs.mean())
    if len(logs) < MIN_LAUNCHES:
        return Estimate(mean=math.exp(centre), low=None, high=None, n=len(logs))
    half = _half_width(float(logs.std(ddof=1)) / math.sqrt(len(logs)), len(logs) - 1)
    return Estimate(
        mean=math.exp(centre),
        low=math.exp(centre - half),
        high=math.exp(centre + half),
        n=len(logs),
    )


def compare(first: Launches, second: Launches) -> Comparison:
    """Ratio of two points: paired where enough repetitions are in both, else Welch on the logs.

    Sweeps run in blocks, each of which holds every point once; launches of one repetition share
    what drifts from block to block, and pairing takes it out.  Repetitions that only one side
    completed are left out of a paired comparison.
    """
    common = sorted(set(first) & set(second))
    if len(common) >= MIN_LAUNCHES or len(common) == max(len(first), len(second)):
        return _paired([first[key] for key in common], [second[key] for key in common])
    return _welch(list(first.values()), list(second.values()))


def _paired(first: Sequence[float], second: Sequence[float]) -> Comparison:
    n = len(first)
    if n == 0:
        return Comparison(ratio=None, n_first=0, n_second=0, pairing=Pairing.PAIRED)
    differences = _logs(first) - _logs(second)
    centre = float(differences.mean())
    if n < MIN_LAUNCHES:
        return _without_interval(centre, n, n, Pairing.PAIRED)
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    return _with_interval(centre, error, n - 1, n, n, Pairing.PAIRED)


def _welch(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """Welch's unequal variances test on the logarithms (Welch 1947)."""
    n, m = len(first), len(second)
    if min(n, m) == 0:
        return Comparison(ratio=None, n_first=n, n_second=m, pairing=Pairing.WELCH)
    a, b = _logs(first), _logs(second)
    centre = float(a.mean() - b.mean())
    if min(n, m) < MIN_LAUNCHES:
        return _without_interval(centre, n, m, Pairing.WELCH)
    part_a, part_b = float(a.var(ddof=1)) / n, float(b.var(ddof=1)) / m
    total = part_a + part_b
    # Welch-Satterthwaite; without any spread the degrees of freedom do not matter.
    spread = part_a**2 / (n - 1) + part_b**2 / (m - 1)
    freedom = total**2 / spread if spread > 0 else float(n + m - 2)
    return _with_interval(centre, math.sqrt(total), freedom, n, m, Pairing.WELCH)


def _without_interval(centre: float, n: int, m: int, pairing: Pairing) -> Comparison:
    return Comparison(ratio=math.exp(centre), n_first=n, n_second=m, pairing=pairing)


def _with_interval(
    centre: float, error: float, freedom: float, n: int, m: int, pairing: Pairing
) -> Comparison:
    half = _half_width(error, freedom)
    return Comparison(
        ratio=math.exp(centre),
        low=math.exp(centre - half),
        high=math.exp(centre + half),
        p_value=_p_value(centre, error, freedom),
        n_first=n,
        n_second=m,
        pairing=pairing,
    )


def _p_value(centre: float, error: float, freedom: float) -> float:
    if error == 0.0:
        return 1.0 if centre == 0.0 else 0.0
    return float(2.0 * stats.t.sf(abs(centre) / error, freedom))


def _half_width(error: float, freedom: float) -> float:
    return error * float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom))


def _logs(values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if not values or min(values) <= 0.0:
        raise ValueError(f"a mean on the logarithm needs positive values, got {list(values)}")
    return np.log(np.asarray(values, dtype=np.float64))


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


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of a family, in the order given (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = largest
    return adjusted


def choose_best(candidates: Sequence[Launches]) -> Selection:
    """Select the fastest candidate without favouring it: leave one launch out.

    For each repetition the candidate with the highest geometric mean over all *other* repetitions
    is chosen, and its rate in this repetition is what counts.  The luckiest launch of the luckiest
    setting therefore gains nothing.  A repetition that the chosen candidate did not complete has
    no value.  One candidate needs no choice and keeps all its launches.
    """
    if len(candidates) == 1:
        return Selection(values=dict(candidates[0]), chosen=dict.fromkeys(candidates[0], 0))
    values: dict[int, float] = {}
    chosen: dict[int, int] = {}
    for repetition in sorted({key for candidate in candidates for key in candidate}):
        pick = _best_without(candidates, repetition)
        if pick is not None and repetition in candidates[pick]:
            chosen[repetition] = pick
            values[repetition] = candidates[pick][repetition]
    return Selection(values=values, chosen=chosen)


def _best_without(candidates: Sequence[Launches], repetition: int) -> int | None:
    means = {
        index: float(_logs(others).mean())
        for index, candidate in enumerate(candidates)
        if (others := [value for key, value in candidate.items() if key != repetition])
    }
    return max(means, key=lambda index: means[index]) if means else None
