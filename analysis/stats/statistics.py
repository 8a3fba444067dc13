"""How sure we are: means and ratios over launches, with their errors.

Decides the statistics of the suite.  The unit is the launch: steps within one launch are no
independent replicates.  Rates are averaged and compared on the logarithm, so a ratio and its
inverse say the same thing.  Everything is pure: numbers in, numbers out.  What may be said of a
ratio is decided in `decision`; how many launches are made is not decided here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

#: Below it there is no interval and no verdict: two launches say next to nothing about spread.
MIN_LAUNCHES = 3
CONFIDENCE = 0.95

#: Nobody launches a point more often to learn a cause.
MOST_TO_TELL = 100

#: A centre and the ends of its interval; None where they are unknown.
Ends = tuple[float | None, float | None, float | None]

Logs = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over launches with its 95 % interval.

    Attributes:
        mean: geometric mean of what is positive, in the unit of the values.
        low, high: None below `MIN_LAUNCHES` launches.
    """

    mean: float
    low: float | None
    high: float | None

    @property
    def ends(self) -> Ends:
        """The mean and its interval."""
        return self.mean, self.low, self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The ratio of two points' rates, and Student's t of its logarithm.

    Attributes:
        ratio: first over second, of geometric means; None without a launch on either side.
        error: standard error of the logarithm of the ratio; None below `MIN_LAUNCHES` launches.
        freedom: degrees of freedom of the error.
        n_first, n_second: launches that were used.
    """

    ratio: float | None
    error: float | None = None
    freedom: float = math.nan
    n_first: int
    n_second: int

    @property
    def ends(self) -> Ends:
        """The ratio and its 95 % interval."""
        return self.ratio, *self.interval(1 - CONFIDENCE)

    @property
    def p_value(self) -> float | None:
        """Two-sided, of the ratio being 1; None where there is no error."""
        if self.error is None:
            return None
        return min(1.0, 2 * min(self.p_at_most(0.0), self.p_at_least(0.0)))

    def interval(self, level: float) -> tuple[float | None, float | None]:
        """The ends of the two-sided interval that misses the ratio in so many cases (0 to 1)."""
        if self.ratio is None or self.error is None:
            return None, None
        half = self.error * float(stdtrit(self.freedom, 1 - level / 2))
        return self.ratio * math.exp(-half), self.ratio * math.exp(half)

    def p_at_most(self, log_ratio: float) -> float:
        """One-sided p-value of the logarithm of the ratio being at most so much; 1 if unknown."""
        return self._tail(1, log_ratio)

    def p_at_least(self, log_ratio: float) -> float:
        """One-sided p-value of the logarithm of the ratio being at least so much; 1 if unknown."""
        return self._tail(-1, log_ratio)

    def _tail(self, sign: int, log_ratio: float) -> float:
        if self.ratio is None or self.error is None:
            return 1.0
        beyond = sign * (math.log(self.ratio) - log_ratio)
        if self.error == 0.0:
            return 0.0 if beyond > 0.0 else 1.0
        return float(stdtr(self.freedom, -beyond / self.error))

    def inverse(self) -> Ratio:
        """The same with the sides exchanged."""
        return Ratio(
            ratio=None if self.ratio is None else 1 / self.ratio,
            error=self.error,
            freedom=self.freedom,
            n_first=self.n_second,
            n_second=self.n_first,
        )


def estimate(values: pd.Series | Sequence[float]) -> Estimate:
    """Geometric mean and t-interval on the logarithm.

    Raises:
        ValueError: there is no value, or one that is not positive.
    """
    logs = _logs(values)
    centre = float(logs.mean())
    if len(logs) < MIN_LAUNCHES:
        return Estimate(mean=math.exp(centre), low=None, high=None)
    error, freedom = _mean_error(logs)
    half = error * float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))
    return Estimate(
        mean=math.exp(centre), low=math.exp(centre - half), high=math.exp(centre + half)
    )


def mean_of(values: pd.Series) -> Estimate:
    """Arithmetic mean of costs, which add up, and its interval, which lies above 0.

    It is the t-interval of the logarithm of the mean (delta method: the error of the logarithm is
    the error of the mean over the mean).

    Args:
        values: at least one, all above 0.
    """
    known = values.to_numpy(dtype=np.float64)
    mean = float(known.mean())
    if len(known) < MIN_LAUNCHES:
        return Estimate(mean=mean, low=None, high=None)
    error, freedom = _mean_error(known)
    factor = math.exp(error / mean * float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)))
    return Estimate(mean=mean, low=mean / factor, high=mean * factor)


def _around(mean: float, error: float, freedom: float) -> Estimate:
    half = error * float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))
    return Estimate(mean=mean, low=mean - half, high=mean + half)


def launches_to_tell(known: Estimate, launches: int) -> int | None:
    """About how many launches it takes until a mean is surely not 0, if it stays what it is.

    The spread is taken from the interval of as many launches as there are, as of paired ones.

    Returns:
        None where no interval is known, or more than `MOST_TO_TELL` would be needed.
    """
    if known.low is None or known.high is None or not known.mean:
        return None
    share = 0.5 + CONFIDENCE / 2
    half = (known.high - known.low) / 2
    spread = half * math.sqrt(launches) / float(stdtrit(launches - 1, share))
    wanted = range(launches, MOST_TO_TELL + 1)
    halves = (spread * float(stdtrit(each - 1, share)) / math.sqrt(each) for each in wanted)
    found = (each for each, half in zip(wanted, halves, strict=True) if half < abs(known.mean))
    return next(found, None)


def compare(first: pd.Series, second: pd.Series) -> Ratio:
    """Ratio of two points: paired where enough turns are in both, else Welch on the logs.

    A sweep runs in turns, each of which holds every point once; launches of one turn share what
    drifts from turn to turn, and pairing takes it out.  Turns that only one side has are left out
    of a paired comparison.

    Args:
        first, second: a rate (or any positive value) of each launch, by turn (`data.cases`).
    """
    first, second, paired = _aligned(first, second)
    n, m = len(first), len(second)
    compared = partial(Ratio, n_first=n, n_second=m)
    if min(n, m) == 0:
        return compared(ratio=None)
    a, b = _logs(first), _logs(second)
    ratio = math.exp(float((a - b).mean() if paired else a.mean() - b.mean()))
    if min(n, m) < MIN_LAUNCHES:
        return compared(ratio=ratio)
    error, freedom = _mean_error(a - b) if paired else _welch_error(a, b)
    return compared(ratio=ratio, error=error, freedom=freedom)


def subtract(first: pd.Series, second: pd.Series) -> Estimate:
    """Difference of two points' means of what may be negative, as parts of steps are: seconds.

    Launches are paired as for ratios.  One launch beside several is held against the spread of
    these: its interval says where another launch of theirs would lie (prediction interval).

    Args:
        first, second: a value of each launch, by turn; at least one of each.
    """
    first, second, paired = _aligned(first, second)
    a, b = first.to_numpy(dtype=np.float64), second.to_numpy(dtype=np.float64)
    mean, (few, many) = float(a.mean() - b.mean()), sorted((len(a), len(b)))
    if many < MIN_LAUNCHES or 1 < few < MIN_LAUNCHES:
        return Estimate(mean=mean, low=None, high=None)
    if few == 1:
        several = a if len(a) > 1 else b
        error, freedom = float(several.std(ddof=1)) * math.sqrt(1 + 1 / many), many - 1.0
    else:
        error, freedom = _mean_error(a - b) if paired else _welch_error(a, b)
    return _around(mean, error, freedom)


def common_turns(first: pd.Series, second: pd.Series) -> pd.Index | None:
    """The turns in which launches of two points are pairs; None where there are not enough."""
    both = first.index.intersection(second.index)
    paired = len(both) >= MIN_LAUNCHES or len(both) == max(len(first), len(second))
    return both if paired else None


def _aligned(first: pd.Series, second: pd.Series) -> tuple[pd.Series, pd.Series, bool]:
    """Launches of the same turns and that they are pairs, or all launches."""
    both = common_turns(first, second)
    if both is None:
        return first, second, False
    if not first.index.equals(second.index):
        first, second = first.reindex(both), second.reindex(both)
    return first, second, True


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


def _logs(values: pd.Series | Sequence[float]) -> Logs:
    positive = np.asarray(values, dtype=np.float64)
    if not len(positive) or positive.min() <= 0.0:
        raise ValueError(f"a mean on the logarithm needs positive values, got {list(values)}")
    return np.asarray(np.log(positive))
