"""Draw measured curves: every launch as a circle, means with intervals, failures at the bottom.

Decides what of a point is drawn where; which points are drawn is decided by the figures, and how
they look in `style`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from matplotlib.transforms import offset_copy

from analysis.data.cases import Case
from analysis.figures.style import COLOURS, LINES, MARKERS
from analysis.stats.points import base_of, launch_ratios, point_table
from analysis.stats.statistics import Ends

#: Thin and hollow, in the colour and with the marker of what it bounds.
_BOUND: dict[str, Any] = {
    "linestyle": (0, (5, 3)),
    "linewidth": 0.7,
    "markersize": 3.5,
    "markerfacecolor": "none",
    "markeredgewidth": 0.6,
    "zorder": 1.5,
}

_STAR: dict[str, Any] = {
    "linestyle": "none",
    "marker": (6, 2, 0),
    "markersize": 6,
    "markeredgewidth": 0.8,
    "zorder": 4,
}

#: What a star says in a legend.
STARRED = "processors may have been the limit"

_CIRCLES: dict[str, Any] = {"s": 6, "facecolors": "none", "linewidths": 0.6, "zorder": 4}

#: Curves by their labels: a row for each point, see `marks_of`, at the position `x` of an axis.
#: One without launches and failures keeps its place and its colour but is not drawn.
Curves = Mapping[str, pd.DataFrame]


#: Measured positions of the horizontal axis, from left to right, and how they are written.
Ticks = Mapping[float, str]


def marks_of(case: Case, column: str) -> pd.DataFrame:
    """What is drawn of a column of the table of points, a row for each point.

    Columns: mean, low, high as in the table; launches, the same of single launches; bound, the same
    at the bound of the step; failed, attempts that did not end well; starred, as in the table.
    """
    points = point_table(case)
    what, _, base = column.partition("_")
    rivals = [base_of(case, point, base) if base else None for point in case.points]
    share = points["num_workers"] if what == "efficiency" else pd.Series(1.0, points.index)
    launches = [
        tuple((launch_ratios(point.rates, rival.rates) if rival else point.rates) / over)
        for point, rival, over in zip(case.points, rivals, share, strict=True)
    ]
    over = share * points[f"base_{base}"] if base else share
    known = points[column].notna()
    return pd.DataFrame(
        {
            "mean": points[column],
            "low": points[f"{column}_low"],
            "high": points[f"{column}_high"],
            "launches": pd.Series(launches, dtype=object).where(known, None),
            "bound": (points["rate_bound"] / over).where(known),
            "failed": points["failed"],
            "starred": known & (points[f"marks_{base}" if base else "marks"] != ""),
        }
    )


def curves_of(marks: pd.DataFrame) -> Curves:
    """The marks of every label, in their order."""
    return {str(label): curve for label, curve in marks.groupby("label", sort=False)}


def draw_curves(axes: Axes, curves: Curves, ticks: Ticks, top: float) -> None:
    """Draw curves side by side around each tick, so that no interval hides another.

    Args:
        top: largest value of the vertical axis, which begins at 0; intervals beyond it end in an
            arrow.
    """
    # Side by side within a third of the gap: close enough to be read as one position.
    positions = list(ticks)
    gap = float(np.diff(positions).min()) if len(ticks) > 1 else 1.0
    step = min(0.07, 0.34 / len(curves)) * gap
    for index, (label, marks) in enumerate(curves.items()):
        shift = (index - (len(curves) - 1) / 2) * step
        if worth_drawing(marks):
            _draw_curve(axes, label, marks.assign(x=marks["x"] + shift), index, top)
    axes.set_xlim(positions[0] - 0.3 * gap, positions[-1] + 0.3 * gap)
    axes.set_xticks(positions, list(ticks.values()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0, top)
    _note_signs(axes, curves)


def worth_drawing(marks: pd.DataFrame) -> bool:
    """There is a launch, or there should have been one."""
    return bool((marks["launches"].notna() | (marks["failed"] > 0)).any())


def _draw_curve(axes: Axes, label: str, marks: pd.DataFrame, index: int, top: float) -> None:
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    marks = marks.sort_values("x")
    means, bounds = marks.dropna(subset="mean"), marks.dropna(subset="bound")
    axes.plot(
        means["x"],
        means["mean"],
        color=colour,
        linestyle=LINES[index % len(LINES)],
        linewidth=1.2,
        marker=marker,
        markersize=6,
        markeredgecolor="white",
        markeredgewidth=0.6,
        label=label,
        zorder=3,
    )
    for mark in marks.itertuples():
        _draw_mark(axes, mark, colour, top)
    axes.plot(bounds["x"], bounds["bound"], **_BOUND, color=colour, marker=marker)


def _draw_mark(axes: Axes, mark: Any, colour: str, top: float) -> None:
    launches, x = mark.launches or (), mark.x
    _draw_launches(axes, [x] * len(launches), launches, colour, shift=(-5, 0))
    if not math.isnan(mark.low):
        axes.plot([x, x], [mark.low, min(mark.high, top)], color=colour, linewidth=1.0, zorder=2)
        ends = [mark.low] + ([mark.high] if mark.high <= top else [])
        axes.plot([x] * len(ends), ends, "_", color=colour, markersize=5, zorder=2)
        if mark.high > top:
            axes.plot([x], [top], marker="^", color=colour, markersize=4, clip_on=False)
    if mark.starred:
        _draw_star(axes, x, mark.mean, colour)
    if mark.failed:
        _draw_failures(axes, int(mark.failed), x, colour)


def _draw_launches(
    axes: Axes, x: Sequence[float], y: Sequence[float], colour: str, shift: tuple[int, int]
) -> None:
    """Small circles, shifted by some points to where the mean does not hide them."""
    figure = axes.get_figure(root=True)
    beside = offset_copy(axes.transData, figure, *shift, units="points")
    axes.scatter(x, y, edgecolors=colour, transform=beside, **_CIRCLES)


def _draw_star(axes: Axes, x: float, y: float, colour: str) -> None:
    """Above the mean and to its right, where circles and interval leave room."""
    figure = axes.get_figure(root=True)
    beside = offset_copy(axes.transData, figure, 5, 5, units="points")
    axes.plot([x], [y], **_STAR, color=colour, transform=beside)


def note_star(axes: Axes) -> None:
    """Explain stars in the legend."""
    axes.plot([], [], **_STAR, color="#444444", label=STARRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is drawn along a horizontal line.

    Attributes:
        y: where the line is.
        ends: the mean of the launches, or what else stands for them, and its interval.
        filled: the marker, or its outline only.
        starred: processors may have been the limit.
    """

    y: float
    launches: Sequence[float]
    ends: Ends
    colour: str
    marker: str
    filled: bool = True
    starred: bool = False


def draw_row(axes: Axes, row: Row, limits: tuple[float, float]) -> None:
    """Launches, mean and interval; where the interval goes beyond the limits stands an arrow."""
    (mean, low, high), y, colour = row.ends, row.y, row.colour
    _draw_launches(axes, row.launches, [y] * len(row.launches), colour, shift=(0, 4))
    if mean is not None:
        inside, edge = (colour, "white") if row.filled else ("white", colour)
        axes.plot([mean], [y], row.marker, mfc=inside, mec=edge, zorder=3)
        if row.starred:
            _draw_star(axes, mean, y, colour)
    if low is None or high is None:
        return
    left, right = max(low, limits[0]), min(high, limits[1])
    axes.plot([left, right], [y, y], color=colour, linewidth=1.0, zorder=2)
    for end, seen, arrow in ((low, left, "<"), (high, right, ">")):
        mark = "|" if end == seen else arrow
        axes.plot([seen], [y], mark, color=colour, markersize=4, clip_on=False)


def _draw_failures(axes: Axes, count: int, x: float, colour: str) -> None:
    """A cross on the bottom of the axes, with the number of attempts."""
    bottom = axes.get_xaxis_transform()
    axes.plot([x], [0.025], "x", color=colour, transform=bottom, markersize=6, markeredgewidth=1.6)
    axes.text(x, 0.055, str(count), color=colour, transform=bottom, ha="center", fontsize=7)


def top_of(marks: pd.DataFrame, at_least: float = 0.0, wanted: float = 0.0) -> float:
    """Where the vertical axis ends: above all launches, and above what is not much higher.

    With three launches an interval can be many times as long as the axis; it must not squash what
    was measured.

    Args:
        at_least: a value that is shown as launches are.
        wanted: a value that is shown as ends of intervals are, unless it is too high.
    """
    launches = marks["launches"].explode().astype(float)
    largest = pd.Series([at_least, launches.max(), marks["bound"].max()]).max()
    highest = pd.Series([largest, marks["high"].max(), wanted]).max()
    return float(min(highest * 1.05, largest * 1.3)) or 1.0


def _note_signs(axes: Axes, curves: Curves) -> None:
    """Explain thin lines, stars and crosses in the legend, if there are any."""
    marks = pd.concat(curves.values())
    if marks["bound"].notna().any():
        label = "bound by links and compute (same marker)"
        axes.plot([], [], **_BOUND, color="#444444", label=label)
    if marks["starred"].any():
        note_star(axes)
    if marks["failed"].any():
        label = "attempts not ok (count)"
        axes.plot([], [], "x", color="#444444", markeredgewidth=1.6, label=label)
