"""Whether the machine stayed what it was while a sweep was made, told from one point of it.

Decides which point is the sentinel (the single worker, which needs no network, else the one with
most launches) and what is drift: its rate at the start, in the middle and at the end of the sweep.
A sweep launches every point once per repetition, and may launch the sentinel more often.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from analysis.data.cases import Case, Point
from analysis.stats.statistics import CONFIDENCE, MIN_LAUNCHES, estimate

#: A larger drift is told on the first page.
DRIFT_LIMIT = 0.03

#: Every pair of a case asks for the drift of the same few cases.
_CASES = 16

STAGES = ("start", "middle", "end")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drift:
    """How the sentinel's rate went.

    Attributes:
        rates: geometric means of its launches at each of the `STAGES`.
        shown: its launches follow a trend that is larger than their spread explains.
    """

    sentinel: Point
    rates: tuple[float, ...]
    shown: bool

    @property
    def share(self) -> float:
        """How far the fastest stage was above the slowest one."""
        return max(self.rates) / min(self.rates) - 1

    @property
    def too_far(self) -> bool:
        """Above what is passed over."""
        return self.share > DRIFT_LIMIT


@lru_cache(maxsize=_CASES)
def drift_of(case: Case) -> Drift | None:
    """How the sentinel of a case drifted; None where no point was launched at every stage."""
    points = [point for point in case.points if len(point.rates) >= MIN_LAUNCHES]
    begun = case.attempts["started_at"]
    if not points or begun.min() == begun.max():
        return None
    sentinel = max(points, key=lambda p: (p.setting.traits.max_workers == 1, len(p.rates)))
    rates, times = sentinel.rates, _shares_of_time(case, sentinel)
    stages = [rates[(times * len(STAGES)).clip(upper=2.0).astype(int) == n] for n in range(3)]
    if any(stage.empty for stage in stages):
        return None
    return Drift(
        sentinel=sentinel,
        rates=tuple(estimate(stage).mean for stage in stages),
        shown=_follows_a_trend(times, rates),
    )


def _shares_of_time(case: Case, point: Point) -> pd.Series:
    """When each launch began, from 0 (the first run of the case) to 1 (the last one)."""
    begun = case.attempts["started_at"]
    since = point.launches.loc[point.rates.index, "started_at"] - begun.min()
    shares: pd.Series = since / (begun.max() - begun.min())
    return shares.astype(float)


def _follows_a_trend(times: pd.Series, rates: pd.Series) -> bool:
    """A straight line through the logarithms is not flat (t-test of its slope)."""
    if len(rates) <= MIN_LAUNCHES:
        return False
    # It takes half a second to import, and few reports need it.
    from scipy.stats import linregress

    return bool(linregress(times, np.log(rates)).pvalue < 1 - CONFIDENCE)
