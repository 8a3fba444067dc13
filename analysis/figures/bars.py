"""Bars: where the time of a step goes, and bytes per parameter server beside their throughput.

One function per figure: a case in, a figure out, or None where a case has nothing to show.  The
parts of a step are costs, so their means over launches are arithmetic and add up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.figures.marks import LAUNCHES, data_of, draw_cross, marks_of, note_signs
from analysis.figures.rows import Row, count_beside, draw_row, name_rows
from analysis.figures.style import (
    COLOURS,
    FAINT,
    INK,
    MARKERS,
    PAPER,
    bar_fill,
    legend_of_figure,
    name_figure,
    new_figure,
    style,
)
from analysis.stats.points import PlacementPoint, placement_points, point_table
from analysis.stats.statistics import estimate
from analysis.wording import workers_text

_BAR = 0.68

#: Columns of the table of runs, and what they are called.
_PARTS = {
    "compute_s": "compute",
    "communication_s": "everything else: exposed communication, updates, dispatch",
    "input_wait_s": "input wait",
}


def plot_breakdown(case: Case) -> Figure | None:
    """Stacked parts of the mean step, a bar per point, grouped by workers."""
    # Nobody sees into the steps of some strategies.
    measured = [point for point in case.points if point.launches["compute_s"].notna().any()]
    shown = sorted(measured, key=lambda point: point.num_workers)
    if not shown:
        return None
    # From the top, with a gap where the number of workers changes.
    workers = pd.Series([point.num_workers for point in shown])
    positions = [0.0, *np.where(workers.diff()[1:] > 0, 1.6, 1.0).cumsum()]
    with style():
        figure, (axes,) = new_figure(1, 1, 1.4 + 0.27 * (positions[-1] + 1))
        _draw_parts(axes, shown, positions)
        _draw_totals(axes, shown, positions)
        labels = [_label(point) for point in shown]
        axes.set_yticks(positions, labels)
        axes.set_ylim(positions[-1] + 0.6, -0.6)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", visible=True)
        axes.set_xlabel("mean step time of a worker, ms")
        name_figure(figure, case.name)
        legend_of_figure(figure, [axes], columns=1)
    return figure


def breakdown_data(case: Case) -> pd.DataFrame:
    """Mean seconds of the parts of a step at every point."""
    return point_table(case)[["setting", "num_workers", "step_mean_s", *_PARTS]]


def _label(point: Point) -> str:
    return f"{point.setting.label} ({workers_text(point.num_workers)}) {point.mark}".rstrip()


def _draw_parts(axes: Axes, points: Sequence[Point], positions: Sequence[float]) -> None:
    rows = [point.launches[list(_PARTS)].astype(float).mean() * 1e3 for point in points]
    means = pd.DataFrame(rows)
    starts = means.cumsum(axis="columns").shift(axis="columns", fill_value=0.0)
    for index, (name, label) in enumerate(_PARTS.items()):
        fill = bar_fill(index)
        axes.barh(positions, means[name], _BAR, left=starts[name], label=label, **fill)


def _draw_totals(axes: Axes, points: Sequence[Point], positions: Sequence[float]) -> None:
    """The step time of every launch, so that the spread behind a bar can be seen."""
    totals = [point.launches[list(_PARTS)].sum(axis="columns") * 1e3 for point in points]
    heights = np.repeat(positions, [len(each) for each in totals]) + _BAR / 2
    axes.scatter(
        pd.concat(totals),
        heights,
        s=10,
        facecolors=PAPER,
        edgecolors=INK,
        linewidths=0.7,
        label=LAUNCHES,
        zorder=4,
    )


def plot_placement(case: Case) -> Figure | None:
    """Bytes per server beside the throughput per policy, at the largest number of workers."""
    found = placement_points(case)
    if not found:
        return None
    workers = max(item.point.num_workers for item in found)
    shown = [item for item in found if item.point.num_workers == workers]
    labels = list(dict.fromkeys(_category(item) for item in shown))
    with style():
        figure, (left, right) = new_figure(1, 2, 1.9 + 0.36 * len(labels))
        _draw_loads(left, shown, labels)
        _draw_rates(right, case.unit, shown, labels)
        own = [item.point for item in shown]
        note_signs(right, marks_of(case, "rate")[[point in own for point in case.points]])
        # Above both axes: a long name would run from the left one into the right one.
        name_figure(figure, case.name)
        left.set_title("bytes per server", loc="left")
        right.set_title(f"throughput, {workers_text(workers)}", loc="left")
        legend_of_figure(figure, [left, right])
    return figure


def placement_data(case: Case) -> pd.DataFrame:
    """Trainable bytes of each server as read back, and the throughput, at every such point."""
    rates = data_of(marks_of(case, "rate"))
    found = {item.point: item.worst for item in placement_points(case)}
    placed = [point in found for point in case.points]
    used = [found[point] for point in case.points if point in found]
    loads = [" ".join(map(str, each.bytes_per_server)) for each in used]
    hottest = [each.max_over_mean for each in used]
    return rates[placed].assign(bytes_per_server=loads, max_over_mean=hottest)


def _category(item: PlacementPoint) -> str:
    """TensorFlow as it ships places other variables as well, so it has a row of its own."""
    setting = item.point.setting
    shipped = ", as shipped" * setting.traits.as_shipped
    return f"{setting.variant}, {item.point.experiment.num_ps} ps{shipped}"


def _draw_loads(axes: Axes, shown: Sequence[PlacementPoint], labels: Sequence[str]) -> None:
    """One bar per placement, one segment per server, the hottest server's excess beside it."""
    total = max(sum(item.worst.bytes_per_server) for item in shown)
    unit, name = (1e6, "MB") if total >= 1e6 else (1e3, "kB")
    servers = max(len(item.worst.bytes_per_server) for item in shown)
    by_label = {_category(item): item for item in reversed(shown)}
    for row, label in enumerate(labels):
        used, end = by_label[label].worst, 0.0
        for server, size in enumerate(used.bytes_per_server):
            axes.barh(row, size / unit, _BAR, left=end, **bar_fill(server))
            end += size / unit
        axes.text(end + total / unit * 0.02, row, f"{used.max_over_mean:.2f}", va="center")
    for server in range(servers):
        axes.barh([0], [0], label=f"ps:{server}", **bar_fill(server))
    name_rows(axes, labels)
    axes.set_xlabel(f"{name}; beside: hottest over mean")
    axes.set_xlim(0, total / unit * 1.14)


def _draw_rates(
    axes: Axes, unit: str, shown: Sequence[PlacementPoint], labels: Sequence[str]
) -> None:
    """Launches and mean of every strategy on the row of its placement."""
    strategies = list(dict.fromkeys(item.point.setting.strategy for item in shown))
    right = max((rate for item in shown for rate in item.point.rates), default=1.0) * 1.3
    for index, strategy in enumerate(strategies):
        shift = (index - (len(strategies) - 1) / 2) * 0.3
        colour, marker = COLOURS[index], MARKERS[index]
        for item in (item for item in shown if item.point.setting.strategy == strategy):
            rates, y = item.point.rates, labels.index(_category(item)) + shift
            if len(item.point.unusable):
                draw_cross(axes, 0.0, y, colour)
            count_beside(axes, y, len(rates), item.point.planned)
            if rates.empty:
                what = "   no launch ended well"
                axes.text(0.0, y, what, color=FAINT, va="center", fontsize=7)
            else:
                row = Row(
                    y=y,
                    launches=[*rates],
                    ends=estimate(rates).ends,
                    colour=colour,
                    marker=marker,
                    starred=bool(item.point.mark),
                )
                draw_row(axes, row, (0.0, right))
        axes.plot([], [], marker, color=colour, label=strategy)
    name_rows(axes, labels)
    axes.set_xlabel(f"{unit}/s")
    axes.tick_params(axis="y", length=0, labelleft=False)
    axes.set_xlim(0, right)
