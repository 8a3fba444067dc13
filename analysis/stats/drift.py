"""Whether the machine stayed what it was while a sweep was made, told from one point of it.

Decides which point is the sentinel (the single worker, which needs no network, else the one with
most launches) and what its drift is: its rate at its last launch over that at its first, along a
straight line through the logarithms of all of them.  The rule of decision says whether that is one.
A sweep launches every point once per repetition, and may launch the sentinel more often.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from analysis.data.cases import Case, Point
from analysis.stats.decision import MARGIN, Contest, Decision, Outcome, decide
from analysis.stats.statistics import MIN_LAUNCHES, Ratio

#: Every pair of a case asks for the drift of the same few cases.
_CASES = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drift:
    """How the sentinel's rate went.

    Attributes:
        decision: of its last launch over its first one.
    """

    sentinel: Point
    decision: Decision

    @property
    def is_shown(self) -> bool:
        """The rates are decided to differ."""
        return self.decision.outcome in (Outcome.FASTER, Outcome.SLOWER)

    @property
    def factor(self) -> float:
        """So many times as fast as the other may a side seem that was launched at a better time."""
        return math.exp(abs(math.log(self.decision.ratio or 1.0)))

    @property
    def told(self) -> str:
        """`the machine drifted: single was 1.10x [1.06, 1.15] as fast ...`."""
        ratio, low, high = (f"{end:.2f}" for end in self.decision.ends)
        said = _SAID.get(self.decision.outcome, "is not known to have drifted")
        return (
            f"the machine {said}: {self.sentinel.setting.label} was {ratio}x [{low}, {high}] as "
            f"fast at the last of {self.decision.n_first} launches as at the first"
        )


_SAID = {
    Outcome.FASTER: "drifted",
    Outcome.SLOWER: "drifted",
    Outcome.EQUAL: f"did not drift by more than {MARGIN:.0%}",
}


@lru_cache(maxsize=_CASES)
def drift_of(case: Case) -> Drift | None:
    """How the sentinel drifted; None where it was not launched in the first and last third.

    A line goes nearly through any three launches, so it takes more.
    """
    points = [point for point in case.points if len(point.rates) > MIN_LAUNCHES]
    begun = case.attempts["started_at"]
    if not points or begun.min() == begun.max():
        return None
    sentinel = max(points, key=lambda p: (p.setting.traits.max_workers == 1, len(p.rates)))
    times = _shares_of_time(case, sentinel)
    if times.min() > 1 / 3 or times.max() < 2 / 3:
        return None
    contest = Contest(comparisons=((_last_over_first(times, sentinel.rates),),))
    return Drift(sentinel=sentinel, decision=decide([contest])[0])


def _shares_of_time(case: Case, point: Point) -> pd.Series:
    """When each launch began, from 0 (the first run of the case) to 1 (the last one)."""
    begun = case.attempts["started_at"]
    since = point.launches.loc[point.rates.index, "started_at"] - begun.min()
    shares: pd.Series = since / (begun.max() - begun.min())
    return shares.astype(float)


def _last_over_first(times: pd.Series, rates: pd.Series) -> Ratio:
    """Along the line of least squares through the logarithms."""
    (slope, _), covariance = np.polyfit(times, np.log(rates), 1, cov=True)
    length, count = float(times.max() - times.min()), len(rates)
    return Ratio(
        ratio=math.exp(slope * length),
        error=math.sqrt(covariance[0, 0]) * length,
        freedom=count - 2,
        n_first=count,
        n_second=count,
    )
