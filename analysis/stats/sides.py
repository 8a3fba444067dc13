"""The two sides of a comparison, and the choice of each side's best setting.

Decides which strategies form a side, that settings of one side use one transport, at which number
of workers two sides meet, and that the best setting of a side is chosen on other launches than
those it is reported on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pandas as pd

from analysis.data.cases import Case, Point
from analysis.stats.statistics import MIN_LAUNCHES, Comparison, Selection, choose_best, compare
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
    strategies=lambda traits: traits.uses_collective,
    alone=True,
)
PS_SYNC = SideKind(
    name="synchronous parameter servers",
    setting="parameter-server setting",
    strategies=lambda traits: traits.uses_servers and traits.synchronous,
)
PS_ASYNC = SideKind(
    name="asynchronous parameter servers",
    setting="asynchronous parameter-server setting",
    strategies=lambda traits: traits.uses_servers and not traits.synchronous,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """The settings of a kind that were measured at one number of workers.

    Attributes:
        points: the settings to choose from, in the order of the case; not empty.
        selection: the choice among them.
    """

    kind: SideKind
    points: tuple[Point, ...]
    selection: Selection

    @property
    def rates(self) -> pd.Series:
        """Examples per second by turn, of the setting chosen without that turn."""
        return self.selection.values

    @property
    def favourite(self) -> Point | None:
        """The setting chosen most often; None where there are too few launches to choose."""
        position = self.selection.favourite
        return None if position is None else self.points[position]

    @property
    def title(self) -> str:
        """For a sentence: `the best parameter-server setting (ps_sync, partitioned)`."""
        if len(self.points) == 1 and self.kind.alone:
            return self.kind.name
        best = "best " if len(self.points) > 1 else ""
        chosen = f" ({self.favourite.setting.label})" if self.favourite else ""
        return f"the {best}{self.kind.setting}{chosen}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Meeting:
    """Two sides at the largest number of workers at which they can be compared.

    Attributes:
        comparison: the first side over the second.
        beyond: larger numbers of workers that both sides were run at, without enough launches.
    """

    num_workers: int
    sides: tuple[Side, Side]
    comparison: Comparison
    beyond: tuple[int, ...]


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
    one, other = _side_at(case, first, workers), _side_at(case, second, workers)
    return Meeting(
        num_workers=workers,
        sides=(one, other),
        comparison=compare(one.rates, other.rates),
        beyond=tuple(count for count in sorted(common) if count > workers),
    )


def _workers(case: Case, kind: SideKind, launches: int) -> set[int]:
    points = kind.points(case)
    return {point.num_workers for point in points if len(point.rates) >= launches}


def _side_at(case: Case, kind: SideKind, num_workers: int) -> Side:
    points = tuple(
        point
        for point in kind.points(case)
        if point.num_workers == num_workers and len(point.rates)
    )
    return Side(kind=kind, points=points, selection=choose_best([p.rates for p in points]))
