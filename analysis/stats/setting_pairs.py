"""Pairs of settings at one number of workers, tested as a family.

Decides which pairs are compared beside the verdict: all synchronous settings with each other, and
what changes the exchange of gradients with the point that it is changed from.  That is, among those
that differ in nothing else, the one that the others are nearest to.

The main verdict is one comparison, planned beforehand; whoever looks through all pairs for the
striking one needs Holm's correction.  Asynchronous settings compute something else and have no
place in the tables of all pairs.  Pairs on different transports are a family of their own, and
labelled so: what sets them apart may be the transport.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import pandas as pd

from analysis.data.cases import Case, Point
from analysis.data.columns import SETTINGS
from analysis.data.setting import EXCHANGE, MAX_TOGETHER, exchange_of
from analysis.stats.statistics import MIN_LAUNCHES, Comparison, Outcome, compare, holm, outcome
from analysis.wording import transports_label
from ps_allreduce.point.wire import Collective


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """Two settings at the same number of workers.

    Attributes:
        comparison: first over second; its interval is not corrected.
        adjusted_p: corrected for all pairs of the family; NaN without a test.
        outcome: decided by the corrected p-value.
    """

    first: Point
    second: Point
    comparison: Comparison
    adjusted_p: float
    outcome: Outcome

    @property
    def label(self) -> str:
        """Empty for pairs on the same transport."""
        return transports_label(self.first.transport, self.second.transport)


def tested(pairs: Iterable[tuple[Point, Point]]) -> list[Pair]:
    """A family of pairs, in the order given."""
    compared = [(*pair, compare(pair[0].rates, pair[1].rates)) for pair in pairs]
    adjusted = holm(pd.Series([each.p_value for *_, each in compared], dtype=float))
    return [
        Pair(
            first=first,
            second=second,
            comparison=comparison,
            adjusted_p=p_value,
            outcome=outcome(comparison, p_value),
        )
        for (first, second, comparison), p_value in zip(compared, adjusted, strict=True)
    ]


def all_pairs(case: Case, *, same_transport: bool = True) -> list[Pair]:
    """Pairs at the largest number of workers that has any; both have three launches.

    Args:
        same_transport: of both settings, or a different one.
    """
    good = [
        point
        for point in case.points
        if point.setting.traits.synchronous
        and point.setting.traits.max_workers is None
        and len(point.rates) >= MIN_LAUNCHES
    ]
    pairs = [
        (first, second)
        for first, second in combinations(good, 2)
        if first.num_workers == second.num_workers
        and (first.transport == second.transport) is same_transport
    ]
    workers = max((first.num_workers for first, _ in pairs), default=None)
    return tested(pair for pair in pairs if pair[0].num_workers == workers)


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
