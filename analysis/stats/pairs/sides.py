"""The two sides of a comparison, and where they meet.

Decides which strategies form a side, that settings of one side use one transport, at which size two
sides meet (at equal hosts, those of servers counted; else at equal workers), and which setting of a
side is its best.  What may be said of a meeting is decided in `decision`, which accounts for the
choice of the best; where two sides cost the same is decided in `cost`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from analysis.data.cases import Case, Point
from analysis.stats.points import mean_rate
from analysis.stats.statistics import MIN_LAUNCHES
from ps_allreduce.point.strategies import AnyStrategy
from ps_allreduce.point.strategies.base import StrategySide
from ps_allreduce.point.wire import WireType


@dataclass(frozen=True, slots=True, kw_only=True)
class SideKind:
    """What makes a side.

    Attributes:
        name: in a sentence about the side as a whole.
        setting: in a sentence about one of its settings.
        strategies: tells from a strategy's class whether it is on this side.
        alone: one setting without rivals is called by `name` only.
        transport: what carries its gradients; None for any.
    """

    name: str
    setting: str
    strategies: Callable[[type[AnyStrategy]], bool]
    alone: bool = False
    transport: str | None = None

    def points(self, case: Case) -> list[Point]:
        """The points of a case whose settings are on this side."""
        points = [
            point
            for point in case.points
            if self.strategies(point.setting.traits) and not point.experiment.strategy.is_altered
        ]
        return [point for point in points if self.transport in (None, point.transport)]

    def over(self, transport: str) -> SideKind:
        """The settings of this kind with one transport."""
        return replace(self, transport=transport)


ALLREDUCE = SideKind(
    name="all-reduce",
    setting="all-reduce setting",
    strategies=lambda traits: traits.side is StrategySide.ALL_REDUCE and not traits.as_shipped,
    alone=True,
)
PS_SYNC = SideKind(
    name="synchronous parameter servers",
    setting="parameter-server setting",
    strategies=lambda traits: (
        traits.side is StrategySide.SERVERS and traits.synchronous and not traits.as_shipped
    ),
)
PS_ASYNC = SideKind(
    name="asynchronous parameter servers",
    setting="asynchronous parameter-server setting",
    strategies=lambda traits: (
        traits.side is StrategySide.SERVERS and not traits.synchronous and not traits.as_shipped
    ),
)
SHIPPED_ALLREDUCE = SideKind(
    name="TensorFlow's all-reduce as shipped",
    setting="all-reduce setting as shipped",
    strategies=lambda traits: traits.as_shipped and traits.side is StrategySide.ALL_REDUCE,
    alone=True,
)
SHIPPED_PS = SideKind(
    name="TensorFlow's parameter servers as shipped",
    setting="parameter-server setting as shipped",
    strategies=lambda traits: traits.as_shipped and traits.side is StrategySide.SERVERS,
    alone=True,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """The settings of a kind that were measured at one size.

    Attributes:
        points: the settings to choose from, in the order of the case; not empty.
        shown: that of them by which a difference is shown; None where nothing is decided yet.
    """

    kind: SideKind
    points: tuple[Point, ...]
    shown: Point | None = None

    @property
    def best(self) -> Point:
        """The setting by which a difference is shown, else that with the highest rate."""
        return self.shown or max(self.points, key=mean_rate)

    @property
    def name(self) -> str:
        """For a sentence that has much to say: `ps_sync, partitioned`."""
        return self.kind.name if self._is_alone else self.best.setting.label

    @property
    def title(self) -> str:
        """For a sentence: `the best parameter-server setting (ps_sync, partitioned)`."""
        if self._is_alone:
            return self.kind.name
        best = "best " if len(self.points) > 1 else ""
        return f"the {best}{self.kind.setting} ({self.best.setting.label})"

    @property
    def _is_alone(self) -> bool:
        return self.kind.alone and len(self.points) == 1


class Basis(StrEnum):
    """What two sides have equally much of where they are compared."""

    HOSTS = "hosts"
    WORKERS = "workers"
    COST = "cost"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Meeting:
    """Two sides at the largest size at which they can be compared.

    Attributes:
        basis: what is equal.
        beyond: larger numbers of workers, or of those that hosts have room for, that both sides
            were run at without enough launches.
    """

    basis: Basis
    sides: tuple[Side, Side]
    beyond: tuple[int, ...] = ()

    @property
    def bests(self) -> tuple[Point, Point]:
        """The best setting of each side."""
        first, second = self.sides
        return first.best, second.best

    def shown_by(self, first: Point, second: Point) -> Meeting:
        """The same meeting, told of these settings."""
        one, other = self.sides
        return replace(self, sides=(replace(one, shown=first), replace(other, shown=second)))

    @property
    def workers(self) -> tuple[int, int]:
        """Of each side's best setting."""
        first, second = self.bests
        return first.num_workers, second.num_workers

    @property
    def transport(self) -> str | None:
        """That of both sides; None where they differ."""
        first, second = (side.kind.transport for side in self.sides)
        return first if first == second else None


def meet(case: Case, first: SideKind, second: SideKind) -> Iterator[Meeting]:
    """Compare two sides on every transport that both have, the one in float32 first.

    A strategy is judged with what its rival has as well: what is faster over another transport may
    be so because of the transport.
    """
    for one in shared_transports(case, first, second):
        meeting = _meet(case, first.over(one), second.over(one))
        if meeting is not None:
            yield meeting


def meet_apart(case: Case, first: SideKind, second: SideKind) -> Iterator[Meeting]:
    """Compare two sides on different transports, unless either is compared with its like."""
    alike = {meeting.transport for meeting in meet(case, first, second)}
    for one in _transports(case, first):
        for other in _transports(case, second):
            if one == other or (one in alike and other in alike):
                continue
            meeting = _meet(case, first.over(one), second.over(other))
            if meeting is not None:
                yield meeting


def meet_as_shipped(case: Case) -> Iterator[Meeting]:
    """Compare TensorFlow's own two strategies, whatever their transports are called."""
    meeting = _meet(case, SHIPPED_ALLREDUCE, SHIPPED_PS)
    if meeting is not None:
        yield meeting


def meet_stock(case: Case) -> Iterator[Meeting]:
    """Compare the suite's settings with TensorFlow as it ships, where both train alike."""
    for suite, stock in ((ALLREDUCE, SHIPPED_ALLREDUCE), (PS_ASYNC, SHIPPED_PS)):
        meeting = _meet(case, suite, stock)
        if meeting is not None:
            yield meeting


def shared_transports(case: Case, first: SideKind, second: SideKind) -> list[str]:
    """Transports that both sides have settings with."""
    return [one for one in _transports(case, first) if one in _transports(case, second)]


def _transports(case: Case, kind: SideKind) -> list[str]:
    """Those of a side's settings: gradients in float32 first, then in the order of the points."""
    formats = [str(each) for each in WireType]
    points = sorted(
        kind.points(case), key=lambda point: formats.index(point.asked["gradients_on_wire"])
    )
    return list(dict.fromkeys(p.transport for p in points if p.transport is not None))


def _meet(case: Case, first: SideKind, second: SideKind) -> Meeting | None:
    """Compare two sides at equal hosts; at equal workers where they have no such points."""
    return meet_at(Basis.HOSTS, case, first, second) or meet_at(Basis.WORKERS, case, first, second)


#: What counts how large a point is.  Hosts count by the workers that they have room for: a host
#: that is not full is no more than what runs there, and on one machine all points share the host.
_SIZES: Mapping[Basis, Callable[[Point], int]] = {
    Basis.HOSTS: lambda point: point.room,
    Basis.WORKERS: lambda point: point.num_workers,
}


def meet_at(basis: Basis, case: Case, first: SideKind, second: SideKind) -> Meeting | None:
    """Compare two sides where they are equally large; None where they never are.

    The largest size with three launches on both sides counts, else the largest one with any.
    """
    one, other = _by_size(basis, case, first), _by_size(basis, case, second)
    common = one.keys() & other.keys()
    if not common:
        return None
    enough = [size for size in common if min(_most(one[size]), _most(other[size])) >= MIN_LAUNCHES]
    size = max(enough or common)
    return Meeting(
        basis=basis,
        sides=(
            Side(kind=first, points=with_enough_launches(one[size])),
            Side(kind=second, points=with_enough_launches(other[size])),
        ),
        beyond=tuple(larger for larger in sorted(common) if larger > size),
    )


def _by_size(basis: Basis, case: Case, kind: SideKind) -> dict[int, list[Point]]:
    """The points of a side that have launches."""
    found: dict[int, list[Point]] = {}
    for point in kind.points(case):
        if len(point.rates):
            found.setdefault(_SIZES[basis](point), []).append(point)
    return found


def _most(points: Sequence[Point]) -> int:
    return max(len(point.rates) for point in points)


def with_enough_launches(points: Sequence[Point]) -> tuple[Point, ...]:
    """Those with enough launches, or those with any where none has enough."""
    fewest = min(MIN_LAUNCHES, _most(points))
    return tuple(point for point in points if len(point.rates) >= fewest)
