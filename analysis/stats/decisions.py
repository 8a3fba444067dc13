"""What may be said of every pair of points of a case: decided once, for headline, tables, figures.

Decides which comparisons are planned: the main one (the best synchronous servers against the best
all-reduce, at equal hosts), which is not corrected; those with TensorFlow as it ships; and where
one side was measured alone, its settings against the default: these are families of their own.  All
others that anybody shows are one family.  A pair is decided once, so it cannot be told in two ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, product

from analysis.data.cases import Case, Point
from analysis.stats.decision import Contest, Decision, decide
from analysis.stats.doubts import doubt_about
from analysis.stats.look_levels import ONCE
from analysis.stats.pairs.contenders import Contenders, contenders
from analysis.stats.pairs.cost import meet_otherwise
from analysis.stats.pairs.ladders import without_rungs
from analysis.stats.pairs.setting_pairs import PointPair, changed_pairs, synchronous_pairs
from analysis.stats.pairs.sides import (
    ALLREDUCE,
    PS_ASYNC,
    PS_SYNC,
    Meeting,
    meet,
    meet_apart,
    meet_as_shipped,
    meet_stock,
)
from analysis.stats.statistics import MIN_LAUNCHES, compare
from analysis.wording import transports_label

#: Headline, tables and figures all ask for the decisions of the same few cases.
_CASES = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """Two settings that are compared, and what may be said of the first one.

    Attributes:
        planned: it is not corrected for the number of all pairs.
    """

    first: Point
    second: Point
    decision: Decision
    planned: bool

    @property
    def label(self) -> str:
        """Empty for pairs on the same transport."""
        return transports_label(self.first.transport, self.second.transport)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decisions:
    """All that was decided of a case.

    Attributes:
        main: the planned comparison; None where the two sides do not meet.
        otherwise: its sides at equal workers and at equal cost, where other points meet there.
        alike: further meetings of the two sides, each on a transport of its own.
        apart: their meetings on different transports.
        asynchronous: meetings of asynchronous servers with all-reduce.
        stock: meetings of the suite with TensorFlow as it ships, both of which train alike.
        as_shipped: the meeting of TensorFlow's own two strategies, which do not train alike.
        contenders: of one side that was measured alone, its settings; synchronous ones first.
        by_pair: a decision for each pair, in one of its two orders.
    """

    main: Meeting | None
    otherwise: tuple[Meeting, ...]
    alike: tuple[Meeting, ...]
    apart: tuple[Meeting, ...]
    asynchronous: tuple[Meeting, ...]
    stock: tuple[Meeting, ...]
    as_shipped: tuple[Meeting, ...]
    contenders: tuple[Contenders, ...]
    by_pair: Mapping[PointPair, Decision]

    def of(self, first: Point, second: Point) -> Decision:
        """What may be said of the first of two points.

        Raises:
            KeyError: the two are not compared.
        """
        if (first, second) in self.by_pair:
            return self.by_pair[first, second]
        return self.by_pair[second, first].inverse()

    def pair(self, first: Point, second: Point) -> Pair:
        """Two points beside what may be said of the first.

        Raises:
            KeyError: the two are not compared.
        """
        return Pair(
            first=first,
            second=second,
            decision=self.of(first, second),
            planned={first, second} in self._planned,
        )

    @property
    def _planned(self) -> list[set[Point]]:
        met = [{*each.bests} for each in (*((self.main,) if self.main else ()), *self.stock)]
        return met + [{*pair} for each in self.contenders for pair in each.against_defaults]


@lru_cache(maxsize=_CASES)
def decisions(case: Case) -> Decisions:
    """Decide all comparisons of a case: the main one, those with stock, and all others."""
    ends = without_rungs(case)  # rungs are compared with each other only
    alike, apart = [*meet(ends, ALLREDUCE, PS_SYNC)], [*meet_apart(ends, ALLREDUCE, PS_SYNC)]
    asynchronous, as_shipped = [*meet(ends, PS_ASYNC, ALLREDUCE)], [*meet_as_shipped(ends)]
    stock = [*meet_stock(ends)]
    otherwise = [*meet_otherwise(case, alike[0])] if alike else []
    alone = [*contenders(ends)]
    planned = (_main(case, alike[0]) if alike else {}) | _with_stock(case, stock)
    planned |= _with_defaults(case, alone)
    pairs = [
        pair
        for pair in _others(case, [*otherwise, *alike[1:], *apart, *asynchronous, *as_shipped])
        if pair not in planned and pair[::-1] not in planned
    ]
    decided = decide([_contest_of_two(case, *pair) for pair in pairs])
    return Decisions(
        main=alike[0] if alike else None,
        otherwise=tuple(otherwise),
        alike=tuple(alike[1:]),
        apart=tuple(apart),
        asynchronous=tuple(asynchronous),
        stock=tuple(stock),
        as_shipped=tuple(as_shipped),
        contenders=tuple(alone),
        by_pair={**planned, **dict(zip(pairs, decided, strict=True))},
    )


def _main(case: Case, main: Meeting) -> dict[PointPair, Decision]:
    """The planned comparison, whose launches may have been looked at while they were made."""
    contest = _contest(case, main)
    launches = min(contest.shown.n_first, contest.shown.n_second)
    looks = case.looks.with_last(launches) if case.looks else ONCE
    (decision,) = decide([contest], looks)
    return {main.bests: decision}


def _with_stock(case: Case, meetings: Sequence[Meeting]) -> dict[PointPair, Decision]:
    """A family of their own."""
    decided = decide([_contest(case, meeting) for meeting in meetings])
    return dict(zip((meeting.bests for meeting in meetings), decided, strict=True))


def _with_defaults(case: Case, alone: Sequence[Contenders]) -> dict[PointPair, Decision]:
    """Every setting against the default: any of those that compute the same could be the best."""
    decided: dict[PointPair, Decision] = {}
    for each in alone:
        family = decide([_contest_of_two(case, *pair) for pair in each.against_defaults])
        decided |= dict(zip(each.against_defaults, family, strict=True))
    return decided


def _contest(case: Case, meeting: Meeting) -> Contest:
    """The best of one side against the best of the other one, for any choice of the best."""
    first, second = (side.points for side in meeting.sides)
    rows = [tuple(compare(one.rates, other.rates) for other in second) for one in first]
    bests = meeting.bests
    return Contest(
        comparisons=tuple(rows),
        best=(first.index(bests[0]), second.index(bests[1])),
        doubt=doubt_about(case, *bests),
    )


def _contest_of_two(case: Case, first: Point, second: Point) -> Contest:
    return Contest(
        comparisons=((compare(first.rates, second.rates),),),
        doubt=doubt_about(case, first, second),
    )


def _others(case: Case, meetings: Sequence[Meeting]) -> list[PointPair]:
    """All pairs that anybody shows, each once; of sides that meet, any two of their settings."""
    met = [product(*(side.points for side in meeting.sides)) for meeting in meetings]
    found: dict[frozenset[Point], PointPair] = {}
    for first, second in chain(
        synchronous_pairs(case, same_transport=True),
        synchronous_pairs(case, same_transport=False),
        changed_pairs(case),
        *met,
    ):
        found.setdefault(frozenset((first, second)), (first, second))
    return list(found.values())


def all_pairs(case: Case, *, same_transport: bool = True) -> list[Pair]:
    """All synchronous settings with each other, on one transport or on different ones.

    The planned pair comes first where its settings have different numbers of workers.
    """
    decided = decisions(case)
    pairs = synchronous_pairs(case, same_transport=same_transport)
    if same_transport and decided.main is not None and _differs_in_workers(decided.main):
        pairs.insert(0, decided.main.bests)
    return [decided.pair(*pair) for pair in pairs]


def _differs_in_workers(main: Meeting) -> bool:
    """Its settings have other numbers of workers, and enough launches to be told of."""
    enough = all(len(point.rates) >= MIN_LAUNCHES for point in main.bests)
    return enough and main.workers[0] != main.workers[1]


def changed_points(case: Case) -> list[Pair]:
    """All points that are changed from another one, beside that one, in the order of the case."""
    decided = decisions(case)
    return [decided.pair(*pair) for pair in changed_pairs(case)]
