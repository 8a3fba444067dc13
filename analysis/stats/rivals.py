"""Which settings of a case are held against which, as sides.

Decides which sides meet, for which kind of comparison, and at equal cost: at points within 5 % of
each other's cost, the dearest of them; where no two are, at those that are nearest.  Only prices
that differ between kinds of hosts make that another comparison than the one at equal hosts.

Where parameter servers or all-reduce were measured alone, the question is which of their settings
is fastest at the most workers.  Synchronous and asynchronous settings, which do not compute the
same, each have a question of their own; a setting of which one worker made most of the steps does
not contend; and a setting is held against the default: round robin, and the suite's own messages,
with the same strategy and as many servers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product

from analysis.data.cases import Case, Point
from analysis.data.metric import RATE, Metric
from analysis.data.prices import Prices
from analysis.data.setting import EXCHANGE, exchange_of
from analysis.stats.doubts import is_uneven
from analysis.stats.setting_pairs import PointPair, ladders
from analysis.stats.statistics import MIN_LAUNCHES, estimate
from ps_allreduce.point.layout import num_ps_hosts
from ps_allreduce.point.sides import (
    ALLREDUCE,
    HYBRID,
    PS_ASYNC,
    PS_SYNC,
    SHIPPED_ALLREDUCE,
    SHIPPED_PS,
    Basis,
    Meeting,
    Rivals,
    SideKind,
)
from ps_allreduce.point.strategies.base import Servers

#: Costs that differ by no more than this share are called equal.
ALIKE = 0.05


class Kind(StrEnum):
    """Why two settings are compared."""

    MAIN = "the best of both sides"
    HYBRID = "the hybrid and the best of either side"
    STOCK = "the suite and TensorFlow as it ships, which train alike"
    DEFAULT = "of one side alone, a setting and its default"
    PAIR = "two synchronous settings"
    CHANGED = "a setting and the one that it is changed from"
    MET = "two settings of compared sides"
    ASYNCHRONOUS_PAIR = "of one side alone, two asynchronous settings"
    WORKERS = "the sides of the main comparison at equal workers"
    COST = "the sides of the main comparison at equal or nearest cost"
    ALIKE = "the same sides on another transport or format"
    APART = "the same sides on different transports or formats"
    ASYNCHRONOUS = "asynchronous servers and all-reduce"
    AS_SHIPPED = "TensorFlow's own two strategies, which do not train alike"
    SINGLE = "a single worker and several"
    FOLDERS = "a point in two folders"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """One of two settings that are compared, and what it was chosen from.

    Attributes:
        points: the settings to choose from, in the order of the case; not empty.
        best: the one that is told of.
        kind: None for a setting that was chosen from no others.
        is_highest: no other one that may be the best has a higher mean.
        may_be_best: those that are not decided slower than another one; none where nobody asks.
    """

    points: tuple[Point, ...]
    best: Point
    kind: SideKind | None = None
    is_highest: bool = True
    may_be_best: tuple[Point, ...] = ()

    @property
    def workers(self) -> list[int]:
        """Of the setting that is told of; of each that a name lists."""
        listed = self.points if self.kind is None else (self.best,)
        return [point.num_workers for point in listed]

    @property
    def name(self) -> str:
        """For a sentence that has much to say: `ps_sync, partitioned`, `the better of a and b`."""
        if self.kind is None and len(self.points) > 1:
            return f"the better of {' and '.join(point.setting.label for point in self.points)}"
        return self._alone or self.best.setting.label

    @property
    def title(self) -> str:
        """For a sentence: `the best parameter-server setting (ps_sync, partitioned)`.

        A setting that is called as its side is: `all-reduce (the best of 2 settings)`.  It is the
        best where that is decided, else the one with the highest mean.
        """
        setting, count = self.best.setting, len(self.points)
        if self.kind is None or self._alone:
            return self.name
        if self._is_named and setting.label == setting.called:
            best = "the best" if self.is_decided else "the highest mean"
            return f"{setting.label} ({best if self.is_highest else 'one'} of {count} settings)"
        if not self.is_highest:
            article = "an" if self.kind.setting.startswith("a") else "a"
            return f"{article} {self.kind.setting} ({setting.label})"
        if not self.is_decided:
            return f"the {self.kind.setting} with the highest mean ({setting.label})"
        return f"the {'best ' * (count > 1)}{self.kind.setting} ({setting.label})"

    @property
    def is_decided(self) -> bool:
        """No other setting of the side may be its best one."""
        return len(self.points) == 1 or len(self.may_be_best) == 1

    @property
    def _alone(self) -> str:
        """The name of the side, where no other setting of the case may be meant by it."""
        if self.kind is None or not self._is_named or len(self.points) > 1:
            return ""
        setting = self.best.setting
        return self.kind.name if setting.label == setting.called else ""

    @property
    def _is_named(self) -> bool:
        """It has the strategy that its side is called by."""
        return self.kind is not None and self.kind.alone is self.best.setting.traits


def side_of(point: Point) -> Side:
    """A setting that was chosen from no others."""
    return Side(points=(point,), best=point)


def mean_gain(point: Point, metric: Metric) -> float:
    """What is higher of the better setting, of a point that has launches: not a decision."""
    return estimate(metric.gains(point)).mean


def rivals_of(case: Case, metric: Metric = RATE) -> Rivals[Point]:
    """The points of a case, by what was asked for."""
    return Rivals(
        points=case.points,
        experiment=lambda point: point.experiment,
        launches=lambda point: len(metric.values(point)),
        enough=MIN_LAUNCHES,
    )


def meetings(case: Case, metric: Metric) -> dict[Kind, list[Meeting[Point]]]:
    """Where sides meet, by the kind of comparison; the main comparison is one or none."""
    rivals = rivals_of(case, metric)
    alike = [*rivals.alike(ALLREDUCE, PS_SYNC)]
    main = alike[:1]
    return {
        Kind.MAIN: main,
        Kind.HYBRID: [m for side in (ALLREDUCE, PS_SYNC) for m in rivals.alike(HYBRID, side)],
        Kind.STOCK: [
            meeting
            for suite, stock in ((ALLREDUCE, SHIPPED_ALLREDUCE), (PS_ASYNC, SHIPPED_PS))
            for meeting in _on_such_hosts(main, rivals, suite, stock)
        ],
        Kind.WORKERS: [
            meeting for each in main for meeting in rivals.meet(*each.kinds, [Basis.WORKERS])
        ],
        Kind.COST: [meeting for each in main for meeting in _at_cost(case, rivals, each.kinds)],
        Kind.ALIKE: alike[1:],
        Kind.APART: [*rivals.apart(ALLREDUCE, PS_SYNC)],
        Kind.ASYNCHRONOUS: [*rivals.alike(PS_ASYNC, ALLREDUCE)],
        Kind.AS_SHIPPED: [*rivals.meet(SHIPPED_ALLREDUCE, SHIPPED_PS)],
    }


def _on_such_hosts(
    main: Sequence[Meeting[Point]], rivals: Rivals[Point], first: SideKind, second: SideKind
) -> list[Meeting[Point]]:
    """Two sides on as many hosts as the main comparison, if both have enough launches there.

    A reader takes them for sides of the same size; else the largest size counts.
    """
    rooms = {point.room for each in main for side in each.points for point in side}
    near = replace(rivals, points=[point for point in rivals.points if point.room in rooms])
    enough = [
        meeting
        for meeting in near.meet(first, second)
        if all(rivals.launches(p) >= rivals.enough for side in meeting.points for p in side)
    ]
    return enough or [*rivals.meet(first, second)]


def costs_alike(first: float, second: float) -> bool:
    """Whether two costs count as equal."""
    return abs(math.log(first / second)) <= math.log1p(ALIKE)


def _at_cost(
    case: Case, rivals: Rivals[Point], kinds: tuple[SideKind, SideKind]
) -> Iterator[Meeting[Point]]:
    """Two sides where they cost the same, or nearly; nothing where prices say nothing new."""
    prices = case.prices
    if prices is None or not _tells_more(case, prices):
        return
    one, other = (rivals.by_size(kind, prices.per_hour) for kind in kinds)
    pairs = [*product(one, other)]
    if pairs:
        alike = [pair for pair in pairs if costs_alike(*pair)]
        nearest = min(pairs, key=lambda pair: abs(math.log(pair[0] / pair[1])))
        cost = max(alike, default=nearest)
        yield rivals.meeting(Basis.COST, kinds, (one[cost[0]], other[cost[1]]))


def _tells_more(case: Case, prices: Prices) -> bool:
    """Some hosts have another price, so that equal hosts are not equal cost."""
    apart = any(num_ps_hosts(point.experiment) for point in case.points)
    return apart and prices.host != prices.ps_host


def contenders(case: Case, metric: Metric = RATE) -> Iterator[tuple[Point, ...]]:
    """Of one side that was measured alone, the settings at the most workers on one transport.

    At least two synchronous ones, then asynchronous ones, in the order of the case; none where both
    sides were measured.
    """
    rivals = rivals_of(case, metric)
    if all(map(rivals.of, (ALLREDUCE, PS_SYNC))) or any(ladders(case)):
        return
    for synchronous in (True, False):
        alike = [point for point in case.points if _contends(point, synchronous, metric)]
        alike = [point for point in alike if point.transport == alike[0].transport]
        sizes = sorted({point.num_workers for point in alike}, reverse=True)
        at = ([point for point in alike if point.num_workers == size] for size in sizes)
        if found := next((points for points in at if len(points) > 1), None):
            # A single launch wins by luck.
            often = [p for p in found if rivals.launches(p) >= rivals.enough]
            yield tuple(often if len(often) > 1 else found)


def failed_beyond(case: Case, contending: Sequence[Point]) -> list[int]:
    """More workers, with which several such settings were tried, and too few ended well."""
    first = contending[0]
    tried = Counter(
        point.num_workers
        for point in case.points
        if _may_contend(point, first.setting.traits.synchronous)
        and point.transport == first.transport
        and not is_uneven(point)
    )
    return sorted(n for n, several in tried.items() if n > first.num_workers and several > 1)


def _contends(point: Point, synchronous: bool, metric: Metric) -> bool:
    measured = len(metric.values(point)) > 0 and not (metric == RATE and is_uneven(point))
    return _may_contend(point, synchronous) and measured


def _may_contend(point: Point, synchronous: bool) -> bool:
    traits = point.setting.traits
    return traits.synchronous is synchronous and not traits.as_shipped and traits.communicates()


def passed_over(case: Case, chosen: Sequence[Point], basis: Basis | None) -> list[Point]:
    """Settings that train like chosen ones on as many hosts, and have too few launches.

    Args:
        chosen: what sides or contenders were made of.
        basis: of sides; those on equal hosts may have other numbers of workers.
    """
    fewest = min([MIN_LAUNCHES, *(len(point.rates) for point in chosen)])
    kinds = {_kind(point, basis) for point in chosen}
    return [p for p in case.points if len(p.rates) < fewest and _kind(p, basis) in kinds]


def _kind(point: Point, basis: Basis | None) -> tuple[object, ...]:
    """What sides and contenders have in common."""
    own, traits = point.experiment.strategy, point.setting.traits
    trained = traits.side, traits.synchronous, traits.as_shipped, own.is_altered
    workers = None if basis is Basis.HOSTS else point.num_workers
    return *trained, point.transport, workers, point.room


def default_of(point: Point, contending: Sequence[Point]) -> Point | None:
    """The default beside a setting: defaults stand first in the order of a case.

    None where it was not measured: the default placement, and of the exchange whatever differs.
    """
    kin = [each for each in contending if _kin(each) == _kin(point)]
    first, exchanges = kin[0], [exchange_of(each.asked) for each in kin]
    servers, own = first.experiment.strategy.servers, exchanges[0]
    is_changed = any(
        own[name] != EXCHANGE[name] and any(own[name] != other.get(name) for other in exchanges)
        for name in own
    )
    is_placed = servers is None or servers.placement is Servers().placement
    return first if is_placed and not is_changed else None


def default_text(point: Point, contending: Sequence[Point]) -> str:
    """` (the default)`, of the only one: other strategies or servers have defaults of their own."""
    is_only = len({_kin(each) for each in contending}) == 1
    return " (the default)" * (is_only and default_of(point, contending) is point)


def against_defaults(contending: Sequence[Point]) -> list[PointPair]:
    """Every setting that is no default, beside its default."""
    pairs = [(point, default_of(point, contending)) for point in contending]
    return [(point, default) for point, default in pairs if default and default is not point]


def _kin(point: Point) -> tuple[str, int]:
    return point.setting.strategy, point.experiment.num_ps
