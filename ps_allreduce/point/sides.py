"""The two sides of a comparison, and where they meet.

Decides which strategies form a side, that settings of one side use one transport, and at which size
two sides meet: at equal hosts, those of servers counted; else at equal workers.  A sweep asks
before anything is measured which points it launches more often, and a report which points it
compares: both ask here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import room_for_workers
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    Hybrid,
)
from ps_allreduce.point.strategies.base import Strategy, StrategySide
from ps_allreduce.point.wire import WireType

T = TypeVar("T")

_FORMATS = [str(each) for each in WireType]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideKind:
    """What makes a side: strategies with the same traits.

    A strategy that is on no side has no rivals.

    Attributes:
        name: in a sentence about the side as a whole.
        setting: in a sentence about one of its settings.
        side, synchronous, as_shipped: traits of its strategies.
        alone: a strategy of which one setting without rivals is called by `name` only.
        transport: what carries its gradients; None for any.
    """

    name: str
    setting: str
    side: StrategySide
    synchronous: bool = True
    as_shipped: bool = False
    alone: type[AnyStrategy] | None = None
    transport: str | None = None

    def holds(self, point: Experiment) -> bool:
        """Whether a point is on this side; one with an altered part is on none."""
        own = point.strategy
        alike = self.trains_like(own) and own.as_shipped is self.as_shipped
        return alike and not own.is_altered and self.transport in (None, point.transport)

    def trains_like(self, strategy: Strategy | type[Strategy]) -> bool:
        """Whether a strategy, as shipped or not, combines gradients as this side does."""
        return (strategy.side, strategy.synchronous) == (self.side, self.synchronous)

    def over(self, transport: str) -> SideKind:
        """The settings of this kind with one transport."""
        return replace(self, transport=transport)


ALLREDUCE = SideKind(
    name="all-reduce",
    setting="all-reduce setting",
    side=StrategySide.ALL_REDUCE,
    alone=AllReduce,
)
PS_SYNC = SideKind(
    name="synchronous parameter servers",
    setting="synchronous parameter-server setting",
    side=StrategySide.SERVERS,
)
PS_ASYNC = SideKind(
    name="asynchronous parameter servers",
    setting="asynchronous parameter-server setting",
    side=StrategySide.SERVERS,
    synchronous=False,
)
HYBRID = SideKind(
    name="the hybrid",
    setting="hybrid setting",
    side=StrategySide.HYBRID,
    alone=Hybrid,
)
SHIPPED_ALLREDUCE = SideKind(
    name="TensorFlow's all-reduce as shipped",
    setting="all-reduce setting as shipped",
    side=StrategySide.ALL_REDUCE,
    as_shipped=True,
)
SHIPPED_PS = SideKind(
    name="TensorFlow's parameter-server strategy as shipped",
    setting="parameter-server setting as shipped",
    side=StrategySide.SERVERS,
    synchronous=False,
    as_shipped=True,
)


class Basis(StrEnum):
    """What two sides have equally much of where they are compared."""

    HOSTS = "hosts"
    WORKERS = "workers"
    COST = "cost"


#: What counts how large a point is.  Hosts count by the workers that they have room for: a host
#: that is not full is no more than what runs there, and on one machine all points share the host.
_SIZES: Mapping[Basis, Callable[[Experiment], int]] = {
    Basis.HOSTS: room_for_workers,
    Basis.WORKERS: lambda point: point.num_workers,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting(Generic[T]):
    """Two sides where they are compared.

    Attributes:
        points: the settings of each side to choose from, in their order; neither is empty.
        beyond: larger sizes at which both sides were tried, and one has not enough launches.
    """

    basis: Basis
    kinds: tuple[SideKind, SideKind]
    points: tuple[tuple[T, ...], tuple[T, ...]]
    beyond: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals(Generic[T]):
    """Points that sides are made of.

    Attributes:
        experiment: what was asked for at a point.
        launches: how many it has; a point without any meets nobody.
        enough: launches of a point that may be decided.
    """

    points: Sequence[T]
    experiment: Callable[[T], Experiment]
    launches: Callable[[T], int]
    enough: int

    def of(self, kind: SideKind) -> list[T]:
        """The points of a side."""
        return [point for point in self.points if kind.holds(self.experiment(point))]

    def transports(self, kind: SideKind) -> list[str]:
        """Those of a side: gradients in float32 first, then in the order of the points."""
        asked = [self.experiment(point) for point in self.of(kind)]
        asked.sort(key=lambda own: _FORMATS.index(str(own.columns()["gradients_on_wire"])))
        return list(dict.fromkeys(own.transport for own in asked if own.transport))

    def shared_transports(self, first: SideKind, second: SideKind) -> list[str]:
        """Transports that both sides have settings with."""
        others = self.transports(second)
        return [one for one in self.transports(first) if one in others]

    def alike(self, first: SideKind, second: SideKind) -> Iterator[Meeting[T]]:
        """Two sides on every transport that both have, the one in float32 first.

        A strategy is judged with what its rival has as well: what is faster over another transport
        may be so because of the transport.
        """
        for one in self.shared_transports(first, second):
            yield from self.meet(first.over(one), second.over(one))

    def apart(self, first: SideKind, second: SideKind) -> Iterator[Meeting[T]]:
        """Two sides on different transports, unless either is compared with its like."""
        alike = {meeting.kinds[0].transport for meeting in self.alike(first, second)}
        for one in self.transports(first):
            for other in self.transports(second):
                if one != other and not {one, other} <= alike:
                    yield from self.meet(first.over(one), second.over(other))

    def meet(
        self,
        first: SideKind,
        second: SideKind,
        bases: Sequence[Basis] = (Basis.HOSTS, Basis.WORKERS),
    ) -> Iterator[Meeting[T]]:
        """Two sides by the first of some bases on which they are equally large; else nothing.

        The largest size with enough launches on both sides counts, else the largest one with any.
        """
        for basis in bases:
            one, other = (self.by_size(kind, _SIZES[basis]) for kind in (first, second))
            common = one.keys() & other.keys()
            if common:
                most = {size: min(map(self._most, (one[size], other[size]))) for size in common}
                size = max([size for size in common if most[size] >= self.enough] or common)
                tried = self._tried(first, basis) & self._tried(second, basis)
                beyond = tuple(sorted(larger for larger in tried if larger > size))
                yield self.meeting(basis, (first, second), (one[size], other[size]), beyond)
                return

    def meeting(
        self,
        basis: Basis,
        kinds: tuple[SideKind, SideKind],
        points: tuple[Sequence[T], Sequence[T]],
        beyond: tuple[int, ...] = (),
    ) -> Meeting[T]:
        """Sides of what has enough launches, or of what has any where none has enough."""
        first, second = map(self._often, points)
        return Meeting(basis=basis, kinds=kinds, points=(first, second), beyond=beyond)

    def by_size(
        self, kind: SideKind, size_of: Callable[[Experiment], float]
    ) -> dict[float, list[T]]:
        """The points of a side that have launches."""
        found: dict[float, list[T]] = {}
        for point in self.of(kind):
            if self.launches(point):
                found.setdefault(size_of(self.experiment(point)), []).append(point)
        return found

    def _tried(self, kind: SideKind, basis: Basis) -> set[int]:
        """The sizes of a side's points, also of those without launches."""
        return {_SIZES[basis](self.experiment(point)) for point in self.of(kind)}

    def _most(self, points: Sequence[T]) -> int:
        return max(map(self.launches, points))

    def _often(self, points: Sequence[T]) -> tuple[T, ...]:
        fewest = min(self.enough, self._most(points))
        return tuple(point for point in points if self.launches(point) >= fewest)


def main_points(points: Sequence[Experiment]) -> list[Experiment]:
    """Those of the main comparison of every workload; all points where there is none."""
    return both_sides(points) or list(points)


def both_sides(points: Sequence[Experiment]) -> list[Experiment]:
    """Those of the main comparison of every workload and network, before anything is launched."""
    cases: dict[object, list[Experiment]] = {}
    for point in points:
        cases.setdefault((point.workload, point.network), []).append(point)
    return [point for own in cases.values() for point in _both_sides_of(own)]


def _both_sides_of(points: Sequence[Experiment]) -> list[Experiment]:
    rivals = Rivals(points=points, experiment=lambda point: point, launches=lambda _: 1, enough=1)
    main = next(rivals.alike(ALLREDUCE, PS_SYNC), None)
    if main is None:
        return []
    mixed = next(rivals.alike(HYBRID, ALLREDUCE), None)
    sides = [*main.points, *([mixed.points[0]] if mixed else [])]
    return [point for side in sides for point in side]
