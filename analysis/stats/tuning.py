"""What each setting of the exchange changes, beside the point that it is changed from.

Decides which point others are held against: among those that differ in nothing but how gradients
are exchanged, the one that the others are nearest to.  What is drawn of it is decided in
`plots_tuning`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.data.cases import Case, Point
from analysis.data.settings import MAX_TOGETHER, exchange_of
from analysis.stats.statistics import Comparison, Outcome, compare, holm, outcome
from ps_allreduce.point.experiment import Collective, Experiment
from ps_allreduce.point.wire import Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """A point whose exchange is changed.

    Attributes:
        usual: the point that it is changed from.
        comparison: images per second over those of `usual`; its interval is not corrected.
        adjusted_p: corrected for all tuned points of the case; None without a test.
    """

    point: Point
    usual: Point
    comparison: Comparison
    adjusted_p: float | None
    outcome: Outcome


def tuned_points(case: Case) -> tuple[Tuned, ...]:
    """All points that have a usual one, in the order of the case."""
    found = [
        (point, usual, compare(point.rates, usual.rates)) for point, usual in _with_usual(case)
    ]
    tested = [comparison.p_value for *_, comparison in found if comparison.p_value is not None]
    adjusted = iter(holm(tested))
    return tuple(
        _judged(
            point, usual, comparison, next(adjusted) if comparison.p_value is not None else None
        )
        for point, usual, comparison in found
    )


def _judged(point: Point, usual: Point, comparison: Comparison, adjusted_p: float | None) -> Tuned:
    return Tuned(
        point=point,
        usual=usual,
        comparison=comparison,
        adjusted_p=adjusted_p,
        outcome=outcome(comparison, adjusted_p),
    )


def _with_usual(case: Case) -> list[tuple[Point, Point]]:
    alike: dict[Experiment, list[Point]] = {}
    for point in case.points:
        alike.setdefault(_but_for_the_exchange(point.experiment), []).append(point)
    return [
        (point, usual)
        for points in alike.values()
        for usual in [_usual(points)]
        for point in points
        if point is not usual
    ]


def _but_for_the_exchange(own: Experiment) -> Experiment:
    """Equal for experiments that differ in nothing else."""
    packs = None if own.collective is Collective.RING else own.bytes_per_pack
    return replace(own, wire=Wire(), bytes_per_pack=packs, staleness=None, steps_per_dispatch=1)


def _usual(points: Sequence[Point]) -> Point:
    """The one with the fewest differences from all others; defaults stand first among equals.

    One that was measured, if there is any; and buckets rather than packs, which share so little
    with buckets that they never differ from them in much.
    """
    exchanges = [exchange_of(point.experiment) for point in points]

    def distance(number: int) -> tuple[bool, int, bool]:
        own, mine = points[number], exchanges[number]
        differences = sum(_num_differing(mine, other) for other in exchanges)
        return not own.rates, differences, own.experiment.bytes_per_pack is not None

    return points[min(range(len(points)), key=distance)]


def _num_differing(one: Mapping[str, object], other: Mapping[str, object]) -> int:
    return sum(1 for name in one if name in other and one[name] != other[name])


def is_tuning(case: Case) -> bool:
    """Something is tuned besides the size of packs, which has a figure of its own."""
    return any(point.experiment.bytes_per_pack is None for point, _ in _with_usual(case))


def without_tuned(case: Case) -> Case:
    """The case without its tuned points, if they are too many to be told apart beside others."""
    tuned = [point for point, _ in _with_usual(case)]
    strategies = [setting.strategy for setting in {point.setting for point in tuned}]
    most = max((strategies.count(one) for one in strategies), default=0)
    if most <= MAX_TOGETHER or not is_tuning(case):
        return case
    return replace(case, points=tuple(point for point in case.points if point not in tuned))
