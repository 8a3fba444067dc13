"""Circumstances that take the meaning away from a comparison, so that nothing is decided.

Decides which they are: other programs that used the processors, processors that were the limit
where the network should have been, a worker that made most of the steps, sides whose attempts
failed unequally often, launches that did not reach a value, and a machine that drifted.  Other
programs and drift take nothing away from a difference that is far larger than what they could
explain; of launches that are pairs, drift explains no more than what it makes in the time between
them.  Doubts that leave a comparison its meaning are told in `report.circumstances`.

Decides also whether the machine drifted, in each job for itself, told from one point, the sentinel:
the single worker, which needs no network, else the point with most launches.  Its drift is its rate
at its last launch over that at its first, along a straight line through the logarithms of all of
them that other programs did not disturb.  The rule of decision says whether that is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from analysis.data.cases import Case, Point
from analysis.data.metric import RATE, Metric
from analysis.stats.decision import MARGIN, Contest, Decision, Outcome, decide
from analysis.stats.statistics import MIN_LAUNCHES, Ends, Ratio, common_turns
from analysis.wording import factor_text, range_text
from ps_allreduce.record.records import BUSY_LIMIT, FOREIGN_LIMIT, Status

#: A worker that makes more than so many times the mean of the others makes steps for them.
UNEVEN = 2.0

#: Shares of attempts that failed may differ by less than this: of few launches one may fail.
UNEQUAL = 1 / 3

#: A difference is far larger than a disturbance if its whole interval lies beyond what this could
#: explain to this power: it may slow a run down by more than its share of the processors.
FAR = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A circumstance that speaks against a comparison.

    Attributes:
        reason: in a clause.
        explains: so many times as fast may the first and the second of two sides seem because of
            it, at equal rates; infinite where it takes the meaning of any difference away.
        makes_few: it is why launches are too few for an interval, if they are.
    """

    reason: str
    makes_few: bool = False
    explains: tuple[float, float] = (math.inf, math.inf)

    def holds(self, ratio: float | None, low: float | None, high: float | None) -> bool:
        """Whether it may explain a ratio of first over second with this interval.

        Where no side is faster, a doubt counts only if it explains more than the margin of
        equality.
        """
        if ratio is None or low is None or high is None:
            return self.makes_few
        first, second = (math.pow(most, FAR) for most in self.explains)
        if low <= 1 <= high or max(ratio, 1 / ratio) <= 1 + MARGIN:
            return max(first, second) > 1 + MARGIN
        return low <= first and high >= 1 / second


def doubt_about(
    case: Case,
    first: Point,
    second: Point,
    ends: Ends,
    metric: Metric = RATE,
) -> str:
    """Every reason that takes the verdict on two points away; empty if there is none.

    Args:
        ends: the ratio, first over second, and its interval.
    """
    doubts = [
        *_disturbed(first, second),
        *_busy(first, second),
        # A target is reached, whoever made the steps.
        *(_uneven(first, second) if metric == RATE else ()),
        *_unequal_failures(first, second),
        *_missed(metric, first, second),
        *drifted(case, (first, second, metric)),
    ]
    return "; ".join(each.reason for each in doubts if each.holds(*ends))


def _disturbed(*points: Point) -> Iterator[Doubt]:
    """Others slow a side down at most by what they take: its rival seems faster by that."""
    disturbed = [point for point in points if in_most_launches(point, is_disturbed(point))]
    if not disturbed:
        return
    first, second = (_slowed(point) if point in disturbed else 1.0 for point in points)
    loads = pd.concat([point.known("foreign_load") for point in disturbed])
    most = range_text(loads[loads > FOREIGN_LIMIT], FOREIGN_LIMIT)
    yield Doubt(
        reason=f"other programs took {most} of a host's processor time in "
        f"{_named(disturbed, is_disturbed)}, so rates may depend on them",
        explains=(second, first),
    )


def is_disturbed(point: Point) -> pd.Series:
    """Of each launch of which it is known, whether others took much of the processors."""
    return point.known("foreign_load") > FOREIGN_LIMIT


def _slowed(point: Point) -> float:
    """So many times as fast would a point be without others, in its most disturbed launch."""
    load = min(float(point.known("foreign_load").max()), 1.0)
    return math.inf if load == 1.0 else 1 / (1 - load)


def _names(points: Sequence[Point]) -> str:
    return "both" if len(points) > 1 else points[0].setting.label


def _named(points: Sequence[Point], happened: Callable[[Point], pd.Series]) -> str:
    """`most launches of both`, or all."""
    all_ = all(happened(point).sum() == len(point.launches) for point in points)
    return f"{'all' if all_ else 'most'} launches of {_names(points)}"


def in_most_launches(point: Point, happened: pd.Series) -> bool:
    """Launches of which it is not known count as those where it did not happen."""
    return bool(happened.sum() > len(point.launches) / 2)


def _busy(*points: Point) -> Iterator[Doubt]:
    busy = [point for point in points if in_most_launches(point, is_busy(point))]
    if busy:
        shares = pd.concat([point.known("machine_busy") for point in busy])
        most = range_text(shares[shares >= BUSY_LIMIT], BUSY_LIMIT)
        yield Doubt(
            reason=f"this machine's processors were {most} busy in {_named(busy, is_busy)}, so "
            "they may have been the limit, and not the network"
        )


def is_busy(point: Point) -> pd.Series:
    """Of each launch of which it is known, whether one machine's processors may have limited it."""
    return point.known("machine_busy") >= BUSY_LIMIT


def _uneven(*points: Point) -> Iterator[Doubt]:
    uneven = [point for point in points if is_uneven(point)]
    if uneven:
        yield Doubt(
            reason=f"one worker made far more steps than others in {_names(uneven)}, so rates "
            "depend on that one"
        )


def is_uneven(point: Point) -> bool:
    """In most launches one worker made more than `UNEVEN` times the steps that others made.

    Never where workers wait for each other, whatever whole steps a window of few of them holds.
    """
    if point.setting.traits.synchronous:
        return False
    others = point.num_workers - 1
    shares = point.known("largest_share")
    return in_most_launches(point, shares * others > UNEVEN * (1 - shares))


def _unequal_failures(first: Point, second: Point) -> Iterator[Doubt]:
    (one, of_first), (two, of_second) = _failures(first), _failures(second)
    if not of_first or not of_second or abs(one / of_first - two / of_second) < UNEQUAL:
        return
    ended = [(of_first - one, of_first, first), (of_second - two, of_second, second)]
    (most, made, sound), (few, attempts, failing) = sorted(
        ended, key=lambda each: -each[0] / each[1]
    )
    yield Doubt(
        makes_few=True,
        reason=f"{most} of {made} attempts of {sound.setting.label} ended well, but "
        f"{f'only {few}' if few else 'none'} of {attempts} of {failing.setting.label}"
        f"{_OTHERS if few else ''}",
    )


#: What is to be feared of a setting of which some launches ended well.
_OTHERS = "; how fast the failed ones would have been is not known"


def _chosen(count: int) -> str:
    """What is to be feared of those that are left, if there are any."""
    return ", and those may be the faster ones" if count else ""


def _failures(point: Point) -> tuple[int, int]:
    """Attempts that did not end well, and all; what was interrupted says nothing of a point."""
    statuses = point.attempts["status"]
    counting = statuses[statuses != Status.INTERRUPTED]
    return int((counting != Status.OK).sum()), len(counting)


def _missed(metric: Metric, *points: Point) -> Iterator[Doubt]:
    """Launches that never reached a value have none: those that did are fast ones."""
    for point in points:
        if metric.missed(point):
            launches = len(point.launches)
            reached = launches - metric.missed(point)
            yield Doubt(
                makes_few=True,
                reason=f"{reached or 'none'} of {launches} launches of {point.setting.label} "
                f"reached the {metric.name}{_chosen(reached)}",
            )


def drifted(case: Case, pair: tuple[Point, Point, Metric] | None = None) -> Iterator[Doubt]:
    """That the machine is decided to have drifted; nothing if it is not.

    Args:
        pair: what is compared within the case; None where launches of it meet those of another.
    """
    for drift in drifts_of(case):
        if drift.is_shown:
            neighbours = neighbours_of(case, *pair) if pair else None
            factor = drift.between(neighbours)
            near = f", which may explain {explained_text(factor)} between the launches compared"
            reason = drift.told + near * (neighbours is not None)
            yield Doubt(reason=reason, explains=(factor, factor))


def explained_text(factor: float) -> str:
    """How much of a difference something may explain that made this much of one, as a rule."""
    most = math.pow(factor, FAR) - 1
    return f"{most:.1%}" if most >= _LEAST_DRIFT else f"less than {_LEAST_DRIFT:.1%}"


def neighbours_of(case: Case, first: Point, second: Point, metric: Metric) -> pd.DataFrame | None:
    """Of each pair of launches its job, and by how many seconds they were begun apart.

    None where two points are not compared in pairs, or are not both of the case.
    """
    turns = common_turns(metric.values(first), metric.values(second))
    if turns is None or first not in case.points or second not in case.points:
        return None
    launches = first.launches.reindex(turns)
    apart = launches["started_at"] - second.launches["started_at"].reindex(turns)
    return pd.DataFrame({"job": _jobs(launches), "apart_s": apart.dt.total_seconds().abs()})


#: A smaller drift is not told in figures.
_LEAST_DRIFT = 0.001

#: Every pair of a case asks for the drift of the same few cases.
_CASES = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drift:
    """How the sentinel's rate went.

    Attributes:
        decision: of its last launch over its first one.
        lasted_s: between these two.
        job: in which they were made; empty where all launches of the case are of one.
    """

    sentinel: Point
    decision: Decision
    lasted_s: float
    job: str = ""

    @property
    def is_shown(self) -> bool:
        """The rates are decided to differ."""
        return self.decision.outcome in (Outcome.FASTER, Outcome.SLOWER)

    def between(self, neighbours: pd.DataFrame | None) -> float:
        """So many times as fast as the other may a side seem that was launched at a better time.

        Args:
            neighbours: pairs of launches; None where what is compared may lie as far apart as the
                sentinel's own launches.
        """
        apart_s = self.lasted_s
        if neighbours is not None:
            own = neighbours[neighbours["job"] == self.job] if self.job else neighbours
            apart_s = float(own["apart_s"].mean()) if len(own) else 0.0
        return math.exp(abs(math.log(self.decision.ratio or 1.0)) * apart_s / self.lasted_s)

    @property
    def told(self) -> str:
        """`the machine may have drifted: by a line through ..., single was 1.10x as fast ...`."""
        where = f"in job {self.job} " if self.job else ""
        undisturbed = "undisturbed " * bool(is_disturbed(self.sentinel).any())
        return (
            f"{where}the machine {self._said}: by a line through its launches, "
            f"{self.sentinel.setting.label} was {factor_text(self.decision)} as fast at the last "
            f"of {self.decision.n_first} {undisturbed}launches as at the first"
        )

    @property
    def _said(self) -> str:
        """No more than the interval that stands beside it shows."""
        if self.is_shown:
            return "may have drifted"
        _, low, high = self.decision.ends
        if low is not None and high is not None and max(1 / low, high) <= 1 + MARGIN:
            return f"did not drift by more than {MARGIN:.0%}"
        return f"is not known to have drifted by more than {MARGIN:.0%}"


@lru_cache(maxsize=_CASES)
def drifts_of(case: Case) -> tuple[Drift, ...]:
    """How the sentinel drifted, a value for each job.

    None of a job in which it was not launched in the first and last third: a line goes nearly
    through any three launches, so it takes more.
    """
    jobs = jobs_of(case)
    found = (_drift_of(case, job, is_only=len(jobs) == 1) for job in jobs)
    return tuple(drift for drift in found if drift is not None)


def jobs_of(case: Case) -> list[str]:
    """The jobs of its attempts; outside of one an empty name."""
    return [*_jobs(case.attempts).unique()]


def _jobs(runs: pd.DataFrame) -> pd.Series:
    """Of each run its job; empty outside of one."""
    return runs["job_id"].fillna("")


def _drift_of(case: Case, job: str, *, is_only: bool) -> Drift | None:
    begun = case.attempts["started_at"][_jobs(case.attempts) == job]
    launched = {point: _rates_in(point, job) for point in case.points}
    times = {
        point: _seconds_since(begun.min(), point.launches.loc[rates.index, "started_at"])
        for point, rates in launched.items()
        if len(rates) > MIN_LAUNCHES
    }
    third_s = (begun.max() - begun.min()).total_seconds() / 3
    points = [p for p, own in times.items() if own.min() <= third_s and own.max() >= 2 * third_s]
    if not points or third_s == 0:
        return None
    sentinel = max(points, key=lambda p: (*_fitness(p), len(launched[p])))
    own = times[sentinel]
    contest = Contest(comparisons=((_last_over_first(own, launched[sentinel]),),))
    return Drift(
        sentinel=sentinel,
        decision=decide([contest])[0],
        lasted_s=float(own.max() - own.min()),
        job="" if is_only else job,
    )


def _fitness(point: Point) -> tuple[bool, bool]:
    """A single worker tells most of its machine; rates of asynchronous ones vary by themselves."""
    traits = point.setting.traits
    return traits.max_workers == 1, traits.synchronous


def _rates_in(point: Point, job: str) -> pd.Series:
    """Without launches that other programs disturbed: these are a doubt of their own."""
    jobs, disturbed = _jobs(point.launches), is_disturbed(point)
    rates = point.rates[point.rates.index.isin(jobs.index[jobs == job])]
    return rates[~rates.index.isin(disturbed.index[disturbed])]


def _seconds_since(moment: pd.Timestamp, begun: pd.Series) -> pd.Series:
    return (begun - moment).dt.total_seconds().astype(float)


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
