"""What each setting of the exchange changes, beside the point that it is changed from.

Decides which point others are held against: among those that differ in nothing but how gradients
are exchanged, the one that the others are nearest to.  What is drawn of it is decided in
`figures.exchange_settings`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from analysis.data.cases import Case, Point
from analysis.data.columns import SETTINGS
from analysis.data.exchange import EXCHANGE, exchange_of
from analysis.data.setting import MAX_TOGETHER
from analysis.stats.setting_pairs import Pair, tested
from ps_allreduce.point.wire import Collective


def changed_points(case: Case) -> list[Pair]:
    """All points that are changed from another one, beside that one, in the order of the case."""
    return tested(_with_bases(case))


def _with_bases(case: Case) -> Iterator[tuple[Point, Point]]:
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
    return any(point.setting.bytes_per_pack is None for point, _ in _with_bases(case))


def without_changed(case: Case) -> Case:
    """The case without its changed points, if they are too many to be told apart beside others."""
    changed = {id(point): point.setting for point, _ in _with_bases(case)}
    counts = Counter(setting.strategy for setting in set(changed.values()))
    if max(counts.values(), default=0) <= MAX_TOGETHER or not varies_exchange(case):
        return case
    return replace(case, points=tuple(p for p in case.points if id(p) not in changed))
