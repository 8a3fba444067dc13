"""Bars: where the time of a step goes, where the difference of two comes from, bytes per server.

One function per figure: a case in, a figure out, or None where a case has nothing to show.  Parts
of a step are costs, so their means over launches are arithmetic and add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.data.metric import RATE
from analysis.figures.marks import data_of, known, marks_of, note_stars, top_of
from analysis.figures.point_rows import draw_rows, finish_values, name_rows
from analysis.figures.style import (
    FAINT,
    GRID,
    INK,
    MARKERS,
    PAPER,
    SIDE_COLOURS,
    bar_fill,
    legend_of_figure,
    name_figure,
    new_figure,
    style,
)
from analysis.stats.causes import Explanation, StepPart, mean_parts, seen_explanations
from analysis.stats.explained_parts import Cause
from analysis.stats.points import PlacementPoint, placement_points
from analysis.wording import ratio, workers_text

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
        left.set_title("bytes; hottest over mean", loc="left")
        right.set_title(workers_text(workers), loc="left")
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
    axes.set_xlabel(name)
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


#: Parts and causes in the order of their fills; what is alike has one fill in both figures.
_FILLS = (
    (StepPart.ALONE, Cause.COMPUTE),
    (StepPart.EXCHANGE, Cause.EXCHANGE),
    (StepPart.INPUT, Cause.INPUT),
    (Cause.WORKER,),
    (StepPart.WAITING, Cause.IN_TURN),
    (Cause.HOT_SERVER,),
    (Cause.SLOW_LINK,),
    (StepPart.DISPATCH, Cause.DISPATCH),
    (StepPart.SLOWED, Cause.SLOWED),
    (StepPart.UPDATE, Cause.FOREIGN),
    (Cause.FEWER_WORKERS,),
    (StepPart.UNSEEN, Cause.UNSEEN),
    (Cause.LOST,),
    (Cause.HOT_ROWS,),
)

#: More pairs than this are not drawn; the table has them all.
MOST_PAIRS = 12


def plot_breakdown(case: Case) -> Figure | None:
    """Stacked parts of the mean step, a bar per point, grouped by workers."""
    shown = _measured(case)
    if len(shown) < 2:  # a bar alone says no more than its row of the table
        return None
    # From the top, with a gap where the number of workers changes.
    workers = pd.Series([point.num_workers for point in shown])
    positions = [0.0, *np.where(workers.diff()[1:] > 0, 1.6, 1.0).cumsum()]
    parts = pd.DataFrame([mean_parts(case, point) * 1e3 for point in shown])
    steps = [point.measured["mean_step_s"].astype(float) * 1e3 for point in shown]
    labels = [
        f"{point.setting.label} ({workers_text(point.num_workers)}) {point.mark}".rstrip()
        for point in shown
    ]
    with style():
        figure, (axes,) = new_figure(1, 1, 1.8 + 0.27 * (positions[-1] + 1))
        _draw_stacks(axes, parts, positions)
        _draw_totals(axes, steps, positions)
        note_stars(axes, [point.mark for point in shown])
        name_rows(axes, labels, positions)
        axes.set_xlabel("mean step time of a worker, ms")
        name_figure(figure, case.name)
        legend_of_figure(figure, [axes], columns=2)
    return figure


def _measured(case: Case) -> list[Point]:
    """The points whose raw timings were read, by workers."""
    measured = [point for point in case.points if len(point.measured)]
    return sorted(measured, key=lambda point: point.num_workers)


def breakdown_data(case: Case) -> pd.DataFrame:
    """Milliseconds of every part that is drawn, means over launches."""
    rows = [
        {"setting": point.setting.label, "num_workers": point.num_workers}
        | {f"{part} ms": value for part, value in (mean_parts(case, point) * 1e3).items()}
        for point in _measured(case)
    ]
    return pd.DataFrame(rows)


def _draw_stacks(axes: Axes, means: pd.DataFrame, positions: Sequence[float]) -> None:
    """Bars to the right for what is above 0, and to the left for what is below."""
    right, left = np.zeros(len(means)), np.zeros(len(means))
    for name in means.columns[means.abs().max() > 0.0]:
        values = means[name].fillna(0.0).to_numpy()
        begin = np.where(values >= 0.0, right, left)
        axes.barh(positions, values, _BAR, left=begin, label=str(name), **_fill(name))
        right, left = right + np.maximum(values, 0.0), left + np.minimum(values, 0.0)


def _fill(name: str) -> dict[str, Any]:
    """The same for a part in every figure."""
    return bar_fill(next(row for row, names in enumerate(_FILLS) if name in names))


def _draw_totals(axes: Axes, totals: Sequence[pd.Series], positions: Sequence[float]) -> None:
    """The step of every launch, so that the spread behind a bar can be seen."""
    heights = np.repeat(positions, [len(each) for each in totals]) + _BAR / 2
    axes.scatter(
        pd.concat(totals),
        heights,
        s=10,
        facecolors=PAPER,
        edgecolors=INK,
        linewidths=0.7,
        label="mean step of one launch",
        zorder=4,
    )


def plot_explanation(case: Case) -> Figure | None:
    """For every pair that differs, by how much each part of the slower one's step is longer."""
    shown = drawn_explanations(case)
    if not shown:
        return None
    rows = [{p.cause: p.seconds.mean * 1e3 for p in told.difference.parts} for told in shown]
    positions = [float(row) for row in range(len(shown))]
    with style():
        figure, (axes,) = new_figure(1, 1, 2.0 + 0.42 * len(shown))
        causes = pd.DataFrame(rows).reindex(columns=list(Cause)).fillna(0.0)
        _draw_stacks(axes, causes, positions)
        steps = [told.difference.step.mean * 1e3 for told in shown]
        axes.plot(steps, positions, "D", color=INK, mfc=PAPER, ms=5, label="difference")
        axes.axvline(0.0, color=INK, linewidth=0.8)
        axes.use_sticky_edges = False  # or the diamond of the longest bar is cut
        name_rows(axes, [_pair_label(told) for told in shown], positions)
        axes.set_xlabel("milliseconds of a mean step more than the other setting")
        name_figure(figure, case.name)
        legend_of_figure(figure, [axes], columns=2)
    return figure


def drawn_explanations(case: Case) -> list[Explanation]:
    """Those into whose steps somebody sees, at most `MOST_PAIRS`."""
    return seen_explanations(case)[:MOST_PAIRS]


def explanation_data(case: Case) -> pd.DataFrame:
    """Milliseconds that a part makes of each difference that is drawn, with intervals."""
    rows = [
        {
            "slower": told.slower.setting.label,
            "faster": told.faster.setting.label,
            "part": part.cause.value,
            "ms": part.seconds.mean * 1e3,
            "ms_low": known(part.interval[0]) * 1e3,
            "ms_high": known(part.interval[1]) * 1e3,
        }
        for told in drawn_explanations(case)
        for part in told.difference.parts
    ]
    return pd.DataFrame(rows)


def _pair_label(told: Explanation) -> str:
    slower, faster = told.slower.setting.label, told.faster.setting.label
    return f"{slower}\nbehind {faster} ({ratio(told.row.decision.ratio)}x)"
