"""The study of sparse embeddings: where rows travel faster than whole tables, by whose bytes.

Decides what each point is compared with, all-reduce of whole tables with the same workload and as
many workers, and where lines cross: of what was measured, and of the least times of the busiest
link that follow from the ids (`in_turn_s`).  Both are read off between neighbouring points, where
the logarithm of the share is on a straight line with that of the ratio.

With k rows of w bytes looked up by each of n workers, of V rows in all, links carry in a step
2(n - 1)/n V w around a ring of whole tables, (n - 1) k (w + 8) around one of rows, and of M
servers beside workers, balanced, (n - 1)/M k w out and then (n - 1)/M k (w + 8) in: a gather is
shorter than the ring below k/V = 2/n w/(w + 8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.figures.marks import Sign, data_of
from analysis.figures.style import (
    COLOURS,
    INK,
    MARKERS,
    finish_grid,
    logarithmic,
    new_figure,
    style,
)
from analysis.stats.points import mean_rate
from analysis.studies.shown import (
    Shown,
    beside_base,
    intervals,
    over_base,
    shown_study,
    texts_of,
)
from analysis.wording import count_text, number, ratio
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.recommenders import HUGECTR_EXPONENT, RecommenderModel
from ps_allreduce.point.strategies import (
    AllReduce,
    Hybrid,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)

TEXTS = texts_of("embeddings")

GATHER, SERVERS, MIXED = "all-reduce, rows", "servers, rows", "hybrid, rows"
STOCK_RING, STOCK_PS = "TensorFlow's all-reduce", "TensorFlow's servers (asynchronous)"

#: What is drawn, in the order of its colours.
LABELS = (GATHER, SERVERS, MIXED, STOCK_RING, STOCK_PS)

_PANEL, _AROUND = 2.7, 1.2


def _show(cases: Sequence[Case]) -> Shown:
    rows = pd.DataFrame([row for case in cases for row in _rows(case)])
    if rows.empty:
        return Shown(sentences=["No workload has both rows and whole tables with launches."])
    rows = rows.sort_values(["num_workers", "alike", "share"], ascending=[False, False, False])
    drawn = rows[rows["alike"]]
    return Shown(
        sentences=[*_crossings(drawn), *_sentences(drawn)],
        tables=[TEXTS.table("table", _text(rows))],
        figures=[TEXTS.figure("figure", _drawn(drawn), data_of(rows))],
    )


def _rows(case: Case) -> Iterator[dict[str, object]]:
    """Points that send rows, each beside whole tables."""
    asked = {p.num_workers: found for p in case.points if (found := _rows_asked(p)) is not None}
    for point, base in beside_base(case.points, _is_dense, lambda own: own.num_workers):
        if point is base or point.num_workers not in asked:
            continue
        model = point.experiment.workload.model
        assert isinstance(model, RecommenderModel)
        network, whole = _network_s(point), _network_s(base)
        yield {
            "sent": _label(point.experiment),
            "rows": sum(model.tables.rows),
            "width": model.tables.width,
            "exponent": model.id_exponent,
            "batch": point.experiment.workload.batch_per_worker,
            "num_workers": point.num_workers,
            "num_ps": point.experiment.num_ps,
            "share": round(asked[point.num_workers] / sum(model.tables.rows), 9),
            "rate": mean_rate(point),
            **over_base("over_whole", point.rates, base.rates),
            "network_s": network,
            "by_bytes": whole / network,
            "alike": model.id_exponent == HUGECTR_EXPONENT and _is_usual(case, point),
        }


def _is_dense(point: Point) -> bool:
    strategy = point.experiment.strategy
    return isinstance(strategy, AllReduce) and not strategy.is_sparse


def _is_usual(case: Case, point: Point) -> bool:
    """What the lines of the figure share: all has one server, or one for each of most workers."""
    most = max(each.num_workers for each in case.points)
    several = any(isinstance(each.experiment.strategy, Hybrid) for each in case.points)
    return several and point.num_workers == most


def _rows_asked(point: Point) -> float | None:
    found = [r.rows_asked.unique for r in point.counting if r.rows_asked is not None]
    return float(np.mean(found)) if found else None


def _network_s(point: Point) -> float:
    return float(point.known("in_turn_s").mean())


def _label(experiment: Experiment) -> str:
    labels = {
        AllReduce: GATHER,
        SynchronousServers: SERVERS,
        Hybrid: MIXED,
        StockAllReduce: STOCK_RING,
        StockServers: STOCK_PS,
    }
    return labels.get(type(experiment.strategy), str(experiment.strategy))


def _panels(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """By the number of servers, most first; what has no servers stands in each."""
    for count in sorted(set(rows["num_ps"]) - {0}, reverse=True):
        own = rows[rows["num_ps"].isin([0, count])]
        workers = own["num_workers"].max()
        yield f"{workers} workers, {count_text(count, 'server')}", own


def _crossings(rows: pd.DataFrame) -> Iterator[str]:
    """Where each line crosses that of whole tables, in every panel."""
    told = set()
    for title, panel in _panels(rows):
        for label, line in panel.groupby("sent", sort=False):
            where = title if line["num_ps"].max() else title.partition(",")[0]
            by_bytes, measured = (crossing(line, each) for each in ("by_bytes", "over_whole"))
            if (label, where) in told or by_bytes is None:
                continue
            told.add((label, where))
            yield _crossing_text(f"{label} ({where})", by_bytes, measured)


def _crossing_text(who: str, by_bytes: float, measured: float | None) -> str:
    if measured is None:
        return (
            f"{who}: by bytes as fast as whole tables at {by_bytes:.2f} of the rows; mean rates do "
            "not cross where they were measured."
        )
    return (
        f"{who}: mean rates cross those of whole tables at {measured:.2f} of the rows, by bytes at "
        f"{by_bytes:.2f} ({measured / by_bytes - 1:+.0%})."
    )


def crossing(line: pd.DataFrame, name: str) -> float | None:
    """The share at which a ratio is 1, between two neighbouring points; None if it is nowhere."""
    known = line.dropna(subset=[name]).sort_values("share")
    logs, shares = np.log(known[name].to_numpy(float)), np.log(known["share"].to_numpy(float))
    for first in range(len(logs) - 1):
        low, high = logs[first], logs[first + 1]
        if low >= 0.0 > high:
            way = low / (low - high)
            return float(np.exp(shares[first] + way * (shares[first + 1] - shares[first])))
    return None


def _sentences(rows: pd.DataFrame) -> Iterator[str]:
    """What rows are worth where fewest of them are looked up."""
    least = rows[rows["share"] == rows["share"].min()]
    for place, (title, every) in enumerate(_panels(least)):
        # What has no servers is told once.
        panel = every[every["num_ps"] > 0] if place else every
        ends = intervals(panel, ["over_whole", "low", "high"], ratio)
        told = "; ".join(f"{who} {each}" for who, each in zip(panel["sent"], ends, strict=True))
        share = panel["share"].iloc[0]
        yield f"{title}, {share:.2f} of the rows looked up, rate over whole tables: {told}."


def _text(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "sent": rows["sent"],
            "workers": rows["num_workers"],
            "servers": rows["num_ps"].replace(0, "-"),
            "rows": rows["rows"],
            "width": rows["width"],
            "exponent": rows["exponent"],
            "batch": rows["batch"],
            "share": rows["share"].map("{:.2f}".format),
            "rows/s": rows["rate"].map(number),
            "over whole tables": intervals(rows, ["over_whole", "low", "high"], ratio),
            "by bytes": [_or_dash(value, ratio) for value in rows["by_bytes"]],
            "network ms": [_or_dash(1e3 * value, number) for value in rows["network_s"]],
        }
    )


def _or_dash(value: float, spell: Callable[[float], str]) -> str:
    return "-" if math.isnan(value) else spell(value)


def _drawn(rows: pd.DataFrame) -> Figure:
    panels = dict(_panels(rows))
    with style():
        figure, grid = new_figure(1, len(panels), _AROUND + _PANEL, alike="all")
        for axes, (title, panel) in zip(grid, panels.items(), strict=True):
            _draw_panel(axes, panel)
            axes.set_title(title, loc="left")
        if rows["share"].nunique() == 1:
            # A scale that begins and ends there would show nothing.
            grid[0].set_xlim(rows["share"].min() / 2, rows["share"].max() * 2)
        finish_grid(
            figure, grid, len(panels), ("share of rows looked up", "rate over whole tables")
        )
    return figure


def _draw_panel(axes: Axes, panel: pd.DataFrame) -> None:
    logarithmic(axes.xaxis, axes.yaxis)
    axes.axhline(1.0, color=INK, linewidth=0.8)
    if panel["low"].notna().any():
        axes.set_label(Sign.INTERVAL)
    for label, line in panel.sort_values("share").groupby("sent", sort=False):
        place = LABELS.index(str(label))
        colour, marker = COLOURS[place], MARKERS[place]
        axes.plot(line["share"], line["by_bytes"], color=colour, linestyle="--", linewidth=0.8)
        if line["by_bytes"].notna().sum() > 1:
            axes.plot([], [], color=INK, linestyle="--", linewidth=0.8, label="by bytes alone")
        axes.errorbar(
            line["share"],
            line["over_whole"],
            yerr=[line["over_whole"] - line["low"], line["high"] - line["over_whole"]],
            color=colour,
            marker=marker,
            markersize=5,
            linewidth=1.2,
            elinewidth=0.9,
            linestyle="-" if len(line) > 2 else "none",
            label=str(label),
        )
        if (at := crossing(line, "by_bytes")) is not None:
            axes.axvline(at, color=colour, linestyle=":", linewidth=0.9)
            axes.plot([], [], color=INK, linestyle=":", linewidth=0.9, label="equal by bytes")


EMBEDDINGS = shown_study("embeddings", _show)
