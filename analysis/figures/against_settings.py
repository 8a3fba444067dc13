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
from analysis.figures.against_workers import finish_grid
from analysis.figures.curves import Row, curves_of, draw_curves, draw_row, marks_of, top_of
from analysis.figures.style import COLOURS, IDEAL, MARKERS, new_figure, style
from analysis.stats.decision import Outcome
from analysis.stats.decisions import Pair, changed_points
from analysis.stats.ladders import ladders
from analysis.stats.points import launch_ratios
from analysis.stats.setting_pairs import varies_exchange
from analysis.wording import workers_text
from ps_allreduce.point.strategies import STRATEGIES, AnyStrategy

#: Beyond all sizes of packs.
_ONE_PACK, _BUCKETS = 1 << 61, 1 << 62
_PLACES = {_ONE_PACK: "one pack", _BUCKETS: "buckets"}

#: Sizes of the figure of the exchange, inches.
_ROWS_WIDTH, _ROW_HEIGHT, _AROUND_ROWS = 7.4, 0.24, 0.75


def plot_against_servers(case: Case) -> Figure | None:
    """Examples per second against parameter servers.

    One row of axes per number of workers; synchronous and asynchronous strategies have axes of
    their own, since they do not compute the same.
    """
    marks = _marks(case)
    servers = marks[marks["num_ps"] > 0].assign(label=marks["variant"])
    counts = servers.groupby("workers")["num_ps"].nunique()
    several, strategies = counts.index[counts > 1], servers["strategy"].unique()
    if several.empty:
        return None
    cells = [(int(workers), strategy) for workers in several for strategy in strategies]
    with style():
        figure, grid = new_figure(len(several), len(strategies))
        for axes, (workers, strategy) in zip(grid, cells, strict=True):
            row = servers[servers["workers"] == workers]
            row = row.assign(x=row["num_ps"].rank(method="dense") - 1)
            numbers = sorted(row["num_ps"].unique())
            _draw(axes, case, row[row["strategy"] == strategy], numbers, top_of(row))
            axes.set_xlabel("parameter servers")
            _draw_reference(axes, marks[marks["workers"] == workers])
            what = _training_of(STRATEGIES[strategy])
            axes.set_title(f"{case.name}, {workers_text(workers)}: {what}", loc="left")
        finish_grid(figure, grid, len(cells), apart=False)
    return figure


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
    curves = marks["strategy"].where(marks["place"] != _BUCKETS, marks["setting"])
    marks = marks.assign(
        x=marks["place"].rank(method="dense") - 1,
        label=curves + ", " + marks["workers"].map(workers_text),
    )
    names = [_PLACES.get(size) or megabytes(size) for size in sizes]
    with style():
        figure, (axes,) = new_figure(1, 1)
        _draw(axes, case, marks, names, top_of(marks))
        axes.set_xlabel("bytes per pack")
        axes.set_title(case.name, loc="left")
        finish_grid(figure, [axes], 1, apart=False)
    return figure


def _marks(case: Case) -> pd.DataFrame:
    """The throughput of all points without their bounds, beside their settings."""
    settings = [
        {
            "strategy": point.setting.strategy,
            "setting": point.setting.label,
            "variant": point.setting.variant,
            "workers": point.num_workers,
            "num_ps": point.experiment.num_ps,
            "collective": point.setting.traits.uses_collective,
            "packs": "bytes_per_pack" in point.setting.traits.understands,
            "place": _pack_place(point.setting.bytes_per_pack),
        }
        for point in case.points
    ]
    return marks_of(case, "rate").assign(bound=np.nan).join(pd.DataFrame(settings))


def _pack_place(size: int | None) -> int:
    """By size, then one pack, which is the largest of all, then buckets."""
    return _BUCKETS if size is None else size or _ONE_PACK


def _draw(
    axes: Axes, case: Case, marks: pd.DataFrame, values: Sequence[object], top: float
) -> None:
    """Curves over values that stand at equal distances."""
    ticks = {float(position): str(value) for position, value in enumerate(values)}
    draw_curves(axes, curves_of(marks), ticks, top)
    axes.set_ylabel(f"{case.unit}/s")


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
        title = f"{item.second.setting.label}, {workers_text(item.second.num_workers)}"
        groups.setdefault(title, []).append(item)
    heights = [len(items) * _ROW_HEIGHT + _AROUND_ROWS for items in groups.values()]
    limits = _limits([item for items in groups.values() for item in items])
    with style():
        # The case above all axes: with a long name a title would run off the edge.
        figure = Figure(figsize=(_ROWS_WIDTH, sum(heights) + 0.8), layout="constrained")
        figure.suptitle(case.name, fontsize=9)
        grid = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights, sharex=True)
        for number, (title, items) in enumerate(groups.items()):
            axes = grid[number, 0]
            _draw_rows(axes, items, number, limits)
            axes.set_title(title, loc="left")
        axes.set_xlim(limits)
        axes.set_xlabel(f"{case.unit}/s over those of the setting in the title (dotted line)")
    return figure


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
            axes.text(limits[0], y, f" {what}", color=colour, va="center", fontsize=7)
    axes.set_yticks(range(len(items)), [_row_label(item.first) for item in items])
    axes.set_ylim(len(items) - 0.4, -0.6)
    axes.grid(axis="x", visible=True)


def _row_label(point: Point) -> str:
    failed = f" ({len(point.unusable)} not ok)" if len(point.unusable) else ""
    return point.setting.exchange + failed
