"""Throughput, speed-up and efficiency of every point, against both bases.

Decides the bases (design, section 5): `single`, one worker without any strategy on exactly one
worker's cores and threads, and one worker of the same setting.  The second hides what a strategy
costs already at one worker, so both are given.  No efficiency is claimed from runs that had fewer
cores than their tasks use, unless compute is emulated and takes no core, nor from emulated hosts
that kept their one machine busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analysis.data.cases import Case, Point
from analysis.stats.statistics import Comparison, Estimate, Launches, Pairing, compare, estimate
from ps_allreduce.point.strategies import TRAITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What a point achieved, and how that compares with its bases.

    Attributes:
        throughput: images per second; None without a launch that is ok.
        per_worker_core, per_total_core: images per second and core: those of the workers alone,
            and those of all tasks.
        per_host: images per second and host, hosts of servers included.
        speedup_single, speedup_own: ratio to the base; None if the base was not measured.
        efficiency_single, efficiency_own: speed-up over workers; None where not claimed.
        marks: why no efficiency is claimed: `*` for runs that were oversubscribed with real
            compute, `+` for emulated hosts that kept their machine busy.
        marks_single, marks_own: those of the point and of the base together.
    """

    point: Point
    throughput: Estimate | None
    per_worker_core: float | None
    per_total_core: float | None
    per_host: float | None
    speedup_single: Comparison | None
    speedup_own: Comparison | None
    efficiency_single: Comparison | None
    efficiency_own: Comparison | None
    marks: str
    marks_single: str
    marks_own: str


def scalings(case: Case) -> tuple[Scaling, ...]:
    """One for each point of a case, in its order."""
    single = base_of_single(case)
    return tuple(_scaling(case, point, single) for point in case.points)


def base_of_single(case: Case) -> Point | None:
    """The point of strategy `single`; its resources are those of one worker of the case."""
    found = [point for point in case.points if TRAITS[point.setting.strategy].max_workers == 1]
    return found[0] if found else None


def base_of_own(case: Case, point: Point) -> Point | None:
    """One worker of the same setting."""
    return case.at(point.setting, 1)


def _scaling(case: Case, point: Point, single: Point | None) -> Scaling:
    own = base_of_own(case, point)
    rates = point.rates
    throughput = estimate(list(rates.values())) if rates else None
    speedup_single, speedup_own = _speedup(point, single), _speedup(point, own)
    return Scaling(
        point=point,
        throughput=throughput,
        per_worker_core=_per(throughput, worker_cores(point)),
        per_total_core=_per(throughput, point.total_cores),
        per_host=_per(throughput, point.num_hosts),
        speedup_single=speedup_single,
        speedup_own=speedup_own,
        efficiency_single=_efficiency(case, point, single, speedup_single),
        efficiency_own=_efficiency(case, point, own, speedup_own),
        marks=_marks(case, point),
        marks_single=_marks(case, point, single),
        marks_own=_marks(case, point, own),
    )


def worker_cores(point: Point) -> int:
    """Cores of all workers together."""
    return point.num_workers * point.experiment.resources.cores_per_worker


def _per(throughput: Estimate | None, count: int | None) -> float | None:
    return throughput.mean / count if throughput and count else None


def _marks(case: Case, *points: Point | None) -> str:
    """Of all points that there are, each mark once."""
    there = [point for point in points if point is not None]
    star = not case.emulated and any(point.oversubscribed for point in there)
    return "*" * star + "+" * any(point.machine_limited for point in there)


def _speedup(point: Point, base: Point | None) -> Comparison | None:
    if base is None or not base.rates or not point.rates:
        return None
    if base is point:
        # A base is 1 by definition; an interval of it would be of nothing.
        n = len(point.rates)
        return Comparison(ratio=1.0, n_first=n, n_second=n, pairing=Pairing.PAIRED)
    return compare(point.rates, base.rates)


def _efficiency(
    case: Case, point: Point, base: Point | None, speedup: Comparison | None
) -> Comparison | None:
    if base is None or speedup is None or not may_claim(case, point, base):
        return None
    return scaled(speedup, 1 / point.num_workers)


def may_claim(case: Case, point: Point, base: Point) -> bool:
    """An efficiency may be stated: nothing but the setting can have held either of them back."""
    return not _marks(case, point, base)


def scaled(comparison: Comparison, factor: float) -> Comparison:
    """The comparison with its ratio and interval multiplied; its test is of the ratio before."""

    def times(value: float | None) -> float | None:
        return None if value is None else value * factor

    return Comparison(
        ratio=times(comparison.ratio),
        low=times(comparison.low),
        high=times(comparison.high),
        n_first=comparison.n_first,
        n_second=comparison.n_second,
        pairing=comparison.pairing,
    )


def launch_ratios(point: Launches, base: Launches) -> Mapping[int, float]:
    """Each launch over the base's launch of the same repetition, for drawing single points.

    Where the base lacks a repetition, its geometric mean stands in.
    """
    if not base:
        return {}
    mean = estimate(list(base.values())).mean
    return {key: rate / base.get(key, mean) for key, rate in point.items()}
