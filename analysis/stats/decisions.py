"""What may be said of every pair of points of a case: decided once, for headline, tables, figures.

Decides which comparisons are planned: the main one (the best synchronous servers against the best
all-reduce, at equal hosts), which is not corrected; those with TensorFlow as it ships; and where
one side was measured alone, its settings against the default: these are families of their own.  So
are further pairs of asynchronous settings.  All others that anybody shows are one family.  A pair
is decided once, so it cannot be told in two ways.  Sides that meet are told by settings that show
what is decided, not by the highest rate, however much it varies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, combinations, product

from analysis.data.cases import Case, Point
from analysis.stats.decision import EARLY_STOPPING_LEVEL, LEVEL, Contest, Decision, Outcome, decide
from analysis.stats.doubts import doubt_about
from analysis.stats.pairs.contenders import Contenders, contenders
from analysis.stats.pairs.cost import meet_otherwise
from analysis.stats.pairs.ladders import without_rungs
from analysis.stats.pairs.setting_pairs import (
    PointPair,
    changed_pairs,
    synchronous_pairs,
    without_changed,
)
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
from analysis.stats.points import base_of, mean_rate
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
        alone: a single worker over the best of both sides; None where it was not measured.
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
    alone: Decision | None
    by_pair: Mapping[PointPair, Decision]

    def of(self, first: Point, second: Point) -> Decision:
        """What may be said of the first of two points.

        Raises:
            KeyError: the two are not compared.
        """
        if (first, second) in self.by_pair:
            return self.by_pair[first, second]
        return self.by_pair[second, first].inverse()

    def compares(self, first: Point, second: Point) -> bool:
        """The two are compared, in one of the two orders."""
        return (first, second) in self.by_pair or (second, first) in self.by_pair

    def beats(self, first: Point, second: Point) -> bool:
        """The first is decided faster; not so where the two are not compared."""
        return self.compares(first, second) and self.of(first, second).outcome is Outcome.FASTER

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
    alike, contending = [*meet(ends, ALLREDUCE, PS_SYNC)], [*contenders(ends)]
    main = _main(case, alike[0]) if alike else {}
    stock = _with_stock(case, [*meet_stock(ends)])
    planned = {meeting.bests: decision for meeting, decision in {**main, **stock}.items()}
    planned |= _with_defaults(case, contending)
    met = {
        "otherwise": [*meet_otherwise(case, alike[0])] if alike else [],
        "alike": alike[1:],
        "apart": [*meet_apart(ends, ALLREDUCE, PS_SYNC)],
        "asynchronous": [*meet(ends, PS_ASYNC, ALLREDUCE)],
        "as_shipped": [*meet_as_shipped(ends)],
    }
    others = _others(case, [*chain(*met.values())])
    by_pair = dict(planned)
    for family in (others, _asynchronous_pairs(case, contending)):
        pairs = [pair for pair in family if not {pair, pair[::-1]} & planned.keys()]
        by_pair |= _decide_pairs(case, pairs)
    level = LEVEL / max(1, len(others))
    return Decisions(
        main=next(iter(main), None),
        stock=tuple(stock),
        contenders=tuple(contending),
        alone=_single_worker(case, next(iter(main), None)),
        by_pair=by_pair,
        **{name: tuple(_shown(case, one, level)[0] for one in each) for name, each in met.items()},
    )


def _main(case: Case, main: Meeting) -> dict[Meeting, Decision]:
    """The planned comparison, whose launches may have been looked at while they were made."""
    level = EARLY_STOPPING_LEVEL if case.may_stop_early else LEVEL
    told, contest = _shown(case, main, level)
    return {told: decide([contest], level)[0]}


def _with_stock(case: Case, meetings: Sequence[Meeting]) -> dict[Meeting, Decision]:
    """A family of their own."""
    level = LEVEL / max(1, len(meetings))
    told = [_shown(case, meeting, level) for meeting in meetings]
    decided = decide([contest for _, contest in told])
    return dict(zip((meeting for meeting, _ in told), decided, strict=True))


def _with_defaults(case: Case, alone: Sequence[Contenders]) -> dict[PointPair, Decision]:
    """Every setting against the default: any of those that compute the same could be the best."""
    decided: dict[PointPair, Decision] = {}
    for each in alone:
        decided |= _decide_pairs(case, each.against_defaults)
    return decided


def _asynchronous_pairs(case: Case, alone: Sequence[Contenders]) -> list[PointPair]:
    """All pairs of asynchronous contenders; synchronous ones stand among all pairs.

    Changed settings are left out if they are too many, as there.
    """
    few = {*without_changed(case).points}
    points = [point for each in alone for point in each.points if point in few]
    return [*combinations([p for p in points if not p.setting.traits.synchronous], 2)]


def _decide_pairs(case: Case, pairs: Sequence[PointPair]) -> dict[PointPair, Decision]:
    """A family of pairs."""
    decided = decide([_contest_of_two(case, *pair) for pair in pairs])
    return dict(zip(pairs, decided, strict=True))


def _single_worker(case: Case, main: Meeting | None) -> Decision | None:
    """A single worker against the best of both sides, each of which it must beat.

    It says nothing where workers share cores, of which a single one has as many as it uses.
    """
    if main is None or case.shares_cores:
        return None
    fastest = max(main.bests, key=mean_rate)
    alone = base_of(case, fastest, "single")
    if alone is None or alone.rates.empty:
        return None
    contest = Contest(
        comparisons=(tuple(compare(alone.rates, point.rates) for point in main.bests),),
        best=(0, main.bests.index(fastest)),
    )
    return decide([_doubted(case, contest, alone, fastest)])[0]


def _shown(case: Case, meeting: Meeting, level: float) -> tuple[Meeting, Contest]:
    """A meeting, told of settings that show a difference at a level, and its contest."""
    contest = _contest(meeting).showing(level)
    best = (side.points[number] for side, number in zip(meeting.sides, contest.best, strict=True))
    told = meeting.shown_by(*best)
    return told, _doubted(case, contest, *told.bests)


def _doubted(case: Case, contest: Contest, first: Point, second: Point) -> Contest:
    """The contest, with what takes the meaning of its ratio away."""
    ends = contest.interval(LEVEL)
    return replace(contest, doubt=doubt_about(case, first, second, ends))


def _contest(meeting: Meeting) -> Contest:
    """The best of one side against the best of the other one, for any choice of the best."""
    first, second = (side.points for side in meeting.sides)
    rows = [tuple(compare(one.rates, other.rates) for other in second) for one in first]
    bests = meeting.bests
    return Contest(comparisons=tuple(rows), best=(first.index(bests[0]), second.index(bests[1])))


def decide_two(case: Case, first: Point, second: Point) -> Decision:
    """What may be said of two points that are compared with no others."""
    return decide([_contest_of_two(case, first, second)])[0]


def _contest_of_two(case: Case, first: Point, second: Point) -> Contest:
    contest = Contest(comparisons=((compare(first.rates, second.rates),),))
    return _doubted(case, contest, first, second)


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
