"""Which points the main comparison may be of: these are launched as often as time allows.  Pure.

Decides it before anything is measured, and again once every point has the fewest launches: what is
clearly not the best of its side takes no more of the time.  Which of them are compared in the end
is decided in `analysis.stats.pairs.sides`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import room_for_workers
from ps_allreduce.point.strategies.base import StrategySide
from ps_allreduce.point.workload import Workload


def main_points(points: Sequence[Experiment]) -> list[Experiment]:
    """Those of the main comparison of every workload; all points where there is none."""
    return both_sides(points) or list(points)


def both_sides(points: Sequence[Experiment]) -> list[Experiment]:
    """Those of the main comparison of every workload.

    The best synchronous servers against the best all-reduce, on the most hosts that both have; at
    the most workers where they have no number of hosts in common.
    """
    by_workload = {point.workload: _contenders(points, point.workload) for point in points}
    return [point for found in by_workload.values() for point in found]


def still_open(
    points: Sequence[Experiment], rates: Mapping[str, Sequence[float]]
) -> list[Experiment]:
    """The rivals that may still turn out to be the best of their side on their transport.

    One whose fastest launch is slower than every launch of its side's leader may not.

    Args:
        rates: of the launches of each point, by its identity; a point without any stays.
    """
    sides: dict[tuple[object, ...], list[Experiment]] = {}
    for point in both_sides(points):
        sides.setdefault(_side_of(point), []).append(point)
    led = {side: _slowest_of_leader(those, rates) for side, those in sides.items()}
    return [
        point
        for point in both_sides(points)
        if max(rates.get(point.experiment_id, ()), default=math.inf) >= led[_side_of(point)]
    ]


def _side_of(point: Experiment) -> tuple[object, ...]:
    return point.workload, point.strategy.side, point.strategy.transport


def _slowest_of_leader(side: Sequence[Experiment], rates: Mapping[str, Sequence[float]]) -> float:
    """The slowest launch of the point with the highest median; 0 where none has a launch."""
    known = [own for point in side if (own := rates.get(point.experiment_id))]
    return min(max(known, key=median, default=(0.0,)))


def _contenders(points: Sequence[Experiment], workload: Workload) -> list[Experiment]:
    able = [
        point
        for point in points
        if point.workload == workload
        and point.strategy.synchronous
        and not point.strategy.as_shipped
    ]
    reduced = [point for point in able if point.strategy.side is StrategySide.ALL_REDUCE]
    served = [point for point in able if point.strategy.side is StrategySide.SERVERS]
    return _at_the_most(reduced, served, room_for_workers) or _at_the_most(
        reduced, served, lambda point: point.num_workers
    )


def _at_the_most(
    reduced: Sequence[Experiment],
    served: Sequence[Experiment],
    size_of: Callable[[Experiment], int],
) -> list[Experiment]:
    """The points of both sides at the largest size that both have; none where they have none."""
    common = {size_of(point) for point in reduced} & {size_of(point) for point in served}
    return [point for point in (*reduced, *served) if common and size_of(point) == max(common)]
