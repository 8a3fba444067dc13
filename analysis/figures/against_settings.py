"""Throughput against the settings of each side: servers, bytes per pack, the exchange.

One function per figure: a case in, a figure out, or None where a case has nothing to show.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.data.setting import megabytes
from analysis.figures.curves import curves_of, draw_curves, label_ends
from analysis.figures.marks import draw_cross, marks_of, top_of
from analysis.figures.rows import Row, count_beside, draw_row, name_rows
from analysis.figures.style import (
    COLOURS,
    FAINT,
    IDEAL,
    MARKERS,
    finish_grid,
    name_figure,
    new_figure,
    style,
)
from analysis.stats.decision import Outcome
from analysis.stats.decisions import Pair, changed_points
from analysis.stats.pairs.ladders import ladders
from analysis.stats.pairs.setting_pairs import varies_exchange
from analysis.stats.points import launch_ratios
from analysis.wording import workers_text
from ps_allreduce.point.strategies import STRATEGIES, AnyStrategy

#: Beyond all sizes of packs.
_ONE_PACK, _BUCKETS = 1 << 61, 1 << 62
_PLACES = {_ONE_PACK: "one pack", _BUCKETS: "buckets"}

#: Sizes of the figure of the exchange, and of axes with lines, inches.
_ROW_HEIGHT, _AROUND_ROWS, _AXES_HEIGHT = 0.24, 0.75, 2.4

#: Lines through fewer numbers of servers say less than the rows of the figure of throughput.
_LEAST_SERVERS = 3


def plot_against_servers(case: Case) -> Figure | None:
    """Examples per second against parameter servers.

    One row of axes per number of workers; synchronous and asynchronous strategies have axes of
    their own, since they do not compute the same.
    """
    marks, several = _marks(case), varied_servers(case)
    servers = marks[marks["num_ps"] > 0].assign(label=marks["variant"])
    strategies = servers["strategy"].unique()
    if not several:
        return None
    cells = [(int(workers), strategy) for workers in several for strategy in strategies]
    labels, height = list(dict.fromkeys(servers["label"])), _AXES_HEIGHT * len(several) + 0.9
    with style():
        figure, grid = new_figure(len(several), len(strategies), height, alike="row")
        name_figure(figure, case.name)
        for axes, (workers, strategy) in zip(grid, cells, strict=True):
            row = servers[servers["workers"] == workers]
            row = row.assign(x=row["num_ps"].rank(method="dense") - 1)
            numbers = sorted(row["num_ps"].unique())
            curves = curves_of(row[row["strategy"] == strategy], labels)
            draw_curves(axes, curves, _ticks(numbers), top_of(row))
            _draw_reference(axes, marks[marks["workers"] == workers])
            what = _training_of(STRATEGIES[strategy])
            axes.set_title(f"{workers_text(workers)}, {what}", loc="left")
        finish_grid(figure, grid, len(cells), ("parameter servers", f"{case.unit}/s"))
    return figure


def varied_servers(case: Case) -> list[int]:
    """Numbers of workers with several numbers of servers; none where nowhere are enough of them."""
    counts: dict[int, set[int]] = {}
    for point in case.points:
        if point.experiment.num_ps:
            counts.setdefault(point.num_workers, set()).add(point.experiment.num_ps)
    if max(map(len, counts.values()), default=0) < _LEAST_SERVERS:
        return []
    return [workers for workers, those in sorted(counts.items()) if len(those) > 1]


def _training_of(traits: type[AnyStrategy]) -> str:
    training = "synchronous" if traits.synchronous else "asynchronous"
    return f"{training}, as shipped" if traits.as_shipped else training


def plot_against_packs(case: Case) -> Figure | None:
    """Examples per second of all-reduce against the bytes of one pack, one curve per workers.

    Buckets are no pack of some size: they stand apart, and no line leads to them.
    """
    marks = _marks(case)
    marks = marks[marks["packs"]]
    sizes = sorted(marks["place"].unique())
    if len(sizes) < 2:
        return None
    names = marks["strategy"].where(marks["place"] != _BUCKETS, marks["setting"])
    marks = marks.assign(
        x=marks["place"].rank(method="dense") - 1,
        label=names + ", " + marks["workers"].map(workers_text),
    )
    places = [_PLACES.get(size) or megabytes(size) for size in sizes]
    with style():
        figure, (axes,) = new_figure(1, 1, _AXES_HEIGHT + 1.4)
        curves = curves_of(marks)
        draw_curves(axes, curves, _ticks(places), top_of(marks))
        label_ends(axes, curves)
        name_figure(figure, case.name)
        finish_grid(figure, [axes], 1, ("bytes per pack", f"{case.unit}/s"))
    return figure


def _marks(case: Case) -> pd.DataFrame:
    """The throughput of all points without their bounds, beside their settings."""
    settings = [
        {
            "strategy": point.setting.strategy,
            "variant": point.setting.variant,
            "workers": point.num_workers,
            "collective": point.setting.traits.uses_collective,
            "packs": "bytes_per_pack" in point.setting.traits.understands(),
            "place": _pack_place(point.setting.bytes_per_pack),
        }
        for point in case.points
    ]
    return marks_of(case, "rate").assign(bound=np.nan).join(pd.DataFrame(settings))


def _pack_place(size: int | None) -> int:
    """By size, then one pack, which is the largest of all, then buckets."""
    return _BUCKETS if size is None else size or _ONE_PACK


def _ticks(values: Sequence[object]) -> dict[float, str]:
    """Values at equal distances."""
    return {float(position): str(value) for position, value in enumerate(values)}


def _draw_reference(axes: Axes, marks: pd.DataFrame) -> None:
    """All-reduce at the same number of workers, as a line to compare with."""
    measured = marks[marks["collective"] & marks["mean"].notna()]
    for setting, rate in zip(measured["setting"], measured["mean"], strict=True):
        axes.axhline(
            rate,
            color=IDEAL,
            linewidth=1.0,
            linestyle=(0, (4, 2)),
            label=f"{setting}, same workers",
        )
        axes.set_ylim(0, max(axes.get_ylim()[1], rate * 1.1))


def plot_exchange(case: Case) -> Figure | None:
    """Examples per second over those of the point that was changed, which has axes of its own."""
    if not varies_exchange(case) or any(ladders(case)):
        return None
    groups: dict[str, list[Pair]] = {}
    for item in changed_points(case):
        groups.setdefault(_name(item.second), []).append(item)
    heights = [len(items) * _ROW_HEIGHT + _AROUND_ROWS for items in groups.values()]
    limits = _limits([item for items in groups.values() for item in items])
    with style():
        # The case above all axes: with a long name a title would run off the edge.
        height = sum(heights) + 0.8
        figure, grid = new_figure(len(groups), 1, height, alike="row", heights=heights)
        name_figure(figure, case.name)
        for number, (axes, (title, items)) in enumerate(zip(grid, groups.items(), strict=True)):
            _draw_rows(axes, items, number, limits)
            axes.set_title(title, loc="left")
        axes.set_xlim(limits)
        axes.set_xlabel(f"{case.unit}/s over those of the setting in the title (dotted line)")
    return figure


def _name(point: Point) -> str:
    return f"{point.setting.label}, {workers_text(point.num_workers)}"


def exchange_data(case: Case) -> pd.DataFrame:
    """Every setting of the exchange over the one that it is changed from, with its launches."""
    names = ("ratio", "low", "high")
    return pd.DataFrame(
        {
            "setting": _name(item.first),
            "changed_from": _name(item.second),
            **dict(zip(names, item.decision.ends, strict=True)),
            "outcome": str(item.decision.outcome),
            "launches": " ".join(f"{ratio:.6g}" for ratio in _ratios(item)),
            "ok": len(item.first.rates),
            "planned": item.first.planned,
        }
        for item in changed_points(case)
    )


def _limits(items: Sequence[Pair]) -> tuple[float, float]:
    """Around all launches and means; an interval that is longer ends in an arrow."""
    means = [item.decision.ratio for item in items if item.decision.ratio is not None]
    ratios = [1.0, *means, *(ratio for item in items for ratio in _ratios(item))]
    margin = 0.08 * (max(ratios) - min(ratios)) or 0.1
    return min(ratios) - margin, max(ratios) + margin


def _ratios(item: Pair) -> pd.Series:
    return launch_ratios(item.first.rates, item.second.rates)


def _draw_rows(axes: Axes, items: Sequence[Pair], number: int, limits: tuple[float, float]) -> None:
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
    axes.axvline(1.0, color=IDEAL, linewidth=1.0, linestyle=(0, (1, 1)), zorder=1)
    for y, item in enumerate(items):
        row = Row(
            y=y,
            launches=[*_ratios(item)],
            ends=item.decision.ends,
            colour=colour,
            marker=marker,
            filled=item.decision.outcome in (Outcome.FASTER, Outcome.SLOWER, Outcome.EQUAL),
            starred=bool(item.first.mark or item.second.mark),
        )
        draw_row(axes, row, limits)
        if item.decision.ratio is None:
            what = "nothing to compare with" if len(item.first.rates) else "no launch ended well"
            axes.text(limits[0], y, f"   {what}", color=FAINT, va="center", fontsize=7)
        if len(item.first.unusable):
            draw_cross(axes, limits[0], y, colour)
        count_beside(axes, y, len(item.first.rates), item.first.planned)
    name_rows(axes, [item.first.setting.exchange for item in items])
