"""Two folders of results, of two clusters or two versions: what of them may be compared.

Decides that the same training must have been measured in the same way, that machines and networks
may differ, since these are what is compared, and that points meet only where all their settings
agree.  Where a folder has one training on several networks, each meets what differs from it least.
Launches of two folders are never pairs.  All points of two folders are one family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from analysis.data.case_names import condition_value, condition_words
from analysis.data.cases import Case, Point
from analysis.data.columns import CONDITIONS, SETTINGS
from analysis.data.metric import RATE
from analysis.stats.comparisons import Comparison
from analysis.stats.decision import Contest, Decision, decide, intervals
from analysis.stats.doubts import doubt_about, drifted
from analysis.stats.rivals import Kind, side_of
from analysis.stats.statistics import Ends
from ps_allreduce.errors import UserError

#: How the two are called.
NAMES = ("A", "B")

#: Conditions that may differ between the two.
OF_MACHINES = (
    *("launcher", "network", "network_hosts", "port_buffer_bytes", "asked_interface"),
    *("asked_workers_per_host", "device", "devices_per_worker", "cores_per_worker"),
)
_OF_TRAINING = tuple(name for name in CONDITIONS if name not in OF_MACHINES)

#: What follows the cores of a machine is no other setting.
_OF_CORES = "threads_per_worker"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedCase:
    """A training that both folders have measured.

    Attributes:
        points: those that both have, in the order of the first; decided is what may be said of
            the second folder's.
        alone: of each folder those that the other one lacks.
    """

    first: Case
    second: Case
    points: tuple[Comparison, ...]
    alone: tuple[tuple[Point, ...], tuple[Point, ...]]


def shared_cases(first: Sequence[Case], second: Sequence[Case]) -> list[SharedCase]:
    """What both folders have measured, each decided once.

    Raises:
        UserError: nothing can be compared, with the reason.
    """
    met = [(case, rival) for case in first for rival in _nearest(case, second)]
    if not met:
        raise UserError(f"These results cannot be compared: {_why_apart(first, second)}.")
    pairs = {(one, other): _same_points(one, other) for one, other in met}
    if not any(pairs.values()):
        raise UserError(
            "These results cannot be compared: they are of the same training, and have no point "
            "in common (strategy, its settings, and the number of workers)."
        )
    met_points = [(*cases, *points) for cases, own in pairs.items() for points in own]
    contests = [_contest(one, other) for *_, one, other in met_points]
    doubts = map(_doubt, met_points, intervals(contests))
    decided = iter(
        decide([replace(c, doubt=doubt) for c, doubt in zip(contests, doubts, strict=True)])
    )
    return [
        SharedCase(
            first=one,
            second=other,
            points=tuple(_row(other, b, a, next(decided)) for a, b in own),
            alone=(_without(one, [a for a, _ in own]), _without(other, [b for _, b in own])),
        )
        for (one, other), own in pairs.items()
    ]


def _nearest(case: Case, others: Sequence[Case]) -> list[Case]:
    """Those with the same training whose machines and networks differ in the fewest conditions."""
    alike = [other for other in others if _training(other) == _training(case)]
    apart = [len(condition_differences(case, other, OF_MACHINES)) for other in alike]
    return [other for other, count in zip(alike, apart, strict=True) if count == min(apart)]


def _training(case: Case) -> tuple[object, ...]:
    return tuple(case.conditions[name] for name in _OF_TRAINING)


def _why_apart(first: Sequence[Case], second: Sequence[Case]) -> str:
    """What differs between the two cases that differ least."""
    nearest = min(
        (condition_differences(one, other, _OF_TRAINING) for one in first for other in second),
        key=len,
    )
    told = (f"{name} is {one} in A and {other} in B" for name, (one, other) in nearest.items())
    return "; ".join(told)


def condition_differences(
    first: Case, second: Case, names: Sequence[str]
) -> Mapping[str, tuple[str, str]]:
    """Conditions that differ, with their values, in words."""
    scalings = (first.conditions["scaling"], second.conditions["scaling"])
    both = {name: (first.conditions[name], second.conditions[name]) for name in names}
    return {
        condition_words(name, *scalings): (condition_value(name, one), condition_value(name, other))
        for name, (one, other) in both.items()
        if one != other
    }


def _same_points(first: Case, second: Case) -> list[tuple[Point, Point]]:
    rivals = {_identity(point): point for point in second.points}
    return [
        (point, rivals[_identity(point)]) for point in first.points if _identity(point) in rivals
    ]


def _identity(point: Point) -> tuple[object, ...]:
    """Everything that was set but for what follows the cores."""
    return (point.num_workers, *(point.asked[name] for name in SETTINGS if name != _OF_CORES))


def _without(case: Case, points: Sequence[Point]) -> tuple[Point, ...]:
    return tuple(point for point in case.points if point not in points)


def _row(case: Case, first: Point, second: Point, decision: Decision) -> Comparison:
    return Comparison(
        case=case,
        kind=Kind.FOLDERS,
        first=side_of(first),
        second=side_of(second),
        metric=RATE,
        decision=decision,
    )


def _contest(one: Point, other: Point) -> Contest:
    """The second over the first; turns of two folders have nothing to do with each other."""
    apart = pd.RangeIndex(-len(one.rates), 0)
    return Contest.of([other.rates], [one.rates.set_axis(apart)])


def _doubt(met: tuple[Case, Case, Point, Point], ends: Ends) -> str:
    """What takes the meaning of a ratio of the second over the first away.

    Both folders call a point alike, so a reason names the folder, too.
    """
    (first, one), (second, other) = (
        _of_folder(name, case, point)
        for name, case, point in zip(NAMES, met[:2], met[2:], strict=True)
    )
    of_second = (each.reason for each in drifted(second) if each.holds(*ends))
    return doubt_about(first, other, one, ends) or next(of_second, "")


def _of_folder(name: str, case: Case, point: Point) -> tuple[Case, Point]:
    """A case, and a point of it, with settings that are called by their folder as well."""
    points = {
        each: replace(each, setting=replace(each.setting, label=f"{each.setting.label} in {name}"))
        for each in case.points
    }
    return replace(case, points=tuple(points.values())), points[point]
