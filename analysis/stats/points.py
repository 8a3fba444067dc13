"""The table of points: throughput, speed-up, efficiency, parts of a step and bounds; placements.

Decides the bases: one worker without any strategy on exactly one worker's cores
and, where it was measured with them, threads (`single`), and one worker of the same setting
(`own`).  The second hides what a strategy costs already at one worker, so both are given.  Where
workers share cores, several are slower than one before a byte is sent: there as many workers that
do not communicate stand in for `single`.  No efficiency is claimed where the processors may have
been the limit, of the point or of its base.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import pandas as pd

from analysis.data.cases import Case, Point
from analysis.data.metric import RATE, Metric
from analysis.derive.fastest_step import left_out_links
from analysis.stats.doubts import is_uneven
from analysis.stats.statistics import Estimate, Ratio, compare, estimate
from analysis.wording import links_text, workers_text
from ps_allreduce.record.variables import PlacementUsed

#: What a step consists of; nobody sees into the steps of some strategies.
PARTS = ["compute_s", "communication_s", "input_wait_s"]

#: Columns of the table of runs, whose arithmetic means over launches are told: costs add up.
_MEASURED = [*PARTS, "step_time_p50_s", "step_time_p95_s", "network_s", "bound_s", "step_s"]
_MEANS = [*_MEASURED[:-1], "bound_step_s", "step_mean_s"]

BASES = ("single", "own")

#: Rates over what a point takes, by the column that counts it.
_SHARES = {
    "per_worker_core": "worker_cores",
    "per_total_core": "total_cores",
    "per_host": "num_hosts",
}

_TEXT = ["setting", "transport", "jobs", "marks", "uneven", *(f"marks_{base}" for base in BASES)]

#: Figures, tables and pages all ask for the table of the same few cases.
_CASES = 16

Numbers = dict[str, object]


@lru_cache(maxsize=_CASES)
def point_table(case: Case, metric: Metric = RATE) -> pd.DataFrame:
    """One row per point, in the order of the case; unknown is NaN.

    Columns, with `_low` and `_high` beside those that have an interval:
        setting, num_workers, global_batch, num_hosts, threads (of a worker), transport, jobs (their
            numbers); launches, planned, failed (numbers of launches that are ok, of planned ones,
            of other attempts).
        rate: of the metric (examples per second unless another is named), geometric mean;
            rate_bound: at the bound of the step; tokens: the rate in tokens, unknown where examples
            have none.
        per_worker_core, per_total_core, per_host: rate over cores of workers, of all tasks, hosts.
        base_single, base_own: rate of the base, of each of its workers.
        speedup_single, speedup_own: rate over that of each worker of the base.
        pairs_single, pairs_own: pairs of launches that a speed-up rests on which leaves out some
            launches of the point or of its base.
        efficiency_single, efficiency_own: speed-up over workers; unknown where not claimed.
        step_mean_s: mean time of a step, the sum of compute, exposed communication and input wait
            where these are known.
        marks, marks_single, marks_own: the mark of the point, and of point and base: where there
            is one, no efficiency is claimed.
        uneven: one worker made the steps of others, so no efficiency is claimed.
        step_time_p50_s, step_time_p95_s, compute_s, communication_s, input_wait_s: of a worker's
            step, means.
        network_s, bound_s, bound_step_s: time of the busiest link, least time of a step, and time
            that was reached, of the launches with a bound; fraction: bound over step; bounded: how
            many launches that is of.
    """
    table = pd.DataFrame([_row(case, point, metric) for point in case.points])
    table = table.astype(dict.fromkeys(table.columns.difference(_TEXT), float))
    table["tokens"] = table["rate"] * (case.tokens_per_example or math.nan)
    for share, count in _SHARES.items():
        table[share] = table["rate"] / table[count]
    for base, end in product(BASES, ("", "_low", "_high")):
        shares = table[f"speedup_{base}{end}"] / table["num_workers"]
        claimed = (table[f"marks_{base}"] == "") & ~table["uneven"]
        table[f"efficiency_{base}{end}"] = shares.where(claimed)
    return table


def base_of(case: Case, point: Point, base: str) -> Point | None:
    """The point that another one is held against."""
    if base == "own":
        return case.at(point.setting, 1)
    if case.shares_cores and point.num_workers > 1:
        bases = [p for p in case.points if _is_free(p) and p.num_workers == point.num_workers]
    else:
        bases = [each for each in case.points if each.setting.traits.max_workers == 1]
    like = [each for each in bases if each.threads == point.threads]
    return next(iter(like or bases), None)


def point_name(point: Point) -> str:
    """Its setting, with the number of workers."""
    return f"{point.setting.label}, {workers_text(point.num_workers)}"


def mean_rate(point: Point) -> float:
    """Examples per second, of a point that has launches."""
    return estimate(point.rates).mean


def base_text(case: Case) -> str:
    """What the base `single` is, for sentences."""
    if case.shares_cores:
        return "as many workers that do not communicate"
    return "a single worker"


def left_out_text(case: Case) -> str:
    """Of which links the bounds know nothing; empty if of none."""
    records = [each for point in case.points for each in point.counting if each.links]
    links = left_out_links(records)
    if not links:
        return ""
    return f"Bounds are without {links_text(links)}, slower than other links of the same hosts."


def _is_free(point: Point) -> bool:
    """Its workers do not communicate, and there may be several."""
    return not point.setting.traits.communicates() and point.setting.traits.max_workers != 1


def launch_ratios(rates: pd.Series, base: pd.Series) -> pd.Series:
    """Each launch over the base's launch of the same turn, for drawing single points.

    Where the base lacks a turn, its geometric mean stands in.
    """
    if base.empty:
        return base
    return rates / base.reindex(rates.index).fillna(estimate(base).mean)


def _row(case: Case, point: Point, metric: Metric) -> Numbers:
    values = metric.values(point)
    against = [_against(case, point, base, metric) for base in BASES]
    return {
        "setting": point.setting.label,
        "num_workers": point.num_workers,
        "global_batch": point.experiment.global_batch,
        "num_hosts": point.common("num_hosts"),
        "threads": point.threads,
        "worker_cores": point.worker_cores,
        "total_cores": point.common("total_cores"),
        "transport": point.transport,
        "jobs": ", ".join(point.launches["job_id"].dropna().astype(str).unique()) or None,
        "launches": len(values),
        "planned": point.planned,
        "failed": len(point.unusable),
        **_with_interval("rate", None if values.empty else estimate(values)),
        **_bounds(point),
        **_means(point),
        "marks": point.mark,
        "uneven": is_uneven(point),
        **{name: value for columns in against for name, value in columns.items()},
    }


def _with_interval(name: str, value: Estimate | Ratio | None) -> Numbers:
    """A mean or a ratio and its interval as three columns."""
    names = (name, f"{name}_low", f"{name}_high")
    return dict(zip(names, value.ends if value else (None, None, None), strict=True))


def _means(point: Point) -> Numbers:
    launches = point.launches[_MEASURED].astype(float)
    reached = launches["step_s"].where(launches["bound_s"].notna())
    steps = launches[PARTS].sum(axis="columns", skipna=False).fillna(launches["step_s"])
    return dict(launches.assign(bound_step_s=reached, step_mean_s=steps)[_MEANS].mean())


def _bounds(point: Point) -> Numbers:
    """How near launches came to their bound, and the rate at the bound."""
    fractions, bounds = point.known("fraction_of_bound"), point.known("bound_s")
    if fractions.empty:
        return {**_with_interval("fraction", None), "rate_bound": None, "bounded": 0}
    rate = estimate(point.experiment.global_batch / bounds).mean
    ends = _with_interval("fraction", estimate(fractions))
    return {**ends, "rate_bound": rate, "bounded": len(fractions)}


def _against(case: Case, point: Point, base: str, metric: Metric) -> Numbers:
    rival = base_of(case, point, base)
    measured = rival if rival is not None and len(metric.values(rival)) else None
    speedup = _speedup(point, measured, metric) if measured else None
    return {
        f"base_{base}": estimate(_of_each(measured, metric)).mean if measured else None,
        f"marks_{base}": point.mark or (rival.mark if rival else ""),
        f"pairs_{base}": _pairs(point, measured, metric) if measured else None,
        **_with_interval(f"speedup_{base}", speedup),
    }


def share_ratio(case: Case, point: Point, share: str) -> Ratio:
    """The known `fraction` or `efficiency_single` of a point as a ratio that can be decided."""
    if share == "fraction":
        fractions = point.known("fraction_of_bound")
        return compare(fractions, fractions / fractions)
    base = base_of(case, point, "single")
    assert base is not None
    return compare(_of_each(point, RATE), _of_each(base, RATE))


def _pairs(point: Point, base: Point, metric: Metric) -> int | None:
    """How many pairs of launches a speed-up rests on; None where it leaves no launch out."""
    own, others = metric.gains(point), metric.gains(base)
    speedup = compare(own, others)
    counted = (speedup.n_first, speedup.n_second)
    return None if counted == (len(own), len(others)) else speedup.n_first


def _speedup(point: Point, base: Point, metric: Metric) -> Estimate | Ratio | None:
    if metric.values(point).empty:
        return None
    if base is point:
        # A base is its own by definition; an interval of it would be of nothing.
        return Estimate(mean=float(base.num_workers), low=None, high=None)
    return compare(metric.gains(point), _of_each(base, metric))


def _of_each(base: Point, metric: Metric) -> pd.Series:
    """What each worker of a base has: more is better."""
    return metric.gains(base) / base.num_workers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacementPoint:
    """The servers' loads at one point.

    Attributes:
        worst: the launch that was farthest from its plan; an average would hide one that went
            astray.
        deviations: one sentence for every variable that was elsewhere, in any launch.
    """

    point: Point
    worst: PlacementUsed
    deviations: tuple[str, ...]

    @property
    def planned_bytes(self) -> tuple[int, ...]:
        """Trainable bytes of each server by the plan; where it is unknown, as they were."""
        return self.worst.planned_bytes or self.worst.bytes_per_server

    @property
    def as_planned(self) -> bool:
        """Every variable was where the plan wanted it."""
        return self.planned_bytes == self.worst.bytes_per_server and not self.deviations


def placement_points(case: Case) -> list[PlacementPoint]:
    """One for each point with parameter servers whose placement was recorded."""
    return [
        PlacementPoint(
            point=point,
            worst=max(used, key=lambda launch: (len(launch.deviations), launch.max_over_mean)),
            deviations=tuple(dict.fromkeys(line for launch in used for line in launch.deviations)),
        )
        for point in case.points
        if point.setting.traits.uses_servers and (used := _recorded(point))
    ]


def _recorded(point: Point) -> list[PlacementUsed]:
    """Of the launches that count, or of all attempts where there is none."""
    records = point.counting or point.records
    return [record.placement for record in records if record.placement is not None]
