"""The best decided finding: which setting leads, and what it is decided to be faster than.

Decides this by the decisions of a case, since the highest mean of a few launches may be noise: a
setting leads if no other one is decided to be faster, and if it is decided to be faster than most.
Headline, numbers, figures and `make export` all ask here.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.data.cases import Case, Point
from analysis.stats.decision import Outcome
from analysis.stats.decisions import Decisions, Pair, all_pairs, decisions
from analysis.stats.pairs.contenders import Contenders
from analysis.stats.pairs.sides import Meeting
from analysis.stats.points import mean_rate

#: What of two settings is decided.
DECIDED = (Outcome.FASTER, Outcome.SLOWER, Outcome.EQUAL)


def leader(decided: Decisions, points: Sequence[Point]) -> Point:
    """The fastest setting as far as it is decided.

    Where nothing is decided, that with the highest rate.

    Args:
        points: all have launches; at least one.
    """
    beaten = {point: _beaten_by(decided, point, points) for point in points}
    slower = {each for several in beaten.values() for each in several}
    unbeaten = [point for point in points if point not in slower] or points
    return max(unbeaten, key=lambda point: (len(beaten[point]), mean_rate(point)))


def finding(decided: Decisions, points: Sequence[Point]) -> Pair | None:
    """The leader beside what it is most surely faster than; None where nothing is decided."""
    best = leader(decided, points)
    beaten = _beaten_by(decided, best, points)
    if not beaten:
        return None
    rival = max(beaten, key=lambda point: decided.of(best, point).low or 0.0)
    return decided.pair(best, rival)


def leading(decided: Decisions, alone: Contenders) -> Pair | None:
    """Of one side alone the leader beside its default, or beside what is decided instead.

    Where nothing is decided of a default that leads, it stands beside the slowest setting that it
    is compared with; None without any.
    """
    best = leader(decided, alone.points)
    default, found = alone.default_of(best), finding(decided, alone.points)
    rival = default if default is not best else None
    if rival and (found is None or decided.of(best, rival).outcome in DECIDED):
        return decided.pair(best, rival)
    others = [point for point in alone.points if decided.compares(best, point)]
    slowest = min(others, key=mean_rate, default=None)
    return found or (None if slowest is None else decided.pair(best, slowest))


def beside_undecided(case: Case) -> Pair | None:
    """What is decided of the settings of a case whose main comparison is not; None if it is."""
    decided = decisions(case)
    main = decided.main
    if main is None or decided.of(*main.bests).outcome in DECIDED:
        return None
    points = dict.fromkeys(point for pair in all_pairs(case) for point in (pair.first, pair.second))
    alike = [point for point in points if point.transport == main.transport]
    return finding(decided, alike) if alike else None


def headline_pair(case: Case) -> Pair | None:
    """The two settings whose difference a headline tells; None where there is none."""
    decided = decisions(case)
    if decided.main is not None:
        return beside_undecided(case) or decided.pair(*decided.main.bests)
    return leading(decided, decided.contenders[0]) if decided.contenders else None


def plain_first(decided: Decisions) -> list[Meeting]:
    """Meetings with plain TensorFlow in which that is decided to be faster.

    It is not told first where a setting of the main comparison is decided to be faster still.
    """
    main = decided.main.bests if decided.main is not None else ()
    return [
        meeting
        for meeting in decided.stock
        if decided.beats(*meeting.bests[::-1])
        and not any(decided.beats(point, meeting.bests[1]) for point in main)
    ]


def plain_lead(decided: Decisions, best: Point, plain: Sequence[Point]) -> Point:
    """Of plain TensorFlow the setting that is decided to be faster than the best, else that."""
    faster = [point for point in plain if decided.beats(point, best)]
    return leader(decided, faster) if faster else best


def _beaten_by(decided: Decisions, point: Point, points: Sequence[Point]) -> list[Point]:
    return [other for other in points if other is not point and decided.beats(point, other)]
