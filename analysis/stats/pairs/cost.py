"""Where the two sides of the main comparison meet besides: at equal workers, and at equal cost.

Decides which points cost the same: those within 5 %, the dearest of them; where no two do, those
that are nearest.  Only prices that differ between kinds of hosts make that another comparison than
the one at equal hosts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from analysis.data.cases import Case, Point
from analysis.data.prices import Prices
from analysis.stats.pairs.sides import (
    Basis,
    Meeting,
    Side,
    SideKind,
    meet_at,
    with_enough_launches,
)
from ps_allreduce.point.layout import num_ps_hosts

#: Costs that differ by no more than this share are called equal.
ALIKE = 0.05


def meet_otherwise(case: Case, main: Meeting) -> Iterator[Meeting]:
    """The sides of the main comparison on its transport at equal workers and at equal cost.

    Equal workers are left out where the main comparison is of the same points.
    """
    first, second = (side.kind for side in main.sides)
    equal_workers = meet_at(Basis.WORKERS, case, first, second)
    if equal_workers is not None and equal_workers.bests != main.bests:
        yield equal_workers
    equal_cost = _meet_at_cost(case, first, second)
    if equal_cost is not None:
        yield equal_cost


def costs_alike(first: float, second: float) -> bool:
    """Whether two costs count as equal."""
    return abs(math.log(first / second)) <= math.log1p(ALIKE)


def _meet_at_cost(case: Case, first: SideKind, second: SideKind) -> Meeting | None:
    """Compare two sides where they cost the same, or nearly; None where prices say nothing new."""
    prices = case.prices
    if prices is None or not _tells_more(case, prices):
        return None
    one, other = _by_cost(case, prices, first), _by_cost(case, prices, second)
    pairs = [*product(one, other)]
    if not pairs:
        return None
    alike = [pair for pair in pairs if costs_alike(*pair)]
    cost = max(alike) if alike else min(pairs, key=lambda pair: abs(math.log(pair[0] / pair[1])))
    return Meeting(
        basis=Basis.COST,
        sides=(
            Side(kind=first, points=with_enough_launches(one[cost[0]])),
            Side(kind=second, points=with_enough_launches(other[cost[1]])),
        ),
    )


def _tells_more(case: Case, prices: Prices) -> bool:
    """Some hosts have another price, so that equal hosts are not equal cost."""
    apart = any(num_ps_hosts(point.experiment) for point in case.points)
    return apart and prices.host != prices.ps_host


def _by_cost(case: Case, prices: Prices, kind: SideKind) -> dict[float, list[Point]]:
    """The points of a side that have launches, by what they cost for an hour."""
    found: dict[float, list[Point]] = {}
    for point in kind.points(case):
        if len(point.rates):
            found.setdefault(prices.per_hour(point.experiment), []).append(point)
    return found
