"""The best decided finding: which setting leads, and what it is decided to be faster than.

Decides this by the comparisons of a case, since the highest mean of a few launches may be noise: a
setting leads if no other one is decided to be faster, and if it is decided to be faster than more
settings than any other is; of several, the one with the highest mean.
Headline, numbers, figures and `make export` all ask here.

Decides also what an asynchronous setting that learned is held against: the synchronous one that
reached the target first, of the same task, links and hosts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from analysis.data.blocks import analysed
from analysis.data.cases import Case, Point, cases_of
from analysis.data.load import find_sweeps, read_sweep
from analysis.data.metric import RATE, TIME_TO_TARGET
from analysis.stats.comparisons import Comparison, Comparisons, comparisons, decided, pairs_of
from analysis.stats.decision import Decision, Outcome
from analysis.stats.rivals import Kind, Side, contenders, default_of, mean_gain
from analysis.stats.statistics import estimate
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts

#: What of two settings is decided.
DECIDED = (Outcome.FASTER, Outcome.SLOWER, Outcome.EQUAL)


def leader(table: Comparisons, points: Sequence[Point]) -> Point:
    """The fastest setting as far as it is decided.

    Where nothing is decided, that with the highest mean.

    Args:
        points: all have launches; at least one.
    """
    beaten = {point: _beaten_by(table, point, points) for point in points}
    slower = {each for several in beaten.values() for each in several}
    unbeaten = [point for point in points if point not in slower] or points
    return max(unbeaten, key=lambda point: (len(beaten[point]), mean_gain(point, table.metric)))


def highest(points: Sequence[Point]) -> Point:
    """The setting with the highest mean, which may be noise."""
    return max(points, key=lambda point: mean_gain(point, RATE))


def is_fastest(table: Comparisons, best: Point, points: Sequence[Point]) -> bool:
    """It is decided to be faster than every other one, the runner-up among them."""
    return len(_beaten_by(table, best, points)) == len(points) - 1


def runner_up(table: Comparisons, best: Point, points: Sequence[Point]) -> Comparison:
    """The fastest one beside the setting that it is least faster than."""
    rows = [table.between(best, point) for point in points if point is not best]
    return min(filter(None, rows), key=lambda row: row.decision.ratio or 0.0)


def undecided_with(table: Comparisons, best: Point, points: Sequence[Point]) -> list[Point]:
    """Settings of which it is not decided whether they are slower than the best, or equal."""
    rows = {point: table.between(best, point) for point in points if point is not best}
    return [point for point, row in rows.items() if row is None or row.outcome not in DECIDED]


def all_equal(table: Comparisons, points: Sequence[Point]) -> bool:
    """All pairs are decided to be equal."""
    rows = [table.between(*pair) for pair in combinations(points, 2)]
    return all(row is not None and row.outcome is Outcome.EQUAL for row in rows)


def finding(table: Comparisons, points: Sequence[Point]) -> Comparison | None:
    """The leader and what it is most surely faster than; None where nothing is decided."""
    best = leader(table, points)
    rows = [table.between(best, point) for point in _beaten_by(table, best, points)]
    return max(filter(None, rows), key=lambda row: row.decision.low or 0.0, default=None)


def leading(table: Comparisons, points: Sequence[Point]) -> Comparison | None:
    """Of contenders the leader and its default, or what is decided of it instead.

    Where nothing is decided of it, it stands beside the setting that takes most launches to decide,
    its default or the slowest of several such: fewer do not tell which setting is fastest.  None
    without any.
    """
    best = leader(table, points)
    default = default_of(best, points)
    row = None if default in (None, best) else table.between(best, default or best)
    if row and row.outcome in DECIDED:
        return row
    rows = filter(None, (table.between(best, point) for point in points))
    return finding(table, points) or max(
        rows,
        key=lambda row: (
            _needed(row),
            row.second.best is default,
            -mean_gain(row.second.best, table.metric),
        ),
        default=None,
    )


def _needed(row: Comparison) -> float:
    """More launches that would decide; no number of them where they do not help."""
    if row.outcome in DECIDED:
        return 0.0
    return math.inf if row.decision.missing is None else row.decision.missing


def farthest_apart(case: Case) -> Comparison | None:
    """Where two sides do not meet, what is decided of their settings; else those farthest apart.

    None where no two settings are compared.  Plain TensorFlow has a sentence of its own.
    """
    table, rows = comparisons(case), pairs_of(case)
    points = [*dict.fromkeys(point for row in rows for point in row.points)]
    points = [point for point in points if not point.setting.traits.as_shipped]
    if len(points) < 2:
        return None
    slowest = min(points, key=lambda point: mean_gain(point, RATE))
    return finding(table, points) or table.between(highest(points), slowest)


def headline_row(case: Case) -> Comparison | None:
    """What a headline tells of two settings; None where there is no comparison."""
    table = comparisons(case)
    if table.main is not None:
        return table.main
    points = next(contenders(case), None)
    return None if points is None else leading(table, points)


def told_points(case: Case) -> tuple[Point, ...]:
    """The settings that a headline compares: two, and of one side the one next to the fastest."""
    row = headline_row(case)
    if row is None:
        return ()
    table, best = comparisons(case), row.first.best
    contending = None if table.main else next(contenders(case), None)
    if contending is None or not is_fastest(table, best, contending):
        return row.points
    return tuple(dict.fromkeys([*row.points, *runner_up(table, best, contending).points]))


def plain_first(table: Comparisons) -> list[Comparison]:
    """Comparisons with plain TensorFlow in which that is decided to be faster.

    It is not told first where a setting of the main comparison is decided to be faster still.
    """
    main = [point for side in contending_sides(table) for point in side.points]
    return [
        row
        for row in table.of(Kind.STOCK)
        if row.outcome is Outcome.SLOWER
        and not any(table.beats(point, row.second.best) for point in main)
    ]


def contending_sides(table: Comparisons) -> list[Side]:
    """The sides of the main comparison, and the hybrid where it meets one; none without it."""
    if table.main is None:
        return []
    return [*table.main.sides, *(row.first for row in table.of(Kind.HYBRID)[:1])]


def plain_lead(table: Comparisons, best: Point, plain: Sequence[Point]) -> Point:
    """Of plain TensorFlow the setting that is decided to be faster than the best, else that."""
    faster = [point for point in plain if table.beats(point, best)]
    return leader(table, faster) if faster else best


def _beaten_by(table: Comparisons, point: Point, points: Sequence[Point]) -> list[Point]:
    return [other for other in points if other is not point and table.beats(point, other)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sooner:
    """An asynchronous setting against the best synchronous one.

    Attributes:
        decision: by the seconds to the target; faster is sooner.
    """

    asynchronous: Point
    synchronous: Point
    decision: Decision


def learned_cases(folder: Path) -> list[Case]:
    """Of all sweeps below a folder that measured."""
    sweeps = [analysed(read_sweep(path)) for path in find_sweeps(folder)]
    return [
        case
        for sweep in sweeps
        if not sweep.is_no_result
        for case in cases_of(sweep)
        if any(point.experiment.learning is not None for point in case.points)
    ]


def reached_sooner(cases: Sequence[Case], model: str, hosts: int) -> Iterator[Sooner]:
    """Every asynchronous setting that learned on so many hosts, on each kind of links."""
    learned = [
        (case, point)
        for case in cases
        for point in case.points
        if _is_asked(point.experiment, model, hosts) and len(TIME_TO_TARGET.values(point))
    ]
    for network in dict.fromkeys(point.experiment.network for _, point in learned):
        yield from _against_the_best(
            [(case, point) for case, point in learned if point.experiment.network == network]
        )


def _is_asked(own: Experiment, model: str, hosts: int) -> bool:
    return own.learning is not None and own.workload.model.name == model and num_hosts(own) == hosts


def _against_the_best(learned: Sequence[tuple[Case, Point]]) -> Iterator[Sooner]:
    """Nothing where no synchronous setting has learned."""
    synchronous = [each for each in learned if each[1].setting.traits.synchronous]
    if not synchronous:
        return
    case, base = min(synchronous, key=lambda each: estimate(TIME_TO_TARGET.values(each[1])).mean)
    pairs = [(point, base) for own, point in learned if (own, point) not in synchronous]
    for (point, _), decision in decided(case, TIME_TO_TARGET, pairs):
        yield Sooner(asynchronous=point, synchronous=base, decision=decision)
