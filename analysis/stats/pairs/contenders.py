"""Sweeps of one side: the settings that contend for being the fastest.

Decides that where parameter servers or all-reduce were measured alone, the question is which of
their settings is fastest at the most workers; that synchronous and asynchronous settings, which do
not compute the same, each have a question of their own; that a setting of which one worker made
most of the steps does not contend; and that a setting is held against the
default: round robin, and the suite's own messages, with the same strategy and as many servers.
What may be said is decided in `decisions`, which of them leads in `findings`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from analysis.data.cases import Case, Point
from analysis.stats.doubts import is_uneven
from analysis.stats.pairs.ladders import ladders
from analysis.stats.pairs.sides import ALLREDUCE, PS_SYNC
from analysis.stats.statistics import MIN_LAUNCHES
from ps_allreduce.point.strategies.base import Servers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contenders:
    """Settings that compute the same, on one transport, at the most workers.

    Attributes:
        points: at least two, in the order of the case.
    """

    points: tuple[Point, ...]

    @property
    def against_defaults(self) -> list[tuple[Point, Point]]:
        """Every setting that is no default, beside its default."""
        pairs = [(point, self.default_of(point)) for point in self.points]
        return [(point, default) for point, default in pairs if default and default is not point]

    def default_of(self, point: Point) -> Point | None:
        """The default beside a setting: defaults stand first in the order of a case.

        None where the default placement was not measured.
        """
        wanted = _kin(point)
        first = next(each for each in self.points if _kin(each) == wanted)
        servers = first.experiment.strategy.servers
        return first if servers is None or servers.placement is Servers().placement else None


def contenders(case: Case) -> Iterator[Contenders]:
    """The synchronous settings, then the asynchronous ones; none where both sides were measured."""
    if all(kind.points(case) for kind in (ALLREDUCE, PS_SYNC)) or any(ladders(case)):
        return
    for synchronous in (True, False):
        alike = [point for point in case.points if _contends(point, synchronous)]
        alike = [point for point in alike if point.transport == alike[0].transport]
        sizes = sorted({point.num_workers for point in alike}, reverse=True)
        at = ([point for point in alike if point.num_workers == size] for size in sizes)
        if found := next((points for points in at if len(points) > 1), None):
            yield Contenders(points=tuple(_often(found) or found))


def _contends(point: Point, synchronous: bool) -> bool:
    traits = point.setting.traits
    alike = traits.synchronous is synchronous and not traits.as_shipped
    return alike and traits.communicates() and len(point.rates) > 0 and not is_uneven(point)


def _often(points: list[Point]) -> list[Point]:
    """Those with enough launches, if there are several: a single launch wins by luck."""
    often = [point for point in points if len(point.rates) >= MIN_LAUNCHES]
    return often if len(often) > 1 else []


def _kin(point: Point) -> tuple[str, int]:
    return point.setting.strategy, point.experiment.num_ps
