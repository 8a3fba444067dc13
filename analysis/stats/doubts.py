"""Circumstances that take the meaning away from a comparison, so that nothing is decided.

Decides which they are: other programs that used the processors, processors that were the limit
where the network should have been, a worker that made most of the steps, sides whose attempts
failed unequally often, and a machine that drifted.  Doubts that leave a comparison its meaning are
told in `report.sentences.circumstances`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis.data.cases import Case, Point
from analysis.stats.drift import drift_of
from ps_allreduce.record.records import BUSY_LIMIT, FOREIGN_LIMIT, Status

#: A worker that makes more than so many times the mean of the others makes steps for them.
UNEVEN = 2.0

#: Shares of attempts that failed may differ by less than this: of few launches one may fail.
UNEQUAL = 1 / 3


def doubt_about(case: Case, first: Point, second: Point) -> str:
    """Why nothing can be decided between two points of a case; empty if nothing speaks against."""
    return (
        _disturbed(first, second)
        or _busy(first, second)
        or _uneven(first, second)
        or _unequal_failures(first, second)
        or drifted(case)
    )


def _disturbed(*points: Point) -> str:
    disturbed = [point for point in points if _others_took_part(point)]
    if not disturbed:
        return ""
    return (
        f"other programs took more than {FOREIGN_LIMIT:.0%} of a host's processor time in most "
        f"launches of {_names(disturbed)}, so rates tell of them as well"
    )


def _names(points: Sequence[Point]) -> str:
    return "both" if len(points) > 1 else points[0].setting.label


def _others_took_part(point: Point) -> bool:
    """In most launches the load of others is known to have been above the limit."""
    return _in_most_launches(point, point.known("foreign_load") > FOREIGN_LIMIT)


def _in_most_launches(point: Point, happened: pd.Series) -> bool:
    """Launches of which it is not known count as those where it did not happen."""
    return bool(happened.sum() > len(point.launches) / 2)


def _busy(*points: Point) -> str:
    busy = [point for point in points if _machine_was_limit(point)]
    if not busy:
        return ""
    return (
        f"this machine's processors were {BUSY_LIMIT:.0%} busy or more in most launches of "
        f"{_names(busy)}, so they were the limit and not the network"
    )


def _machine_was_limit(point: Point) -> bool:
    """In most launches the processors below emulated hosts are known to have been busy."""
    return _in_most_launches(point, point.known("machine_busy") >= BUSY_LIMIT)


def _uneven(*points: Point) -> str:
    uneven = [point for point in points if is_uneven(point)]
    if not uneven:
        return ""
    share = max(float(point.known("largest_share").max()) for point in uneven)
    return (
        f"one worker made up to {share:.0%} of the steps of {_names(uneven)}, so rates tell how "
        "fast that one is"
    )


def is_uneven(point: Point) -> bool:
    """In most launches one worker made more than `UNEVEN` times the steps that others made."""
    others = point.num_workers - 1
    shares = point.known("largest_share")
    return _in_most_launches(point, shares * others > UNEVEN * (1 - shares))


def _unequal_failures(first: Point, second: Point) -> str:
    (one, of_first), (two, of_second) = _failures(first), _failures(second)
    if not of_first or not of_second or abs(one / of_first - two / of_second) < UNEQUAL:
        return ""
    return (
        f"{one} of {of_first} attempts of {first.setting.label} did not end well and {two} of "
        f"{of_second} of {second.setting.label}, so those that did are a selection"
    )


def _failures(point: Point) -> tuple[int, int]:
    """Attempts that did not end well, and all; what was interrupted says nothing of a point."""
    statuses = point.attempts["status"]
    counting = statuses[statuses != Status.INTERRUPTED]
    return int((counting != Status.OK).sum()), len(counting)


def drifted(case: Case) -> str:
    """That the machine is known to have drifted; empty if it is not."""
    drift = drift_of(case)
    if drift is None or not drift.shown or not drift.too_far:
        return ""
    return (
        f"the machine drifted: {drift.sentinel.setting.label} changed by {drift.share:.0%} between "
        "the start and the end of the sweep"
    )
