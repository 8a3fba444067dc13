"""The study of Ohio State: processes of a host, then speed-up over hosts, for the sweep `osu`.

Decides which points tell of one host and which of scaling, and that speed-up is over one host with
the same model, scaling and processes, and where these are several, the same strategy.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.figures.curves import curves_of
from analysis.figures.marks import STARRED, data_of
from analysis.figures.style import (
    IDEAL,
    INK,
)
from analysis.stats.findings import highest
from analysis.stats.points import mean_rate
from analysis.stats.statistics import estimate
from analysis.studies.shown import (
    PUBLISHED,
    Shown,
    beside_base,
    launched,
    marks_from,
    model_name,
    over_base,
    plot_panels,
    shown_study,
    texts_of,
)
from analysis.wording import number, ratio, ratio_text, with_interval
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import hosts_of_workers
from ps_allreduce.point.workload import Scaling

TEXTS = texts_of("osu")

#: Published rates of one and of eight hosts, and speed-up of strong scaling on processors.
RATES_THERE = pd.read_csv(PUBLISHED / "osu.csv")

#: Hosts of the published speed-ups.
MOST_THERE = 8

#: Begins every curve.
ONE_HOST = pd.DataFrame([{"hosts": 1, "speed_up": 1.0, "low": 1.0, "high": 1.0, "launches": ()}])


def _show(cases: Sequence[Case]) -> Shown:
    points = launched(cases)
    tables, figures = [], []
    alone = filter(_is_on_one_host, points)
    computed = [point for point in alone if point.experiment.workload.emulated is None]
    if computed:
        tables.append(TEXTS.table("host", _host_table(computed)))
    rows = pd.DataFrame(
        _row(point, base)
        for point, base in beside_base(points, _is_on_one_host, _trained)
        if not _is_on_one_host(point)
    )
    if not rows.empty:
        starred = f" *: {STARRED}." * bool((rows["mark"] != "").any())
        tables.append(TEXTS.table("scaling", _scaling_table(rows), more=starred))
        figures.append(TEXTS.figure("figure", _drawn(rows), data_of(rows)))
    return Shown(
        sentences=[*_host_sentences(computed), *_scaling_sentences(rows)],
        tables=tables,
        figures=figures,
    )


def _is_on_one_host(point: Point) -> bool:
    return hosts_of_workers(point.experiment) == 1


def _processes(point: Point) -> str:
    return f"{point.num_workers} x {point.threads}"


def _host_table(points: Sequence[Point]) -> pd.DataFrame:
    in_order = sorted(
        points, key=lambda p: (model_name(p.experiment), p.experiment.global_batch, p.num_workers)
    )
    return pd.DataFrame(
        [
            {
                "model": model_name(point.experiment),
                "processes x threads": _processes(point),
                "batch": str(point.experiment.global_batch),
                "images/s": _marked(with_interval(number, *estimate(point.rates).ends), point.mark),
            }
            for point in in_order
        ]
    )


def _host_sentences(points: Sequence[Point]) -> Iterator[str]:
    """Of each model, the highest mean with the batch that most were measured with."""
    names = dict.fromkeys(model_name(point.experiment) for point in points)
    best = []
    for name in names:
        own = [point for point in points if model_name(point.experiment) == name]
        batches = pd.Series([point.experiment.global_batch for point in own])
        alike = [p for p in own if p.experiment.global_batch == batches.mode().iloc[0]]
        if len({point.num_workers for point in alike}) > 1:
            best.append(f"{name} {_processes(highest(alike))}")
    if best:
        told = "Highest mean rate of a host, which is no decision, with processes x threads"
        yield f"{told}: {', '.join(best)}."


def _trained(experiment: Experiment) -> tuple[object, ...]:
    """What a point shares with the one host that it is held against."""
    load = experiment.workload
    processes = 1 if experiment.spread is None else experiment.spread.workers_per_host
    strategy = experiment.strategy.kind if processes > 1 else ""
    trained = model_name(experiment), load.scaling, load.batch_per_worker, load.emulated is None
    return *trained, processes, strategy


def _row(point: Point, base: Point) -> dict[str, object]:
    return {
        "model": model_name(point.experiment),
        "scaling": str(point.experiment.workload.scaling),
        "strategy": point.setting.called,
        "hosts": hosts_of_workers(point.experiment),
        "rate": mean_rate(point),
        **over_base("speed_up", point.rates, base.rates),
        "mark": point.mark or base.mark,
    }


def _scaling_table(rows: pd.DataFrame) -> pd.DataFrame:
    ordered = rows.sort_values(
        ["model", "scaling", "hosts", "strategy"], ascending=[True, False, True, True]
    )
    return pd.DataFrame([_scaling_cells(row) for row in ordered.to_dict("records")])


def _scaling_cells(row: Mapping[Hashable, Any]) -> dict[str, str]:
    ends = (row[name] / row["hosts"] for name in ("speed_up", "low", "high"))
    there = (speed_up / MOST_THERE for speed_up in _published(row["model"], row["scaling"]))
    return {
        "model": str(row["model"]),
        "hosts": f"{row['hosts']}, {row['scaling']}",
        "strategy": str(row["strategy"]),
        "images/s": number(row["rate"]),
        "efficiency": _marked("not claimed", row["mark"]) if row["mark"] else ratio_text(*ends),
        "there": ", ".join(ratio(known) for known in there if not math.isnan(known)),
    }


def _published(model: str, scaling: str) -> tuple[float, float]:
    """Speed-up of `MOST_THERE` hosts with processors and with GPUs; NaN if it was not published."""
    rows = RATES_THERE[RATES_THERE["model"] == model].to_dict("records")
    if not rows:
        return math.nan, math.nan
    one, most = rows
    if scaling == Scaling.STRONG:
        return most["strong_speed_up_cpu"], math.nan
    cpu, gpu = (most[rate] / one[rate] for rate in ("cpu_images_per_sec", "gpu_images_per_sec"))
    return cpu, gpu


def _scaling_sentences(rows: pd.DataFrame) -> Iterator[str]:
    if rows.empty:
        return
    most = rows[(rows["hosts"] == rows["hosts"].max()) & (rows["scaling"] == Scaling.WEAK)]
    told = [
        f"{row['model']} {_speed_up_text(row)} ({row['strategy']})"
        for row in most.sort_values(["model", "strategy"]).to_dict("records")
    ]
    if told:
        yield f"Weak scaling on {rows['hosts'].max()} hosts, speed-up over one: {', '.join(told)}."


def _speed_up_text(row: Mapping[Hashable, Any]) -> str:
    return _marked(ratio_text(row["speed_up"], row["low"], row["high"]), row["mark"])


def _marked(text: str, mark: str) -> str:
    return f"{text} {mark}".rstrip()


def _marks(rows: pd.DataFrame) -> pd.DataFrame:
    """Of a model; every curve begins with one host."""
    told = rows.assign(label=rows["strategy"] + ", " + rows["scaling"])
    begins = [ONE_HOST.assign(label=label) for label in told["label"].unique()]
    every = pd.concat([*begins, told], ignore_index=True)
    return marks_from(every.assign(x=every["hosts"]), every["speed_up"])


def _drawn(rows: pd.DataFrame) -> Figure:
    hosts = sorted({1, *rows["hosts"], MOST_THERE})
    labels = list(dict.fromkeys(rows["strategy"] + ", " + rows["scaling"]))
    panels = {str(model): curves_of(_marks(own), labels) for model, own in rows.groupby("model")}

    def draw_beside(axes: Axes, model: str) -> None:
        axes.plot(hosts, hosts, color=IDEAL, linewidth=0.8, label="ideal")
        for scaling, marker in ((Scaling.WEAK, "x"), (Scaling.STRONG, "+")):
            cpu, _ = _published(model, scaling)
            if not math.isnan(cpu):
                label = f"published, processors, {scaling}"
                axes.plot(MOST_THERE, cpu, marker, color=INK, ms=8, mew=1.6, label=label)

    ticks = {float(count): str(count) for count in hosts}
    return plot_panels(panels, ticks, ("hosts", "speed-up"), draw_beside, at_least=MOST_THERE)


OSU = shown_study("osu", _show)
