"""All pairs of synchronous settings at one number of workers, corrected for their number.

The main verdict is one comparison, planned beforehand; whoever looks through all pairs for the
striking one needs Holm's correction.  Asynchronous settings compute something else and have no
place in this table.  Pairs on different transports are a family of their own, and labelled so: what
sets them apart may be the transport.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from analysis.data.cases import Case, Point
from analysis.stats.statistics import MIN_LAUNCHES, Comparison, Outcome, compare, holm, outcome
from analysis.wording import transports_label


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two settings at the same number of workers.

    Attributes:
        comparison: first over second; its interval is not corrected.
        adjusted_p: corrected for all pairs of the family; it decides.
        label: empty for pairs on the same transport.
    """

    first: Point
    second: Point
    comparison: Comparison
    adjusted_p: float
    outcome: Outcome
    label: str = ""


def all_pairs(case: Case) -> list[Pair]:
    """Pairs on the same transport, at the largest number of workers that has any.

    Both settings have three launches.
    """
    return _tested([pair for pair in _candidates(case) if not _label(*pair)])


def pairs_apart(case: Case) -> list[Pair]:
    """Pairs on different transports, at the largest number of workers that has any."""
    return _tested([pair for pair in _candidates(case) if _label(*pair)])


def _label(first: Point, second: Point) -> str:
    return transports_label(first.experiment.transport, second.experiment.transport)


def _tested(pairs: Sequence[tuple[Point, Point]]) -> list[Pair]:
    """One family: the pairs with most workers, p-values corrected for their number."""
    workers = max((one.num_workers for one, _ in pairs), default=None)
    found = [
        (one, two, compare(one.rates, two.rates))
        for one, two in pairs
        if one.num_workers == workers
    ]
    tested = [
        (one, two, comparison, comparison.p_value)
        for one, two, comparison in found
        if comparison.p_value is not None
    ]
    adjusted = holm([p_value for *_, p_value in tested])
    return [
        Pair(
            first=one,
            second=two,
            comparison=comparison,
            adjusted_p=p_value,
            outcome=outcome(comparison, p_value),
            label=_label(one, two),
        )
        for (one, two, comparison, _), p_value in zip(tested, adjusted, strict=True)
    ]


def _candidates(case: Case) -> list[tuple[Point, Point]]:
    good = [
        point
        for point in case.points
        if point.setting.traits.synchronous
        and point.setting.traits.max_workers is None
        and len(point.rates) >= MIN_LAUNCHES
    ]
    return [pair for pair in combinations(good, 2) if pair[0].num_workers == pair[1].num_workers]
