"""Which points the main comparison may be of: these are launched as often as time allows.  Pure.

Decides it before anything is measured.  Which of them are compared in the end is decided in
`analysis.stats.pairs.sides`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import room_for_workers
from ps_allreduce.point.workload import Workload


def main_points(points: Sequence[Experiment]) -> list[Experiment]:
    """Those of the main comparison of every workload; all points where there is none.

    The best synchronous servers against the best all-reduce, on the most hosts that both have; at
    the most workers where they have no number of hosts in common.
    """
    by_workload = {point.workload: _contenders(points, point.workload) for point in points}
    return [point for found in by_workload.values() for point in found] or list(points)


def _contenders(points: Sequence[Experiment], workload: Workload) -> list[Experiment]:
    able = [
        point
        for point in points
        if point.workload == workload
        and point.strategy.synchronous
        and not point.strategy.as_shipped
    ]
    reduced = [point for point in able if point.strategy.uses_collective]
    served = [point for point in able if point.strategy.uses_servers]
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
