"""Pairs of settings at one number of workers.

Decides which pairs are compared beside the sides of the verdict: all synchronous settings with each
other, and what changes the exchange of gradients with the point that it is changed from.  That is,
among those that differ in nothing else, the one that the others are nearest to; or of a ladder, the
rung before it: of points between TensorFlow as it ships and the suite's defaults, which are there
where some have altered parts.  What may be said of a pair is decided in `comparisons`.

Asynchronous settings compute something else and have no place among all pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby, pairwise, product

from analysis.data.cases import Case, Point
from analysis.data.columns import SETTINGS
from analysis.data.metric import Metric
from analysis.data.setting import EXCHANGE, MAX_TOGETHER, exchange_of
from analysis.stats.statistics import MIN_LAUNCHES
from ps_allreduce.point.strategies.stock import LADDERS, Rung
from ps_allreduce.point.wire import Collective

PointPair = tuple[Point, Point]

#: What all rungs of a ladder have in common.
_COMMON = (
    *("num_ps", "layout", "placement", "ps_per_host", "coordinator"),
    "steps_per_dispatch",
)


def synchronous_pairs(case: Case, metric: Metric, *, same_transport: bool) -> list[PointPair]:
    """Pairs at the largest number of workers that has any; both have three launches.

    Changed settings are left out if they are too many: pairs of all of them would be hundreds.

    Args:
        same_transport: of both settings, or a different one.
    """
    good = [
        point
        for point in without_changed(case).points
        if point.setting.traits.synchronous
        and point.setting.traits.max_workers is None
        and len(metric.values(point)) >= MIN_LAUNCHES
    ]
    pairs = [
        (first, second)
        for first, second in combinations(good, 2)
        if first.num_workers == second.num_workers
        and (first.transport == second.transport) is same_transport
    ]
    workers = max((first.num_workers for first, _ in pairs), default=None)
    return [pair for pair in pairs if pair[0].num_workers == workers]


def changed_pairs(case: Case) -> Iterator[PointPair]:
    """All points that are changed from another one, beside that one, in the order of the case."""
    if rungs := list(rung_pairs(case)):
        yield from rungs
        return
    alike: dict[tuple[object, ...], list[Point]] = {}
    for point in case.points:
        alike.setdefault(_but_for_the_exchange(point), []).append(point)
    for points in alike.values():
        base = _base(points)
        yield from ((point, base) for point in points if point is not base)


def _but_for_the_exchange(point: Point) -> tuple[object, ...]:
    """Equal for points that differ in nothing else; only a ring has buckets beside packs."""
    asked = point.asked
    packs = None if asked["collective"] == Collective.RING else asked["bytes_per_pack"]
    others = [asked[name] for name in SETTINGS if name not in EXCHANGE]
    return (point.num_workers, packs, *others)


def _base(points: Sequence[Point]) -> Point:
    """The one with the fewest differences from all others; defaults stand first among equals.

    One that was measured, if there is any; and buckets rather than packs, which share so little
    with buckets that they never differ from them in much.
    """
    exchanges = [exchange_of(point.asked) for point in points]

    def distance(number: int) -> tuple[bool, int, bool]:
        point, exchange = points[number], exchanges[number]
        differences = sum(
            exchange[name] != other[name]
            for other in exchanges
            for name in exchange
            if name in other
        )
        return point.rates.empty, differences, point.setting.bytes_per_pack is not None

    return points[min(range(len(points)), key=distance)]


def varies_exchange(case: Case) -> bool:
    """Something is changed besides the size of packs, which has a figure of its own."""
    return any(point.setting.bytes_per_pack is None for point, _ in changed_pairs(case))


def without_changed(case: Case) -> Case:
    """The case without its changed points, if they are too many to be told apart beside others.

    Of a ladder the ends remain.
    """
    if (ends := without_rungs(case)) is not case:
        return ends
    changed = {id(point): point.setting for point, _ in changed_pairs(case)}
    counts = Counter(setting.strategy for setting in set(changed.values()))
    if max(counts.values(), default=0) <= MAX_TOGETHER or not varies_exchange(case):
        return case
    return replace(case, points=tuple(p for p in case.points if id(p) not in changed))


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
