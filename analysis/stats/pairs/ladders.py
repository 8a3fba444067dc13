"""Ladders: points between TensorFlow as it ships and the suite's defaults.

Decides which points of a case are rungs, and which one each of them is held against: the rung
before it.  Only a ladder has points with altered parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise, product

from analysis.data.cases import Case, Point
from ps_allreduce.point.strategies.stock import LADDERS, Rung

#: What all rungs of a ladder have in common.
_COMMON = (
    *("num_ps", "layout", "placement", "ps_per_host", "coordinator"),
    "steps_per_dispatch",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ladder:
    """The rungs of a side that were asked for.

    Attributes:
        name: of the side.
        rungs: with their points, from TensorFlow as it ships to the suite's defaults.
    """

    name: str
    rungs: tuple[tuple[Rung, Point], ...]

    @property
    def points(self) -> list[Point]:
        """In the order of the rungs."""
        return [point for _, point in self.rungs]

    @property
    def num_workers(self) -> int:
        """Of all its points."""
        return self.points[0].num_workers


def ladders(case: Case) -> Iterator[Ladder]:
    """All ladders of a case, in the order of the sides; most cases have none."""
    if not any(point.experiment.strategy.is_altered for point in case.points):
        return
    for name, rungs in LADDERS.items():
        found = [each for each in product(rungs, case.points) if each[0].holds(each[1].experiment)]
        found.sort(key=lambda each: repr(_common(each[1])))
        for _, alike in groupby(found, key=lambda each: _common(each[1])):
            ladder = Ladder(name=name, rungs=tuple(alike))
            if any(point.experiment.strategy.is_altered for point in ladder.points):
                yield ladder


def _common(point: Point) -> tuple[object, ...]:
    return (point.num_workers, *(point.asked[name] for name in _COMMON))


def rung_pairs(case: Case) -> Iterator[tuple[Point, Point]]:
    """Every rung beside the one before it."""
    for ladder in ladders(case):
        yield from ((point, before) for before, point in pairwise(ladder.points))


def without_rungs(case: Case) -> Case:
    """The case without what stands between the ends of its ladders."""
    between = {id(point) for ladder in ladders(case) for point in ladder.points[1:-1]}
    if not between:
        return case
    return replace(case, points=tuple(p for p in case.points if id(p) not in between))
