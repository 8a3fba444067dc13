"""Pairs of settings at one number of workers, tested as a family.

The main verdict is one comparison, planned beforehand; whoever looks through all pairs for the
striking one needs Holm's correction.  Asynchronous settings compute something else and have no
place in the tables of all pairs.  Pairs on different transports are a family of their own, and
labelled so: what sets them apart may be the transport.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from analysis.data.cases import Case, Point
from analysis.stats.statistics import MIN_LAUNCHES, Comparison, Outcome, compare, holm, outcome
from analysis.wording import transports_label


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """Two settings at the same number of workers.

    Attributes:
        comparison: first over second; its interval is not corrected.
        adjusted_p: corrected for all pairs of the family; None without a test.
        outcome: decided by the corrected p-value.
    """

    first: Point
    second: Point
    comparison: Comparison
    adjusted_p: float | None
    outcome: Outcome

    @property
    def label(self) -> str:
        """Empty for pairs on the same transport."""
        return transports_label(self.first.transport, self.second.transport)


def tested(pairs: Iterable[tuple[Point, Point]]) -> list[Pair]:
    """A family of pairs, in the order given."""
    compared = [(*pair, compare(pair[0].rates, pair[1].rates)) for pair in pairs]
    p_values = [each.p_value for *_, each in compared if each.p_value is not None]
    adjusted = iter(holm(p_values))
    return [
        _pair(first, second, each, None if each.p_value is None else next(adjusted))
        for first, second, each in compared
    ]


def _pair(first: Point, second: Point, comparison: Comparison, adjusted_p: float | None) -> Pair:
    return Pair(
        first=first,
        second=second,
        comparison=comparison,
        adjusted_p=adjusted_p,
        outcome=outcome(comparison, adjusted_p),
    )


def all_pairs(case: Case, *, same_transport: bool = True) -> list[Pair]:
    """Pairs at the largest number of workers that has any; both have three launches.

    Args:
        same_transport: of both settings, or a different one.
    """
    pairs = [
        pair
        for pair in _candidates(case)
        if (pair[0].transport == pair[1].transport) is same_transport
    ]
    workers = max((first.num_workers for first, _ in pairs), default=None)
    return tested(pair for pair in pairs if pair[0].num_workers == workers)


def _candidates(case: Case) -> Iterator[tuple[Point, Point]]:
    good = [
        point
        for point in case.points
        if point.setting.traits.synchronous
        and point.setting.traits.max_workers is None
        and len(point.rates) >= MIN_LAUNCHES
    ]
    pairs = combinations(good, 2)
    return (pair for pair in pairs if pair[0].num_workers == pair[1].num_workers)
