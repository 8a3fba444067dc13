"""The two sides of a comparison, and where they meet.

Decides which strategies form a side, that settings of one side use one transport, at which number
of workers and on how many hosts two sides meet, and which setting of a side is its best.  What may
be said of a meeting is decided in `decision`, which accounts for the choice of the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from analysis.data.cases import Case, Point
from analysis.stats.statistics import MIN_LAUNCHES, estimate
from ps_allreduce.point.strategies import AnyStrategy
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
        points = [point for point in case.points if self.strategies(point.setting.traits)]
        return [point for point in points if self.transport in (None, point.transport)]

    def over(self, transport: str) -> SideKind:
        """The settings of this kind with one transport."""
        return replace(self, transport=transport)


ALLREDUCE = SideKind(
    name="all-reduce",
    setting="all-reduce setting",
    strategies=lambda traits: traits.uses_collective and not traits.as_shipped,
    alone=True,
)
PS_SYNC = SideKind(
    name="synchronous parameter servers",
    setting="parameter-server setting",
    strategies=lambda traits: traits.uses_servers and traits.synchronous and not traits.as_shipped,
)
PS_ASYNC = SideKind(
    name="asynchronous parameter servers",
    setting="asynchronous parameter-server setting",
    strategies=lambda traits: (
        traits.uses_servers and not traits.synchronous and not traits.as_shipped
    ),
)
SHIPPED_ALLREDUCE = SideKind(
    name="TensorFlow's all-reduce as shipped",
    setting="all-reduce setting as shipped",
    strategies=lambda traits: traits.as_shipped and traits.uses_collective,
    alone=True,
)
SHIPPED_PS = SideKind(
    name="TensorFlow's parameter servers as shipped",
    setting="parameter-server setting as shipped",
    strategies=lambda traits: traits.as_shipped and traits.uses_servers,
    alone=True,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """The settings of a kind that were measured at one number of workers.

    Attributes:
        points: the settings to choose from, in the order of the case; not empty.
    """

    kind: SideKind
    points: tuple[Point, ...]

    @property
    def best(self) -> Point:
        """The setting with the highest rate."""
        return max(self.points, key=lambda point: estimate(point.rates).mean)

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Meeting:
    """Two sides at the largest number of workers at which they can be compared.

    Attributes:
        sides: their settings on equal hosts, if there are any.
        beyond: larger numbers of workers that both sides were run at, without enough launches.
    """

    num_workers: int
    sides: tuple[Side, Side]
    beyond: tuple[int, ...]

    @property
    def bests(self) -> tuple[Point, Point]:
        """The best setting of each side."""
        first, second = self.sides
        return first.best, second.best

    @property
    def hosts(self) -> tuple[int | None, int | None]:
        """Of each side's best setting; None where launches differ or it is unknown."""
        first, second = self.bests
        return first.common("num_hosts"), second.common("num_hosts")


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
    alike = {meeting.sides[0].kind.transport for meeting in meet(case, first, second)}
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
    """Compare two sides; None where they have no number of workers in common.

    The largest number of workers with three launches on both sides counts, else the largest one
    with any.
    """
    common = _workers(case, first, 1) & _workers(case, second, 1)
    enough = _workers(case, first, MIN_LAUNCHES) & _workers(case, second, MIN_LAUNCHES)
    if not common:
        return None
    workers = max(enough or common)
    one, other = _on_equal_hosts(_at(case, first, workers), _at(case, second, workers))
    return Meeting(
        num_workers=workers,
        sides=(Side(kind=first, points=one), Side(kind=second, points=other)),
        beyond=tuple(count for count in sorted(common) if count > workers),
    )


def _workers(case: Case, kind: SideKind, launches: int) -> set[int]:
    points = kind.points(case)
    return {point.num_workers for point in points if len(point.rates) >= launches}


def _at(case: Case, kind: SideKind, num_workers: int) -> tuple[Point, ...]:
    """Settings with enough launches, or those with any where none has enough."""
    points = [point for point in kind.points(case) if point.num_workers == num_workers]
    most = max(len(point.rates) for point in points)
    return tuple(point for point in points if len(point.rates) >= min(MIN_LAUNCHES, most))


def _on_equal_hosts(
    first: tuple[Point, ...], second: tuple[Point, ...]
) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
    """Without settings that use other numbers of hosts; all of them where no number is common."""
    common = {p.common("num_hosts") for p in first} & {p.common("num_hosts") for p in second}
    known = [count for count in common if count is not None]
    if not known:
        return first, second
    one, other = (
        tuple(point for point in side if point.common("num_hosts") == max(known))
        for side in (first, second)
    )
    return one, other
