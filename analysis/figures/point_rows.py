"""Draw points as rows: launches, mean and interval along a horizontal line under a name.

Decides how a row looks in every figure, and the figure of rates or efficiencies whose rows are
settings and whose marks are numbers of workers.  Where there are one or two of these, it says more
than lines through them.
"""

from __future__ import annotations

import math
import textwrap
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
    Sign,
    draw_cross,
    draw_launches,
    draw_star,
    note_signs,
    top_of,
)
from analysis.figures.style import (
    FAINT,
    IDEAL,
    INK,
    MARKERS,
    PAPER,
    SIDE_COLOURS,
    legend_of_figure,
    name_figure,
    new_figure,
    style,
)
from analysis.wording import workers_text

#: Inches: of a mark with its launches, and of what is around all rows.
_ROW_HEIGHT, _AROUND = 0.19, 1.5

#: Between two settings, in rows.
_BETWEEN = 0.5

#: Characters of a line of a name.
_LONG_NAME = 44


def draw_rows(
    axes: Axes,
    marks: pd.DataFrame,
    look: tuple[str, str],
    limits: tuple[float, float],
    *,
    counted: bool = True,
) -> None:
    """Launches, mean, interval and bound of every mark on its row, or why there is none.

    Where an interval goes beyond the limits stands an arrow.

    Args:
        marks: see `marks_of`, with the height of the row, `y`; those that are not `filled`, where
            there is this column, are hollow; `unclaimed`, where there is this column, is what
            stands where a point has launches and no value.
        look: colour and marker.
        counted: at the right of a row stand its launches that are ok, of those planned.
    """
    for mark in marks.itertuples():
        _draw_launches_and_mean(axes, mark, look)
        _draw_limits(axes, mark, look[0], limits)
        _say(axes, mark, limits[0], counted=counted)


def _draw_launches_and_mean(axes: Axes, mark: Any, look: tuple[str, str]) -> None:
    (colour, marker), launches = look, mark.launches or ()
    draw_launches(axes, launches, [mark.y] * len(launches), colour, shift=(0, 4))
    if math.isnan(mark.mean):
        return
    filled = getattr(mark, "filled", True)
    inside, edge = (colour, PAPER) if filled else (PAPER, colour)
    hollow = None if filled else Sign.HOLLOW
    axes.plot([mark.mean], [mark.y], marker, mfc=inside, mec=edge, zorder=3, label=hollow)
    if mark.starred:
        draw_star(axes, mark.mean, mark.y, colour, shift=(-6, -5))  # the bound is at the right


def _draw_limits(axes: Axes, mark: Any, colour: str, limits: tuple[float, float]) -> None:
    """The interval, the bound, and a cross where a launch should have been."""
    left, right = max(mark.low, limits[0]), min(mark.high, limits[1])
    if not math.isnan(mark.low):
        line: dict[str, Any] = {"linewidth": 1.0, "zorder": 2}
        axes.plot([left, right], [mark.y] * 2, color=colour, label=Sign.INTERVAL, **line)
        for end, seen, arrow in ((mark.low, left, "<"), (mark.high, right, ">")):
            look, sign = ("|", None) if end == seen else (arrow, Sign.ARROW)
            small: dict[str, Any] = {"color": colour, "markersize": 4, "clip_on": False}
            axes.plot([seen], [mark.y], look, **small, label=sign)
    if limits[0] <= mark.bound <= limits[1]:
        axes.plot([mark.bound], [mark.y], "|", color=colour, **STROKE)
    if mark.failed:
        draw_cross(axes, limits[0], mark.y, colour)


def _say(axes: Axes, mark: Any, left: float, *, counted: bool) -> None:
    """Why there is no mean, and how many launches there are."""
    if math.isnan(mark.mean):
        told = getattr(mark, "unclaimed", "") if mark.ok else "no launch ended well"
        axes.text(left, mark.y, f"   {told}", color=FAINT, va="center", fontsize=7)
    if counted:
        right, told = axes.get_yaxis_transform(), f"{mark.ok}/{mark.planned}"
        look: dict[str, Any] = {"va": "center", "fontsize": 7, "color": FAINT}
        axes.text(1.01, mark.y, told, transform=right, label=Sign.COUNTED, **look)


def finish_values(axes: Axes, marks: pd.DataFrame, limits: tuple[float, float], label: str) -> None:
    """The axis of values, and what the legend says of signs."""
    axes.set_xlim(limits)
    axes.set_xlabel(label)
    if marks["bound"].notna().any():
        axes.plot([], [], "|", color=INK, **STROKE, label=BOUND)
    beside = marks["starred"] & marks["mean"].notna()
    note_signs(axes, marks.assign(starred=beside))


def name_rows(axes: Axes, names: Sequence[str], heights: Sequence[float] = ()) -> None:
    """Names at the left, from the top; lines of a grid along the values only.

    Args:
        heights: of the rows; a distance of 1 between them where none are given.
    """
    heights = heights or range(len(names))
    axes.set_yticks(heights, [_in_lines(name) for name in names])
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        if label.get_text() != name:  # smaller, as rows stay as high
            label.set(fontsize=6, linespacing=0.9)
    axes.set_ylim(heights[-1] + 0.55, -0.6)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)


def _in_lines(name: str) -> str:
    """A long name takes more lines, so that values have room."""
    return "\n".join(textwrap.fill(line, _LONG_NAME) for line in name.splitlines())


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What the horizontal axis of a figure of settings tells.

    Attributes:
        ideals: its value under perfect scaling, by the number of workers.
        is_claimed: points that claim none are named, with the reason, and bases are left out.
    """

    label: str
    ideals: Mapping[int, float]
    is_claimed: bool = False


def plot_settings(marks: pd.DataFrame, quantity: Quantity, title: str) -> Figure:
    """A row for each setting, on it a mark for each number of workers, in the colour of its side.

    Args:
        marks: see `marks_of`.
    """
    placed, names = _on_rows(marks)
    right = top_of(marks, 0.0, max(quantity.ideals.values(), default=0.0))
    with style():
        figure, (axes,) = new_figure(1, 1, _ROW_HEIGHT * (placed["y"].max() + 1) + _AROUND)
        name_figure(figure, title)
        for number, count in enumerate(sorted(placed["num_workers"].unique())):
            marker = MARKERS[number % len(MARKERS)]
            of_size = placed[placed["num_workers"] == count]
            if of_size["launches"].notna().any():
                axes.plot([], [], marker, color=INK, label=workers_text(int(count)))
            for side, own in of_size.groupby("side"):
                look = SIDE_COLOURS[str(side)], marker
                draw_rows(axes, own, look, (0.0, right))
        _draw_ideals(axes, quantity, right)
        name_rows(axes, [*names.values()], [*names])
        axes.set_ylim(placed["y"].max() + 0.6, -0.7)
        finish_values(axes, marks, (0.0, right), quantity.label)
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


def _draw_ideals(axes: Axes, quantity: Quantity, right: float) -> None:
    """Where perfect scaling would be: for rates a line for each number of workers."""
    for ideal, count in {ideal: count for count, ideal in quantity.ideals.items()}.items():
        if ideal <= right:
            axes.axvline(ideal, color=IDEAL, linewidth=1.0, linestyle=(0, (1, 1)), zorder=1)
            told = "ideal" if quantity.is_claimed else f"{count} x single"
            above = axes.get_xaxis_transform()
            axes.text(ideal, 1.0, told, transform=above, ha="center", color=FAINT, fontsize=7)
