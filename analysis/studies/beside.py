"""The studies of Piz Daint and Amazon's p2: published curves of efficiency beside those of a sweep.

Decides how both are held against each other: by efficiency on a single worker, because machines
differ in everything else; and which points make a curve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.data.case_names import file_names
from analysis.data.cases import Case, Point
from analysis.figures.marks import data_of, marks_of
from analysis.figures.save import DrawnFigure
from analysis.stats.points import base_text, mean_rate, point_table
from analysis.studies.shown import (
    PUBLISHED,
    Shown,
    beside_base,
    over_base,
    plot_panels,
    shown_study,
    texts_of,
)
from analysis.wording import number, ratio, ratio_text
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import InputFiles, Synthetic
from ps_allreduce.point.inputs.data_set import Pipeline
from ps_allreduce.point.placement import Policy

TEXTS = texts_of("efficiency")

#: Columns of what is published.
THERE = ("images/s there", "efficiency there", "real images cost there", "servers there")

#: Columns of the table of points.
EFFICIENCY = ["efficiency_single", "efficiency_single_low", "efficiency_single_high"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCurve:
    """Published throughput against workers, and which points of a sweep repeat it.

    Attributes:
        system: what was measured there, in a legend.
        csv: file of published numbers, a row for each number of workers: workers, images_per_sec,
            num_ps, mode, real_images_per_sec.
        series: of the sweep by their names; each tells a point that belongs to it.
        workers_per_host: which cases repeat it; None for all.
    """

    system: str
    csv: str
    series: Mapping[str, Callable[[Point], bool]]
    workers_per_host: int | None = None

    def rows(self) -> pd.DataFrame:
        """The published rows.

        With the efficiency on the row of one worker, and the share that real images take away.
        """
        rows = pd.read_csv(PUBLISHED / self.csv)
        rates = rows["images_per_sec"]
        base = rates[rows["workers"] == 1].iloc[0]
        return rows.assign(
            efficiency=rates / (rows["workers"] * base),
            real_cost=(rates - rows["real_images_per_sec"]) / rates,
        )

    def of(self, point: Point) -> bool:
        """The case of the point repeats it."""
        own = point.experiment.spread
        return self.workers_per_host in (None, own and own.workers_per_host)


def show_curves(curves: Sequence[PublishedCurve], cases: Sequence[Case]) -> Shown:
    """A table and a figure of every case, beside the curve that it repeats."""
    names = file_names(cases)
    made_up = [case for case in cases if not _reads(case.points[0])]
    pairs = [(curve, case) for case in made_up for curve in curves if curve.of(case.points[0])]
    reading = reading_costs(curves, cases)
    tables = [
        TEXTS.table("table", table_beside(curve, case), title=case.name) for curve, case in pairs
    ]
    if not reading.empty:
        tables.append(TEXTS.table("reading", reading))
    return Shown(
        sentences=[line for curve, case in pairs for line in _sentences(curve, case)],
        tables=tables,
        figures=[each for curve, case in pairs for each in _figures(curve, case, names[case])],
    )


def _reads(point: Point) -> bool:
    return isinstance(point.experiment.workload.data, InputFiles)


def reading_costs(curves: Sequence[PublishedCurve], cases: Sequence[Case]) -> pd.DataFrame:
    """Of every point that reads files and has a twin with synthetic images, what that costs."""
    points = [point for case in cases for point in case.points]
    rows = [
        _cost(curve, point, base)
        for point, base in beside_base(points, lambda p: not _reads(p), _but_for_input)
        if _reads(point)
        for curve in curves
        if curve.of(point)
    ]
    costs = pd.DataFrame(rows)
    has_one_original = bool(rows) and costs["there"].nunique() == 1
    return costs.drop(columns="there") if has_one_original else costs


def _but_for_input(experiment: Experiment) -> str:
    """What two points share that differ in their input only."""
    made_up = replace(experiment.workload, data=Synthetic(), pipeline=Pipeline())
    return replace(experiment, workload=made_up).experiment_id


def _cost(curve: PublishedCurve, point: Point, base: Point) -> dict[str, str]:
    kept = over_base("kept", point.rates, base.rates)
    published = {row["workers"]: row for row in curve.rows().to_dict("records")}
    there = published.get(point.num_workers, {}).get("real_cost", math.nan)
    return {
        "workers": str(point.num_workers),
        "setting": point.setting.label,
        "synthetic/s": number(mean_rate(base)),
        "real/s": number(mean_rate(point)),
        "cost here": ratio_text(*(1 - kept[end] for end in ("kept", "high", "low"))),
        "cost there": ratio(there),
        "there": curve.system.removeprefix("published: "),
    }


def _sentences(curve: PublishedCurve, case: Case) -> list[str]:
    """What every series reaches with the most workers that were measured, and the original."""
    told = point_table(case)
    series = _series(curve, case)
    most = max((p.num_workers for points in series.values() for p in points), default=1)
    cells = {name: _own_cell(case, told, points, most) for name, points in series.items()}
    if most == 1 or not any(cells.values()):
        return []
    published = curve.rows().set_index("workers")["efficiency"]
    there = f"; {curve.system}, {ratio(published[most])}" if most in published.index else ""
    own = ", ".join(f"{name} {cell}" for name, cell in cells.items() if cell)
    return [f"Efficiency with {most} workers: {own}{there}."]


def placed(policy: Policy) -> Callable[[Point], bool]:
    """Tells points whose variables a placement spreads over several servers."""

    def belongs(point: Point) -> bool:
        servers = point.experiment.strategy.servers
        return servers is not None and servers.num_ps > 1 and servers.placement is policy

    return belongs


def table_beside(curve: PublishedCurve, case: Case) -> pd.DataFrame:
    """The original's table, and beside it what the sweep measured at as many workers; text."""
    told = point_table(case)
    series = _series(curve, case)
    published = {row["workers"]: row for row in curve.rows().to_dict("records")}
    counts = sorted({*published, *(p.num_workers for own in series.values() for p in own)})
    return pd.DataFrame(
        [
            {
                "workers": str(count),
                **_published_cells(published.get(count)),
                **{name: _own_cell(case, told, points, count) for name, points in series.items()},
            }
            for count in counts
        ]
    )


def _published_cells(row: Mapping[Hashable, Any] | None) -> dict[str, str]:
    if row is None:
        return dict.fromkeys(THERE, "")
    return {
        THERE[0]: number(row["images_per_sec"]),
        THERE[1]: ratio(row["efficiency"]),
        THERE[2]: ratio(row["real_cost"]),
        THERE[3]: str(row["num_ps"]),
    }


def _own_cell(case: Case, told: pd.DataFrame, points: list[Point], workers: int) -> str:
    point = next((each for each in points if each.num_workers == workers), None)
    if point is None:
        return ""
    centre, low, high = map(float, told.loc[case.points.index(point), EFFICIENCY])
    if math.isnan(centre):
        return "none claimed"
    servers = point.experiment.num_ps
    with_servers = f", {servers} ps" if servers else ""
    return ratio_text(centre, low, high) + with_servers


def _series(curve: PublishedCurve, case: Case) -> dict[str, list[Point]]:
    """The points of every series that was measured, by workers; the first one if none was.

    A single server stands in where a series has no point of its own.
    """
    measured = [name for name, belongs in curve.series.items() if any(map(belongs, case.points))]
    names = measured or [*curve.series][:1]
    return {name: [*_of_series(curve.series[name], case)] for name in names}


def _of_series(belongs: Callable[[Point], bool], case: Case) -> Iterator[Point]:
    for workers in sorted({point.num_workers for point in case.points}):
        points = [point for point in case.points if point.num_workers == workers]
        own = [point for point in points if belongs(point)]
        alone = [p for p in points if p.experiment.num_ps == 1 or p.setting.traits.max_workers == 1]
        yield from (own or alone)[:1]


def _figures(curve: PublishedCurve, case: Case, told: str) -> list[DrawnFigure]:
    """Efficiency against workers, on a logarithmic axis; none where nothing was measured."""
    curves = _curves(curve, case)
    every = pd.concat(curves.values())
    if not every["launches"].map(bool).any():
        return []
    data = data_of(pd.concat([marks.assign(curve=name) for name, marks in curves.items()]))
    drawn = TEXTS.figure("figure", _drawn(case, curves, every), data)
    return [replace(drawn, name=f"{drawn.name}-{told}") if told else drawn]


def _drawn(case: Case, curves: Mapping[str, pd.DataFrame], every: pd.DataFrame) -> Figure:
    places = {
        label: marks.assign(x=marks["num_workers"].map(math.log2))
        for label, marks in curves.items()
    }
    ticks = {math.log2(count): str(count) for count in sorted({*every["num_workers"]})}
    labels = "workers", f"efficiency on {base_text(case)}"
    return plot_panels({"": places}, ticks, labels, name=case.name)


def _curves(curve: PublishedCurve, case: Case) -> dict[str, pd.DataFrame]:
    """Marks of the published curve, and of each series of the case."""
    marks = marks_of(case, "efficiency_single")
    rows = curve.rows()
    published = pd.DataFrame(
        {
            "num_workers": rows["workers"],
            "num_ps": rows["num_ps"],
            "mean": rows["efficiency"],
            **dict.fromkeys(("low", "high", "bound"), math.nan),
            **dict.fromkeys(("ok", "planned", "failed"), 0),
            "launches": [()] * len(rows),
            "starred": False,
        }
    )
    own = {
        name: marks.iloc[[case.points.index(point) for point in points]]
        for name, points in _series(curve, case).items()
    }
    return {curve.system: published, **own}


SERIES = {
    "here, round robin": placed(Policy.ROUND_ROBIN),
    "here, partitioned": placed(Policy.PARTITIONED),
}

CURVE = PublishedCurve(
    system="published: Piz Daint, greedy or round robin", csv="piz-daint.csv", series=SERIES
)

CURVES_OF_P2 = tuple(
    PublishedCurve(
        system=f"published: {instance}, {told} per host",
        csv=f"{instance}.csv",
        series=SERIES,
        workers_per_host=workers,
    )
    for instance, told, workers in (
        ("p2.xlarge", "a worker", 1),
        ("p2.8xlarge", "eight workers", 8),
    )
)

PIZ_DAINT = shown_study("piz-daint", partial(show_curves, [CURVE]))


P2 = shown_study("p2", partial(show_curves, CURVES_OF_P2))
