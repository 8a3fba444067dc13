"""Draw measured curves: means with intervals beside launches and bounds, failures at the bottom.

Decides what of a point is drawn where, that a line breaks at a tick where it has no launch, and
that labels stand beside the ends of lines; which points are drawn is decided by the figures, and
how they look in `style`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from analysis.figures.marks import (
    BOUND,
    Sign,
    draw_cross,
    draw_launches,
    draw_star,
    draw_unclaimed,
    note_signs,
    worth_drawing,
)
from analysis.figures.style import COLOURS, INK, LINES, MARKERS, PAPER, SIDE_COLOURS

#: Least distance of two labels, as a share of the axis.
_LABEL_GAP = 0.055

#: A bound is a thin line with a stroke at each point, in the colour of what it bounds.
_BOUND: Mapping[str, Any] = {
    "marker": "_",
    "markersize": 8,
    "markeredgewidth": 1.4,
    "linewidth": 0.6,
    "zorder": 1.5,
}

#: Curves by their labels: a row for each point, see `marks_of`, at the position `x` of an axis.
#: One without launches and failures keeps its colour but is not drawn.
Curves = Mapping[str, pd.DataFrame]

#: Measured positions of the horizontal axis, from left to right, and how they are written.
Ticks = Mapping[float, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """Of a curve.

    Attributes:
        gaps: between its points, at ticks where it has none: its line breaks there.
        counted_at: height of counts of failed attempts, as a share of the axes.
    """

    colour: str
    marker: str
    line: str
    gaps: Sequence[float]
    counted_at: float


def curves_of(marks: pd.DataFrame, labels: Sequence[str] = ()) -> Curves:
    """The marks of every label, in their order.

    Args:
        labels: of all curves of a figure, whose axes give each the same look; else those found.
    """
    found = {str(label): curve for label, curve in marks.groupby("label", sort=False)}
    return {label: found.get(label, marks[:0]) for label in labels or found}


def coloured(marks: pd.DataFrame) -> pd.DataFrame:
    """Marks of all axes of a figure with the colour and marker of their curve, by labels.

    Of each side the first curve has the side's colour, which means nothing else; a label that
    several sides have has a colour of its own.
    """
    sides = marks.groupby("label", sort=False)["side"].unique()
    own = {side: SIDE_COLOURS[side] for side in marks["side"].unique()}
    free = cycle([colour for colour in COLOURS if colour not in own.values()])
    colours = {
        str(label): own.pop(those[0]) if len(those) == 1 and those[0] in own else next(free)
        for label, those in sides.items()
    }
    markers = marks["label"].map(_markers(colours))
    return marks.assign(colour=marks["label"].map(colours), marker=markers)


def _markers(colours: Mapping[str, str]) -> Mapping[str, str]:
    """By labels; curves of one colour have different ones, as long as there are enough."""
    markers: dict[str, str] = {}
    for index, (label, colour) in enumerate(colours.items()):
        taken = {markers[other] for other in markers if colours[other] == colour}
        start = index % len(MARKERS)
        turned = [*MARKERS[start:], *MARKERS[:start]]
        markers[label] = next((each for each in turned if each not in taken), turned[0])
    return markers


def draw_curves(axes: Axes, curves: Curves, ticks: Ticks, top: float) -> None:
    """Draw curves side by side around each tick, so that no interval hides another.

    Two ticks are not joined by lines.

    Args:
        top: largest value of the vertical axis, which begins at 0; intervals beyond it end in an
            arrow.
    """
    # Side by side within a third of the gap: close enough to be read as one position.
    positions = list(ticks)
    gap = float(np.diff(positions).min()) if len(ticks) > 1 else 1.0
    step = min(0.07, 0.34 / len(curves)) * gap
    drawn = [label for label, marks in curves.items() if worth_drawing(marks)]
    for index, (label, marks) in enumerate(curves.items()):
        if label in drawn:
            shift = (drawn.index(label) - (len(drawn) - 1) / 2) * step
            look = _Look(
                colour=_colour_of(marks, index),
                marker=_marker_of(marks, index),
                line=LINES[index % len(LINES)] if len(ticks) > 2 else "none",
                gaps=[each + shift for each in positions if _is_within(each, marks["x"])],
                counted_at=0.06 * (1 + drawn.index(label)),
            )
            _draw_curve(axes, (label, look), marks.assign(x=marks["x"] + shift), top)
    if len(drawn) > 1:
        axes.set_label(Sign.ABREAST)
    margin = max(0.3 * gap, 0.07 * (positions[-1] - positions[0]))
    axes.set_xlim(positions[0] - margin, positions[-1] + margin)
    axes.set_xticks(positions, list(ticks.values()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0, top)
    _note_signs(axes, curves)


def _is_within(position: float, measured: pd.Series) -> bool:
    """It lies between two measured positions, and is none."""
    inside = bool(measured.min() < position < measured.max())
    return inside and position not in measured.to_numpy()


def _colour_of(marks: pd.DataFrame, index: int) -> str:
    """That of marks which are `coloured`; of others by their place."""
    return str(marks["colour"].iloc[0]) if "colour" in marks else COLOURS[index % len(COLOURS)]


def _marker_of(marks: pd.DataFrame, index: int) -> str:
    return str(marks["marker"].iloc[0]) if "marker" in marks else MARKERS[index % len(MARKERS)]


def _draw_curve(axes: Axes, named: tuple[str, _Look], marks: pd.DataFrame, top: float) -> None:
    label, look = named
    line = pd.concat([marks[["x", "mean", "bound"]], pd.DataFrame({"x": look.gaps}, dtype=float)])
    line = line.sort_values("x")
    axes.plot(
        line["x"],
        line["mean"],
        color=look.colour,
        linestyle=look.line,
        linewidth=1.2,
        marker=look.marker,
        markersize=6,
        markeredgecolor=PAPER,
        markeredgewidth=0.6,
        label=label,
        zorder=3,
    )
    for mark in marks.sort_values("x").itertuples():
        _draw_mark(axes, mark, look, top)
    if marks["bound"].notna().any():
        joined = "none" if look.line == "none" else "-"
        axes.plot(line["x"], line["bound"], **_BOUND, linestyle=joined, color=look.colour)


def _draw_mark(axes: Axes, mark: Any, look: _Look, top: float) -> None:
    launches, x, colour = mark.launches or (), mark.x, look.colour
    draw_launches(axes, [x] * len(launches), launches, colour, shift=(-5, 0))
    if not math.isnan(mark.low):
        ends = [mark.low, min(mark.high, top)]
        axes.plot([x, x], ends, color=colour, linewidth=1.0, zorder=2, label=Sign.INTERVAL)
        ends = [mark.low] + ([mark.high] if mark.high <= top else [])
        axes.plot([x] * len(ends), ends, "_", color=colour, markersize=5, zorder=2)
        if mark.high > top:
            arrow: dict[str, Any] = {"color": colour, "markersize": 4, "clip_on": False}
            axes.plot([x], [top], "^", **arrow, label=Sign.ARROW)
    if mark.starred and math.isnan(mark.mean):
        draw_unclaimed(axes, x, colour)
    elif mark.starred:
        draw_star(axes, x, mark.mean, colour, shift=(5, -5))  # the bound is above
    if mark.failed:
        bottom = axes.get_xaxis_transform()
        draw_cross(axes, x, 0.025, colour, bottom)
        counted = f"{mark.ok}/{mark.planned}"
        small: dict[str, Any] = {"color": colour, "ha": "center", "fontsize": 7}
        axes.text(x, look.counted_at, counted, transform=bottom, label=Sign.COUNTED, **small)


def label_ends(axes: Axes, curves: Curves) -> None:
    """The name of every curve that reaches the right end, beside it and not in the legend."""
    bottom, top = axes.get_ylim()
    last = max(marks["x"].max() for marks in curves.values())
    ends: dict[str, float] = {}
    for label, marks in curves.items():
        measured = marks[(marks["x"] == last) & marks["mean"].notna()]
        if len(measured):
            ends[label] = min(float(measured["mean"].iloc[0]), top)
    for line in axes.get_lines():
        if line.get_label() in ends:
            line.set_label("_beside")
    heights = _apart(list(ends.values()), _LABEL_GAP * (top - bottom))
    for (label, end), height in zip(ends.items(), heights, strict=True):
        colour = _colour_of(curves[label], list(curves).index(label))
        right = axes.get_yaxis_transform()
        axes.plot([1.0, 1.03], [end, height], color=colour, lw=0.8, transform=right, clip_on=False)
        axes.text(1.04, height, label, transform=right, va="center", fontsize=8)


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """The same heights, moved up or down as little as it takes to stand a gap apart."""
    order = np.argsort(heights, kind="stable")
    steps = np.arange(len(heights)) * gap
    free = np.asarray(heights, dtype=float)[order] - steps
    # The nearest sequence that never falls, by pooling neighbours that do.
    pools: list[list[float]] = []
    for value in free:
        pools.append([value])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    moved = np.concatenate([np.full(len(pool), np.mean(pool)) for pool in pools] or [free]) + steps
    return [float(moved[list(order).index(index)]) for index in range(len(heights))]


def _note_signs(axes: Axes, curves: Curves) -> None:
    """Explain thin lines, circles, stars and crosses in the legend, if there are any."""
    marks = pd.concat(curves.values())
    if marks["bound"].notna().any():
        axes.plot([], [], **_BOUND, linestyle="-", color=INK, label=BOUND)
    note_signs(axes, marks)
