"""Circumstances that take the meaning away from a comparison, so that nothing is decided.

Decides which they are: other programs that used the processors, processors that were the limit
where the network should have been, a worker that made most of the steps, sides whose attempts
failed unequally often, launches that did not reach a value, and a machine that drifted.  Other
programs and drift take nothing away from a difference that is far larger than what they could
explain.  Doubts that leave a comparison its meaning are told in `report.sentences.circumstances`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.data.cases import Case, Point
from analysis.data.metric import RATE, Metric
from analysis.stats.drift import drift_of
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
    """

    reason: str
    explains: tuple[float, float] = (math.inf, math.inf)

    def holds(self, low: float | None, high: float | None) -> bool:
        """Whether it may explain a ratio of first over second with this interval."""
        if low is None or high is None:
            return True
        first, second = (math.pow(most, FAR) for most in self.explains)
        return low <= first and high >= 1 / second


def doubt_about(
    case: Case,
    first: Point,
    second: Point,
    ends: tuple[float | None, float | None],
    metric: Metric = RATE,
) -> str:
    """Why nothing can be decided between two points of a case; empty if nothing speaks against.

    Args:
        ends: of the interval of the ratio, first over second.
    """
    doubts = [
        *_disturbed(first, second),
        *_busy(first, second),
        *_uneven(first, second),
        *_unequal_failures(first, second),
        *_missed(metric, first, second),
        *drifted(case),
    ]
    return next((each.reason for each in doubts if each.holds(*ends)), "")


def _disturbed(*points: Point) -> Iterator[Doubt]:
    """Others slow a side down at most by what they take: its rival seems faster by that."""
    disturbed = [point for point in points if _others_took_part(point)]
    if not disturbed:
        return
    first, second = (_slowed(point) if point in disturbed else 1.0 for point in points)
    yield Doubt(
        reason=f"other programs took more than {FOREIGN_LIMIT:.0%} of a host's processor time in "
        f"most launches of {_names(disturbed)}, so rates depend on them, too",
        explains=(second, first),
    )


def _slowed(point: Point) -> float:
    """So many times as fast would a point be without others, in its most disturbed launch."""
    load = min(float(point.known("foreign_load").max()), 1.0)
    return math.inf if load == 1.0 else 1 / (1 - load)


def _names(points: Sequence[Point]) -> str:
    return "both" if len(points) > 1 else points[0].setting.label


def _others_took_part(point: Point) -> bool:
    """In most launches the load of others is known to have been above the limit."""
    return _in_most_launches(point, point.known("foreign_load") > FOREIGN_LIMIT)


def _in_most_launches(point: Point, happened: pd.Series) -> bool:
    """Launches of which it is not known count as those where it did not happen."""
    return bool(happened.sum() > len(point.launches) / 2)


def _busy(*points: Point) -> Iterator[Doubt]:
    busy = [point for point in points if _machine_was_limit(point)]
    if busy:
        yield Doubt(
            reason=f"this machine's processors were {BUSY_LIMIT:.0%} busy or more in most launches "
            f"of {_names(busy)}, so they may have been the limit, and not the network"
        )


def _machine_was_limit(point: Point) -> bool:
    """In most launches the processors below emulated hosts are known to have been busy."""
    return _in_most_launches(point, point.known("machine_busy") >= BUSY_LIMIT)


def _uneven(*points: Point) -> Iterator[Doubt]:
    uneven = [point for point in points if is_uneven(point)]
    if uneven:
        share = max(float(point.known("largest_share").max()) for point in uneven)
        yield Doubt(
            reason=f"one worker made up to {share:.0%} of the steps of {_names(uneven)}, so rates "
            "tell how fast that one is"
        )


def is_uneven(point: Point) -> bool:
    """In most launches one worker made more than `UNEVEN` times the steps that others made."""
    others = point.num_workers - 1
    shares = point.known("largest_share")
    return _in_most_launches(point, shares * others > UNEVEN * (1 - shares))


def _unequal_failures(first: Point, second: Point) -> Iterator[Doubt]:
    (one, of_first), (two, of_second) = _failures(first), _failures(second)
    if not of_first or not of_second or abs(one / of_first - two / of_second) < UNEQUAL:
        return
    yield Doubt(
        reason=f"{of_first - one} of {of_first} attempts of {first.setting.label} ended well and "
        f"{of_second - two} of {of_second} of {second.setting.label}, so those that did are a "
        "selection"
    )


def _failures(point: Point) -> tuple[int, int]:
    """Attempts that did not end well, and all; what was interrupted says nothing of a point."""
    statuses = point.attempts["status"]
    counting = statuses[statuses != Status.INTERRUPTED]
    return int((counting != Status.OK).sum()), len(counting)


def _missed(metric: Metric, *points: Point) -> Iterator[Doubt]:
    """Launches that never reached a value have none: those that did are fast ones."""
    for point in points:
        if missed := metric.missed(point):
            yield Doubt(
                reason=f"{missed} of {len(point.launches)} launches of {point.setting.label} did "
                f"not reach the {metric.name}, so those that did are a selection"
            )


def drifted(case: Case) -> Iterator[Doubt]:
    """That the machine is decided to have drifted; nothing if it is not."""
    drift = drift_of(case)
    if drift is not None and drift.is_shown:
        yield Doubt(reason=drift.told, explains=(drift.factor, drift.factor))
