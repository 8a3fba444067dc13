"""The table of points: throughput, speed-up, efficiency, parts of a step and bounds.

Decides the bases (design, section 5): one worker without any strategy on exactly one worker's cores
and threads (`single`), and one worker of the same setting (`own`).  The second hides what a
strategy costs already at one worker, so both are given.  No efficiency is claimed from runs that
had fewer cores than their tasks use, unless compute is emulated and takes no core, nor from
emulated hosts that kept their one machine busy.
"""

from __future__ import annotations

from functools import lru_cache

import pandas as pd

from analysis.data.cases import Case, Point
from analysis.stats.statistics import Comparison, Estimate, Pairing, compare, estimate

#: Arithmetic means over launches, of columns of the table of runs: costs add up.
_MEANS = (
    *("step_time_p50_s", "step_time_p95_s", "compute_s", "communication_s", "input_wait_s"),
    *("network_s", "bound_s", "bound_step_s"),
)

BASES = ("single", "own")

#: Figures, tables and pages all ask for the table of the same few cases.
_CASES = 16

Numbers = dict[str, object]


@lru_cache(maxsize=_CASES)
def point_table(case: Case) -> pd.DataFrame:
    """One row per point, in the order of the case; unknown is NaN.

    Columns, with `_low` and `_high` beside those that have an interval:
        setting, num_workers, num_hosts, transport, launches (their number).
        rate: examples per second, geometric mean; rate_bound: at the bound of the step.
        per_worker_core, per_total_core, per_host: rate over cores of workers, of all tasks, hosts.
        speedup_single, speedup_own: rate over that of the base.
        efficiency_single, efficiency_own: speed-up over workers; unknown where not claimed.
        marks, marks_single, marks_own: why no efficiency is claimed, for the point, and for point
            and base: `*` for too few cores with real compute, `+` for a busy machine.
        step_time_p50_s, step_time_p95_s, compute_s, communication_s, input_wait_s: of a worker's
            step, means.
        network_s, bound_s, bound_step_s: time of the busiest link, least time of a step, and time
            that was reached, of the launches with a bound; fraction: bound over step.
    """
    rows = [_row(case, point) for point in case.points]
    table = pd.DataFrame(rows)
    text = {"setting", "transport", "marks", *(f"marks_{base}" for base in BASES)}
    numbers = [name for name in table if name not in text]
    return table.astype(dict.fromkeys(numbers, float))


def base_of(case: Case, point: Point, base: str) -> Point | None:
    """The point that another one is held against."""
    if base == "own":
        return case.at(point.setting, 1)
    alone = [each for each in case.points if each.setting.traits.max_workers == 1]
    return alone[0] if alone else None


def base_rate(point: Point | None) -> float | None:
    """Geometric mean of a base's examples per second; None where it was not measured."""
    return None if point is None or point.rates.empty else estimate(point.rates).mean


def worker_cores(point: Point) -> int:
    """Cores of all workers together."""
    return point.num_workers * point.experiment.resources.cores_per_worker


def launch_ratios(rates: pd.Series, base: pd.Series) -> pd.Series:
    """Each launch over the base's launch of the same repetition, for drawing single points.

    Where the base lacks a repetition, its geometric mean stands in.
    """
    if base.empty:
        return base
    return rates / base.reindex(rates.index).fillna(estimate(base).mean)


def _row(case: Case, point: Point) -> Numbers:
    return {
        "setting": point.setting.label,
        "num_workers": point.num_workers,
        "num_hosts": point.common("num_hosts"),
        "transport": point.transport,
        "launches": len(point.rates),
        **_throughput(point),
        **_bounds(point),
        **_means(point),
        "marks": _marks(case, point),
        **{name: value for base in BASES for name, value in _against(case, point, base).items()},
    }


def _throughput(point: Point) -> Numbers:
    found = _with_interval("rate", None if point.rates.empty else estimate(point.rates))
    rate = found["rate"]
    over = {
        "per_worker_core": worker_cores(point),
        "per_total_core": point.common("total_cores"),
        "per_host": point.common("num_hosts"),
    }
    shares = {name: rate / n if rate is not None and n else None for name, n in over.items()}
    return {**found, **shares}


def _with_interval(name: str, value: Estimate | Comparison | None) -> dict[str, float | None]:
    """A mean or a ratio and its interval as three columns."""
    names = (name, f"{name}_low", f"{name}_high")
    if value is None:
        return dict.fromkeys(names)
    centre = value.mean if isinstance(value, Estimate) else value.ratio
    return dict(zip(names, (centre, value.low, value.high), strict=True))


def _means(point: Point) -> Numbers:
    launches = point.launches.assign(
        bound_step_s=point.launches["step_s"].where(point.launches["bound_s"].notna())
    )
    return {name: launches[name].astype(float).mean() for name in _MEANS}


def _bounds(point: Point) -> Numbers:
    """How near launches came to their bound, and the rate at the bound."""
    fractions, bounds = point.known("fraction_of_bound"), point.known("bound_s")
    if fractions.empty:
        return {**_with_interval("fraction", None), "rate_bound": None}
    rate = estimate(point.experiment.global_batch / bounds).mean
    return {**_with_interval("fraction", estimate(fractions)), "rate_bound": rate}


def _against(case: Case, point: Point, name: str) -> Numbers:
    base = base_of(case, point, name)
    speedup, marks = _speedup(point, base), _marks(case, point, base)
    claimed = None if speedup is None or marks else scaled(speedup, 1 / point.num_workers)
    return {
        **_with_interval(f"speedup_{name}", speedup),
        **_with_interval(f"efficiency_{name}", claimed),
        f"marks_{name}": marks,
    }


def _marks(case: Case, *points: Point | None) -> str:
    """Of all points that there are, each mark once."""
    there = [point for point in points if point is not None]
    star = not case.emulated and any(point.oversubscribed for point in there)
    return "*" * star + "+" * any(point.machine_limited for point in there)


def _speedup(point: Point, base: Point | None) -> Comparison | None:
    if base is None or base.rates.empty or point.rates.empty:
        return None
    if base is point:
        # A base is 1 by definition; an interval of it would be of nothing.
        n = len(point.rates)
        return Comparison(ratio=1.0, n_first=n, n_second=n, pairing=Pairing.PAIRED)
    return compare(point.rates, base.rates)


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
