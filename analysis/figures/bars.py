"""Bars: bytes per parameter server beside their throughput.

A case in, a figure out, or None where a case has nothing to show.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case
from analysis.data.metric import RATE
from analysis.figures.marks import data_of, marks_of, top_of
from analysis.figures.rows import draw_rows, finish_values, name_rows
from analysis.figures.style import (
    FAINT,
    GRID,
    MARKERS,
    PAPER,
    SIDE_COLOURS,
    legend_of_figure,
    name_figure,
    new_figure,
    style,
)
from analysis.stats.points import PlacementPoint, placement_points
from analysis.wording import workers_text

_BAR = 0.68

#: Of the hottest server, and of others.
_LOADS = (FAINT, GRID)


def plot_placement(case: Case) -> Figure | None:
    """Bytes per server beside the throughput per policy, at the largest number of workers.

    The placement with the least bytes on its hottest server is at the top.
    """
    found = placement_points(case)
    if not found:
        return None
    workers = max(item.point.num_workers for item in found)
    shown = [item for item in found if item.point.num_workers == workers]
    shown.sort(key=lambda item: max(item.worst.bytes_per_server))
    labels = list(dict.fromkeys(_category(item) for item in shown))
    with style():
        figure, (left, right) = new_figure(1, 2, 1.9 + 0.36 * len(labels))
        _draw_loads(left, shown, labels)
        _draw_rates(right, RATE.unit_of(case), _marks(case, shown), labels)
        # Above both axes: a long name would run from the left one into the right one.
        name_figure(figure, case.name)
        left.set_title("bytes per server", loc="left")
        right.set_title(f"throughput, {workers_text(workers)}", loc="left")
        legend_of_figure(figure, [left, right])
    return figure


def _marks(case: Case, shown: Sequence[PlacementPoint]) -> pd.DataFrame:
    """The rates of points with their strategies and the labels of their rows."""
    order = [case.points.index(item.point) for item in shown]
    return (
        marks_of(case, "rate")
        .iloc[order]
        .assign(
            strategy=[item.point.setting.called for item in shown],
            label=[_category(item) for item in shown],
        )
    )


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
    """One bar per placement, the hottest server first, whose excess stands beside it."""
    total = max(sum(item.worst.bytes_per_server) for item in shown)
    unit, name = (1e6, "MB") if total >= 1e6 else (1e3, "kB")
    servers = max(len(item.worst.bytes_per_server) for item in shown)
    by_label = {_category(item): item for item in reversed(shown)}
    for row, label in enumerate(labels):
        used, end = by_label[label].worst, 0.0
        for rank, size in enumerate(sorted(used.bytes_per_server, reverse=True)):
            axes.barh(row, size / unit, _BAR, left=end, edgecolor=PAPER, color=_LOADS[min(rank, 1)])
            end += size / unit
        axes.text(end + total / unit * 0.02, row, f"{used.max_over_mean:.2f}", va="center")
    for number, told in enumerate(("hottest server", "other servers")[:servers]):
        axes.barh([0], [0], label=told, color=_LOADS[number])
    name_rows(axes, labels)
    axes.set_xlabel(f"{name}; beside: hottest over mean")
    axes.set_xlim(0, total / unit * 1.14)


def _draw_rates(axes: Axes, unit: str, marks: pd.DataFrame, labels: Sequence[str]) -> None:
    """Launches, mean and bound of every strategy on the row of its placement."""
    strategies, right = marks["strategy"].unique(), top_of(marks)
    for index, strategy in enumerate(strategies):
        shift = (index - (len(strategies) - 1) / 2) * 0.3
        own = marks[marks["strategy"] == strategy]
        look = SIDE_COLOURS[own["side"].iloc[0]], MARKERS[index]
        own = own.assign(y=[labels.index(label) + shift for label in own["label"]])
        draw_rows(axes, own, look, (0.0, right))
        axes.plot([], [], look[1], color=look[0], label=strategy)
    finish_values(axes, marks, (0.0, right), unit)
    name_rows(axes, labels)
    axes.tick_params(axis="y", length=0, labelleft=False)
