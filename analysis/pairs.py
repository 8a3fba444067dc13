"""All pairs of synchronous settings at one number of workers, corrected for their number.

The main verdict is one comparison, planned beforehand; whoever looks through all pairs for the
striking one needs Holm's correction.  Asynchronous settings compute something else and have no
place in this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from analysis.points import Case, Point
from analysis.statistics import MIN_LAUNCHES, Comparison, Outcome, compare, holm, outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two settings at the same number of workers.

    Attributes:
        comparison: first over second; its interval is not corrected.
        adjusted_p: corrected for all pairs of the family; it decides.
    """

    first: Point
    second: Point
    comparison: Comparison
    adjusted_p: float
    outcome: Outcome


def all_pairs(case: Case) -> list[Pair]:
    """Pairs at the largest number of workers with two settings of three launches each."""
    rivals = _rivals(case)
    found = [(one, two, compare(one.rates, two.rates)) for one, two in combinations(rivals, 2)]
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
        )
        for (one, two, comparison, _), p_value in zip(tested, adjusted, strict=True)
    ]


def _rivals(case: Case) -> list[Point]:
    good = [
        point
        for point in case.points
        if point.setting.traits.synchronous
        and point.setting.traits.max_workers is None
        and len(point.rates) >= MIN_LAUNCHES
    ]
    counts = [point.num_workers for point in good]
    workers = max((count for count in counts if counts.count(count) > 1), default=None)
    return [point for point in good if point.num_workers == workers]
