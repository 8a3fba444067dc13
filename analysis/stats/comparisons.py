"""The table of comparisons: every two settings of a case that are compared, decided once.

Decides which comparisons are planned: the main one (the best synchronous servers against the best
all-reduce, at equal hosts), which is not corrected; those of a hybrid with either; those with
TensorFlow as it ships; and where
one side was measured alone, its settings against the default: these are families of their own.  So
are further pairs of asynchronous settings.  All others that anybody shows are one family.  Two
settings are decided once, so headline, tables and figures cannot tell them in two ways.  Sides that
meet are told by settings that show what is decided, not by the highest rate, however much it
varies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations, product

from analysis.data.cases import Case, Point
from analysis.data.metric import RATE, Metric
from analysis.stats.decision import (
    EARLY_STOPPING_LEVEL,
    LEAVING_LEVEL,
    LEVEL,
    Contest,
    Decision,
    Outcome,
    decide,
    intervals,
    still_open,
)
from analysis.stats.doubts import doubt_about
from analysis.stats.points import base_of
from analysis.stats.rivals import (
    Kind,
    Side,
    against_defaults,
    contenders,
    mean_gain,
    meetings,
    side_of,
)
from analysis.stats.setting_pairs import (
    PointPair,
    changed_pairs,
    synchronous_pairs,
    without_changed,
    without_rungs,
)
from ps_allreduce.point.sides import Basis, Meeting

#: Headline, tables and figures all ask for the comparisons of the same few cases.
_CASES = 16

#: Sides that meet besides those that are planned.
_MET = (Kind.WORKERS, Kind.COST, Kind.ALIKE, Kind.APART, Kind.ASYNCHRONOUS, Kind.AS_SHIPPED)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """Two settings of a case, and what may be said of the first one.

    Attributes:
        basis: what sides have equally much of; None for two settings that are no sides.
        beyond: larger sizes at which both sides were tried, and one has not enough launches.
    """

    case: Case
    kind: Kind
    first: Side
    second: Side
    metric: Metric
    decision: Decision
    basis: Basis | None = None
    beyond: tuple[int, ...] = ()

    @property
    def sides(self) -> tuple[Side, Side]:
        """In their order."""
        return self.first, self.second

    @property
    def points(self) -> PointPair:
        """The settings that are told of, in their order."""
        return self.first.best, self.second.best

    @property
    def outcome(self) -> Outcome:
        """What may be said of the first one."""
        return self.decision.outcome

    @property
    def same_transport(self) -> bool:
        """Both settings send gradients in the same way, or neither sends any."""
        return self.first.best.transport == self.second.best.transport

    @property
    def transport(self) -> str | None:
        """That of both settings; None where they differ."""
        return self.first.best.transport if self.same_transport else None

    @property
    def level(self) -> str:
        """`97%`, of an interval with another level than all others; else empty."""
        early = self.kind is Kind.MAIN and self.case.may_stop_early
        return f"{1 - EARLY_STOPPING_LEVEL:.0%}" if early and self.decision.low is not None else ""

    def inverse(self) -> Comparison:
        """The same told of the other setting."""
        return replace(self, first=self.second, second=self.first, decision=self.decision.inverse())

    def better_first(self) -> Comparison:
        """Told of the setting that had more of the metric, whatever is decided."""
        ratio = self.decision.ratio
        return self.inverse() if ratio is not None and ratio < 1 else self


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparisons:
    """All comparisons of a case by one metric.

    Attributes:
        rows: planned ones first.
    """

    metric: Metric
    rows: tuple[Comparison, ...]

    def of(self, *kinds: Kind) -> list[Comparison]:
        """Those of some kinds, in the order of the table."""
        return [row for row in self.rows if row.kind in kinds]

    @property
    def main(self) -> Comparison | None:
        """The planned comparison of both sides; None where they do not meet."""
        return next(iter(self.of(Kind.MAIN)), None)

    @cached_property
    def by_pair(self) -> Mapping[PointPair, Comparison]:
        """Of every two settings the first row, told in its order; a single worker's are apart."""
        found: dict[PointPair, Comparison] = {}
        for row in self.rows:
            if row.kind is not Kind.SINGLE and row.points[::-1] not in found:
                found.setdefault(row.points, row)
        return found

    def between(self, first: Point, second: Point) -> Comparison | None:
        """What may be said of the first of two settings; None where they are not compared."""
        if row := self.by_pair.get((first, second)):
            return row
        row = self.by_pair.get((second, first))
        return row and row.inverse()

    def beats(self, first: Point, second: Point) -> bool:
        """The first is decided faster; not so where the two are not compared."""
        row = self.between(first, second)
        return row is not None and row.outcome is Outcome.FASTER


@lru_cache(maxsize=_CASES)
def comparisons(case: Case, metric: Metric = RATE) -> Comparisons:
    """Compare the settings of a case: the main comparison, those with stock, and all others."""
    ends = without_rungs(case)  # rungs are compared with each other only
    met, contending = meetings(ends, metric), [*contenders(ends, metric)]
    # The launches of the main comparison may have been looked at while they were made.
    level = EARLY_STOPPING_LEVEL if case.may_stop_early else LEVEL
    planned = [
        *_planned(case, metric, Kind.MAIN, met[Kind.MAIN], level),
        *_planned(case, metric, Kind.HYBRID, met[Kind.HYBRID], LEVEL),
        *_planned(case, metric, Kind.STOCK, met[Kind.STOCK], LEVEL),
    ]
    main, known = planned[: len(met[Kind.MAIN])], {row.points: row.decision for row in planned}
    defaults = [against_defaults(points) for points in contending]
    for pairs in defaults:
        known |= {pair: replace(each, planned=True) for pair, each in decided(case, metric, pairs)}
    others, asynchronous = _others(case, metric, met), _asynchronous_pairs(case, contending)
    for family in (others.values(), asynchronous):
        pairs = [pair for pair in family if not {pair, pair[::-1]} & known.keys()]
        known |= dict(decided(case, metric, pairs))
    by_kind = {
        Kind.DEFAULT: [pair for pairs in defaults for pair in pairs],
        Kind.PAIR: _synchronous(case, metric),
        Kind.CHANGED: [*changed_pairs(case)],
        Kind.MET: [*others.values()],
        Kind.ASYNCHRONOUS_PAIR: asynchronous,
    }
    rows = [
        *planned,
        *(
            _row(case, metric, kind, (side_of(first), side_of(second)), known)
            for kind, pairs in by_kind.items()
            for first, second in pairs
        ),
        *_of_sides(case, metric, met, known, LEVEL / max(1, len(others))),
        *(_single_worker(case, metric, row) for row in main),
    ]
    return Comparisons(metric=metric, rows=tuple(filter(None, rows)))


def _row(
    case: Case,
    metric: Metric,
    kind: Kind,
    sides: tuple[Side, Side],
    known: Mapping[PointPair, Decision],
) -> Comparison:
    """What is decided of two settings, in one of the two orders."""
    first, second = (side.best for side in sides)
    if (first, second) in known:
        decision = known[first, second]
    else:
        decision = known[second, first].inverse()
    return Comparison(
        case=case, kind=kind, first=sides[0], second=sides[1], metric=metric, decision=decision
    )


def _planned(
    case: Case, metric: Metric, kind: Kind, met: Sequence[Meeting[Point]], level: float
) -> list[Comparison]:
    """A family of sides."""
    told = [_told(case, metric, meeting, level / len(met)) for meeting in met]
    pairs = [(one.best, other.best) for (one, other), _ in told]
    contests = _doubted(case, metric, [contest for _, contest in told], pairs, level)
    doubts = [
        contest.doubt or _doubt_of_rivals(case, metric, *sides)
        for contest, (sides, _) in zip(contests, told, strict=True)
    ]
    contests = [replace(own, doubt=doubt) for own, doubt in zip(contests, doubts, strict=True)]
    decisions = decide(contests, level)
    return [
        Comparison(
            case=case,
            kind=kind,
            first=sides[0],
            second=sides[1],
            metric=metric,
            decision=replace(decision, planned=True),
            basis=meeting.basis,
            beyond=meeting.beyond,
        )
        for meeting, (sides, _), decision in zip(met, told, decisions, strict=True)
    ]


def _of_sides(
    case: Case,
    metric: Metric,
    met: Mapping[Kind, Sequence[Meeting[Point]]],
    known: Mapping[PointPair, Decision],
    level: float,
) -> Iterator[Comparison]:
    """Sides that meet besides, each told of settings that are decided among all pairs.

    Equal workers are left out where the main comparison is of the same points.
    """
    for kind in _MET:
        for meeting in met[kind]:
            sides, _ = _told(case, metric, meeting, level)
            row = _row(case, metric, kind, sides, known)
            if kind is not Kind.WORKERS or meeting.points != met[Kind.MAIN][0].points:
                yield replace(row, basis=meeting.basis, beyond=meeting.beyond)


def _told(
    case: Case, metric: Metric, meeting: Meeting[Point], level: float
) -> tuple[tuple[Side, Side], Contest]:
    """Sides, told of settings that show a difference at a level, and their contest."""
    left = [_may_be_best(case, points, metric) for points in meeting.points]
    highest = _contest(metric, *left)
    contest = highest.showing(level)
    one, other = (
        Side(
            kind=kind,
            points=points,
            best=own[told],
            is_highest=told == top,
            may_be_best=tuple(own),
        )
        for kind, points, own, told, top in zip(
            meeting.kinds, meeting.points, left, contest.best, highest.best, strict=True
        )
    )
    return (one, other), contest


def _doubt_of_rivals(case: Case, metric: Metric, one: Side, other: Side) -> str:
    """What speaks against the leading side beating all others of the other side that may be best.

    The setting that is told of is asked before.
    """
    by_gain = sorted((one, other), key=lambda side: mean_gain(side.best, metric))
    behind, ahead = by_gain[0], by_gain[1].best
    rivals = [point for point in behind.may_be_best if point is not behind.best]
    contests = [_contest(metric, [ahead], [rival]) for rival in rivals]
    doubted = _doubted(case, metric, contests, [(ahead, rival) for rival in rivals])
    told = (
        f"{rival.setting.label} may be as fast as {ahead.setting.label}: {contest.doubt}"
        for rival, contest in zip(rivals, doubted, strict=True)
        if contest.doubt
    )
    return next(told, "")


def _may_be_best(case: Case, points: Sequence[Point], metric: Metric) -> list[Point]:
    """The settings of a side that may still be its best one, in their order.

    One that is decided slower may be so because of what takes a verdict away.
    """
    left = [points[number] for number in still_open([*map(metric.gains, points)])]
    best = max(left, key=lambda point: mean_gain(point, metric))
    level = LEAVING_LEVEL / max(1, len(points) - 1)

    def is_doubtful(slower: Point) -> bool:
        (ends,) = intervals([_contest(metric, [best], [slower])], level)
        return bool(doubt_about(case, best, slower, ends, metric))

    return [point for point in points if point in left or is_doubtful(point)]


def _contest(metric: Metric, first: Iterable[Point], second: Iterable[Point]) -> Contest:
    return Contest.of([*map(metric.gains, first)], [*map(metric.gains, second)])


def _doubted(
    case: Case,
    metric: Metric,
    contests: Sequence[Contest],
    pairs: Sequence[PointPair],
    level: float = LEVEL,
) -> list[Contest]:
    """A family of contests, each with what takes the meaning of the interval away that is told."""
    return [
        replace(contest, doubt=doubt_about(case, *pair, ends, metric))
        for contest, pair, ends in zip(contests, pairs, intervals(contests, level), strict=True)
    ]


def decided(
    case: Case, metric: Metric, pairs: Sequence[PointPair]
) -> Iterator[tuple[PointPair, Decision]]:
    """What may be said of every pair of a family, of the first of two settings."""
    contests = [_contest(metric, [first], [second]) for first, second in pairs]
    yield from zip(pairs, decide(_doubted(case, metric, contests, pairs)), strict=True)


def _others(
    case: Case, metric: Metric, met: Mapping[Kind, Sequence[Meeting[Point]]]
) -> dict[frozenset[Point], PointPair]:
    """All pairs that anybody shows, each once; of sides that meet, any two of their settings."""
    found: dict[frozenset[Point], PointPair] = {}
    for pair in (
        *synchronous_pairs(case, metric, same_transport=True),
        *synchronous_pairs(case, metric, same_transport=False),
        *changed_pairs(case),
        *(pair for kind in _MET for meeting in met[kind] for pair in product(*meeting.points)),
    ):
        found.setdefault(frozenset(pair), pair)
    return found


def _synchronous(case: Case, metric: Metric) -> list[PointPair]:
    """All synchronous settings with each other, on one transport, then on different ones."""
    return [
        *synchronous_pairs(case, metric, same_transport=True),
        *synchronous_pairs(case, metric, same_transport=False),
    ]


def _asynchronous_pairs(case: Case, contending: Iterable[Sequence[Point]]) -> list[PointPair]:
    """All pairs of asynchronous contenders; synchronous ones stand among all pairs.

    Changed settings are left out if they are too many, as there.
    """
    few = {*without_changed(case).points}
    points = [point for each in contending for point in each if point in few]
    return [*combinations([p for p in points if not p.setting.traits.synchronous], 2)]


def _single_worker(case: Case, metric: Metric, main: Comparison) -> Comparison | None:
    """A single worker against the best of both sides, each of which it must beat.

    It says nothing where workers share cores, of which a single one has as many as it uses, nor
    beside sides of one worker each.
    """
    if case.shares_cores or all(point.num_workers == 1 for point in main.points):
        return None
    fastest = max(main.points, key=lambda point: mean_gain(point, metric))
    alone = base_of(case, fastest, "single")
    if alone is None or metric.values(alone).empty:
        return None
    rivals = sorted(main.points, key=lambda point: point is not fastest)
    return compare_alone(case, alone, rivals, metric)


def compare_alone(
    case: Case, first: Point, rivals: Sequence[Point], metric: Metric = RATE
) -> Comparison:
    """A setting and one or several others that it must all beat, compared with no others.

    Args:
        rivals: the one that is told of first.
    """
    pair = first, rivals[0]
    sides = side_of(first), Side(points=tuple(rivals), best=rivals[0])
    (decision,) = decide(_doubted(case, metric, [_contest(metric, [first], rivals)], [pair]))
    known = {pair: replace(decision, planned=True)}
    return _row(case, metric, Kind.SINGLE, sides, known)


def pairs_of(case: Case, *, same_transport: bool = True, metric: Metric = RATE) -> list[Comparison]:
    """All synchronous settings with each other, on one transport or on different ones."""
    rows = comparisons(case, metric).of(Kind.PAIR)
    return [row for row in rows if row.same_transport is same_transport]
