"""Draw measured curves: every launch as a circle, means with intervals, failures at the bottom.

Decides what of a point is drawn where; which points are drawn is decided by the figures, and how
they look in `style`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from matplotlib.transforms import offset_copy

from analysis.figures.style import COLOURS, LINES, MARKERS

#: Thin and hollow, in the colour and with the marker of what it bounds.
_BOUND: dict[str, Any] = {
    "linestyle": (0, (5, 3)),
    "linewidth": 0.7,
    "markersize": 3.5,
    "markerfacecolor": "none",
    "markeredgewidth": 0.6,
    "zorder": 1.5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What is drawn at one position of a curve.

    Attributes:
        x: position on the axis, among the axis' ticks.
        launches: single values.
        mean, low, high: geometric mean and interval, None where there is none.
        failed: attempts that did not end well.
        bound: what cannot be surpassed; None where there is no such bound.
    """

    x: float
    launches: tuple[float, ...] = ()
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    failed: int = 0
    bound: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One entry of a legend; without marks it keeps its place and its colour but is not drawn."""

    label: str
    marks: tuple[Mark, ...]

    @property
    def is_empty(self) -> bool:
        """There is nothing to draw, not even a failure."""
        return not any(mark.launches or mark.failed for mark in self.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """The measured positions of the horizontal axis, and how they are written."""

    positions: tuple[float, ...]
    labels: tuple[str, ...]
    axis_label: str

    @property
    def gap(self) -> float:
        """The smallest distance of neighbours."""
        pairs = zip(self.positions, self.positions[1:], strict=False)
        return min((right - left for left, right in pairs), default=1.0)


def draw_curves(axes: Axes, curves: Sequence[Curve], ticks: Ticks, top: float) -> None:
    """Draw curves side by side around each tick, so that no interval hides another.

    Args:
        top: largest value of the vertical axis, which begins at 0; intervals beyond it end in an
            arrow.
    """
    # Side by side within a third of the gap: close enough to be read as one position.
    step = min(0.07, 0.34 / max(len(curves), 1)) * ticks.gap
    for index, curve in enumerate(curves):
        if curve.is_empty:
            continue
        _draw_curve(axes, curve, index, (index - (len(curves) - 1) / 2) * step, top)
    margin = 0.3 * ticks.gap
    axes.set_xlim(ticks.positions[0] - margin, ticks.positions[-1] + margin)
    axes.set_xticks(ticks.positions, ticks.labels)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(ticks.axis_label)
    axes.set_ylim(0, top)


def _draw_curve(axes: Axes, curve: Curve, index: int, shift: float, top: float) -> None:
    colour = COLOURS[index % len(COLOURS)]
    marker = MARKERS[index % len(MARKERS)]
    marks = sorted(curve.marks, key=lambda mark: mark.x)
    means = [(mark.x + shift, mark.mean) for mark in marks if mark.mean is not None]
    axes.plot(
        [x for x, _ in means],
        [mean for _, mean in means],
        color=colour,
        linestyle=LINES[index % len(LINES)],
        linewidth=1.2,
        marker=marker,
        markersize=6,
        markeredgecolor="white",
        markeredgewidth=0.6,
        label=curve.label,
        zorder=3,
    )
    for mark in curve.marks:
        _draw_mark(axes, mark, mark.x + shift, colour, top)
    bounds = [(mark.x + shift, mark.bound) for mark in marks if mark.bound is not None]
    axes.plot(
        [x for x, _ in bounds],
        [bound for _, bound in bounds],
        **_BOUND,
        color=colour,
        marker=marker,
    )


def _draw_mark(axes: Axes, mark: Mark, x: float, colour: str, top: float) -> None:
    # Launches stand a little to the left, where the mean does not hide them.
    beside = offset_copy(axes.transData, fig=axes.get_figure(root=True), x=-5, units="points")
    axes.scatter(
        [x] * len(mark.launches),
        mark.launches,
        s=6,
        facecolors="none",
        edgecolors=colour,
        linewidths=0.6,
        zorder=4,
        transform=beside,
    )
    if mark.low is not None and mark.high is not None:
        axes.plot([x, x], [mark.low, min(mark.high, top)], color=colour, linewidth=1.0, zorder=2)
        ends = [mark.low] + ([mark.high] if mark.high <= top else [])
        axes.plot([x] * len(ends), ends, "_", color=colour, markersize=5, zorder=2)
        if mark.high > top:
            axes.plot([x], [top], marker="^", color=colour, markersize=4, clip_on=False)
    if mark.failed:
        _draw_failures(axes, mark.failed, x, colour)


def draw_interval(
    axes: Axes,
    ends: tuple[float | None, float | None],
    row: float,
    colour: str,
    limits: tuple[float, float],
) -> None:
    """An interval along the horizontal axis; ends beyond the limits become arrows."""
    low, high = ends
    if low is None or high is None:
        return
    left, right = max(low, limits[0]), min(high, limits[1])
    axes.plot([left, right], [row, row], color=colour, linewidth=1.0, zorder=2)
    for end, seen, arrow in ((low, left, "<"), (high, right, ">")):
        mark = "|" if end == seen else arrow
        axes.plot([seen], [row], mark, color=colour, markersize=4, clip_on=False)


def _draw_failures(axes: Axes, count: int, x: float, colour: str) -> None:
    """A cross on the bottom of the axes, with the number of attempts."""
    bottom = axes.get_xaxis_transform()
    axes.plot([x], [0.025], "x", color=colour, transform=bottom, markersize=6, markeredgewidth=1.6)
    axes.text(x, 0.055, str(count), color=colour, transform=bottom, ha="center", fontsize=7)


def top_of(curves: Sequence[Curve], at_least: float = 0.0) -> float:
    """Where the vertical axis ends: above all launches, and above intervals that are not huge.

    With three launches an interval can be many times as long as the axis; it must not squash what
    was measured.
    """
    marks = [mark for curve in curves for mark in curve.marks]
    bounds = [mark.bound for mark in marks if mark.bound is not None]
    largest = max([at_least, *bounds, *(value for mark in marks for value in mark.launches)])
    highest = max([largest, *(mark.high for mark in marks if mark.high is not None)])
    return min(highest * 1.05, largest * 1.3) or 1.0


def note_bounds(axes: Axes, curves: Sequence[Curve]) -> None:
    """Explain the thin lines in the legend, if there are any."""
    if any(mark.bound is not None for curve in curves for mark in curve.marks):
        label = "bound by links and compute (same marker)"
        axes.plot([], [], **_BOUND, color="#444444", label=label)


def note_failures(axes: Axes, curves: Sequence[Curve]) -> None:
    """Explain the crosses in the legend, if there are any."""
    if any(mark.failed for curve in curves for mark in curve.marks):
        label = "attempts not ok (count)"
        axes.plot([], [], "x", color="#444444", markeredgewidth=1.6, label=label)
