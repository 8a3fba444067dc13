"""Draw points as rows: launches, mean and interval along a horizontal line under a name.

Decides how a row looks, and the figure of rates or efficiencies whose rows are settings and whose
marks are numbers of workers.  Where there are one or two of these, it says more than lines through
them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.marks import (
    BOUND,
    STROKE,
    draw_cross,
    draw_launches,
    draw_star,
    note_signs,
    top_of,
)
from analysis.figures.style import (
    COLOURS,
    FAINT,
    IDEAL,
    INK,
    MARKERS,
    PAPER,
    legend_of_figure,
    name_figure,
    new_figure,
    style,
)
from analysis.stats.statistics import Ends
from analysis.wording import workers_text

#: Inches: of a mark with its launches, and of what is around all rows.
_ROW_HEIGHT, _AROUND = 0.19, 1.5

#: Between two settings, in rows.
_BETWEEN = 0.5


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
    draw_launches(axes, row.launches, [y] * len(row.launches), colour, shift=(0, 4))
    if mean is not None:
        inside, edge = (colour, PAPER) if row.filled else (PAPER, colour)
        axes.plot([mean], [y], row.marker, mfc=inside, mec=edge, zorder=3)
        if row.starred:
            draw_star(axes, mean, y, colour, shift=(6, -5))
    if low is None or high is None:
        return
    left, right = max(low, limits[0]), min(high, limits[1])
    axes.plot([left, right], [y, y], color=colour, linewidth=1.0, zorder=2)
    for end, seen, arrow in ((low, left, "<"), (high, right, ">")):
        mark = "|" if end == seen else arrow
        axes.plot([seen], [y], mark, color=colour, markersize=4, clip_on=False)


def count_beside(axes: Axes, y: float, ok: int, planned: int) -> None:
    """At the right of a row, launches that are ok, of those planned."""
    right = axes.get_yaxis_transform()
    told = f"{ok}/{planned}"
    axes.text(1.01, y, told, transform=right, va="center", fontsize=7, color=FAINT)


def name_rows(axes: Axes, names: Sequence[str], heights: Sequence[float] | None = None) -> None:
    """Names at the left, from the top; lines of a grid along the values only.

    Args:
        heights: of the rows; a distance of 1 between them where none are given.
    """
    heights = range(len(names)) if heights is None else heights
    axes.set_yticks(heights, names)
    axes.set_ylim(heights[-1] + 0.55, -0.6)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What the horizontal axis of a figure of settings tells.

    Attributes:
        ideals: its value under perfect scaling, by the number of workers.
        unclaimed: what stands where a point has launches and no value.
    """

    label: str
    ideals: Mapping[int, float]
    unclaimed: str = ""


def plot_settings(marks: pd.DataFrame, quantity: Quantity, title: str) -> Figure:
    """A row for each setting, on it a mark for each number of workers.

    Args:
        marks: see `marks_of`.
    """
    placed, names = _on_rows(marks)
    right = top_of(marks, 0.0, max(quantity.ideals.values(), default=0.0))
    with style():
        figure, (axes,) = new_figure(1, 1, _ROW_HEIGHT * (placed["y"].max() + 1) + _AROUND)
        name_figure(figure, title)
        for number, count in enumerate(sorted(placed["num_workers"].unique())):
            look = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
            axes.plot([], [], look[1], color=look[0], label=workers_text(int(count)))
            for mark in placed[placed["num_workers"] == count].itertuples():
                draw_mark(axes, mark, look, (0.0, right), quantity.unclaimed)
                count_beside(axes, mark.y, mark.ok, mark.planned)
        _draw_ideals(axes, quantity.ideals, right)
        axes.set_yticks([*names], [*names.values()])
        axes.set_ylim(placed["y"].max() + 0.6, -0.7)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", visible=True)
        axes.set_xlim(0, right)
        axes.set_xlabel(quantity.label)
        if marks["bound"].notna().any():
            axes.plot([], [], "|", color=INK, **STROKE, label=BOUND)
        note_signs(axes, marks)
        legend_of_figure(figure, [axes])
    return figure


def _on_rows(marks: pd.DataFrame) -> tuple[pd.DataFrame, dict[float, str]]:
    """Marks with their heights, those of a setting below each other; and names at their middles."""
    in_order = marks.assign(
        setting=pd.Categorical(marks["setting"], marks["setting"].unique(), ordered=True)
    ).sort_values(["setting", "num_workers"])
    begins = in_order["setting"] != in_order["setting"].shift()
    heights = np.where(begins, 1.0 + _BETWEEN, 1.0).cumsum()
    placed = in_order.assign(y=heights - heights[0])
    middles = placed.groupby("setting", observed=True)["y"].mean()
    return placed, {float(y): str(name) for name, y in middles.items()}


def _draw_ideals(axes: Axes, ideals: Mapping[int, float], right: float) -> None:
    """Where perfect scaling would be; numbers of workers above lines that differ."""
    at: dict[float, list[int]] = {}
    for count, ideal in ideals.items():
        at.setdefault(ideal, []).append(count)
    for ideal, counts in at.items():
        if ideal <= right:
            axes.axvline(ideal, color=IDEAL, linewidth=1.0, linestyle=(0, (1, 1)), zorder=1)
            told = f"{counts[0]} x single" if len(at) > 1 else "ideal"
            above = axes.get_xaxis_transform()
            axes.text(ideal, 1.0, told, transform=above, ha="center", color=FAINT, fontsize=7)


def draw_mark(
    axes: Axes,
    mark: Any,
    look: tuple[str, str],
    limits: tuple[float, float],
    unclaimed: str = "",
) -> None:
    """One mark in a colour and with a marker on the row `y`, or why there is none.

    Args:
        mark: a row of the table of marks, see `marks_of`.
        unclaimed: what stands where a point has launches and no value.
    """
    colour, marker = look
    low_to_high = (mark.mean, mark.low, mark.high)
    mean, low, high = (None if math.isnan(end) else end for end in low_to_high)
    row = Row(
        y=mark.y,
        launches=mark.launches or (),
        ends=(mean, low, high),
        colour=colour,
        marker=marker,
        starred=mark.starred,
    )
    draw_row(axes, row, limits)
    if limits[0] <= mark.bound <= limits[1]:
        axes.plot([mark.bound], [mark.y], "|", color=colour, **STROKE)
    if mark.failed:
        draw_cross(axes, limits[0], mark.y, colour)
    if mean is None:
        told = unclaimed if mark.ok else "no launch ended well"
        axes.text(limits[0], mark.y, f"   {told}", color=FAINT, va="center", fontsize=7)
