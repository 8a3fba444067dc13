"""Draw measured curves: every launch as a point, means with intervals, failures at the bottom.

Decides how figures look: colours that colour-blind readers can tell apart (Okabe and Ito, 2008),
markers and line styles that differ as well so that a figure reads in grey, legends outside the
axes.  What is drawn is decided in `plots`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from matplotlib.transforms import offset_copy

from analysis.stats.statistics import Comparison, Estimate
from ps_allreduce.record.files import write_atomically

#: Okabe and Ito's colours without yellow, which is lost on white paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "p", "<", ">")
LINES = ("-", "--", "-.", ":")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++", "ooo", "---")
IDEAL = "#8C8C8C"
FORMATS = ("png", "svg")

#: Thin and hollow, in the colour and with the marker of what it bounds.
_BOUND: dict[str, Any] = {
    "linestyle": (0, (5, 3)),
    "linewidth": 0.7,
    "markersize": 3.5,
    "markerfacecolor": "none",
    "markeredgewidth": 0.6,
    "zorder": 1.5,
}

#: Where a figure's legend can stand without covering axes.
Place = Literal["outside lower left", "outside lower center", "outside lower right"]

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "hatch.linewidth": 0.6,
    # The same records give the same bytes.
    "svg.hashsalt": "ps-allreduce",
}


def style() -> AbstractContextManager[None]:
    """Draw and save within this context."""
    return mpl.rc_context(_STYLE)


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


def new_figure(rows: int, columns: int, with_legends: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with a grid of equal axes, row by row, and room for legends below."""
    width = 6.2 if columns == 1 else 4.2 * columns
    height = (4.4 if with_legends else 3.3) * rows + (0.0 if with_legends else 1.2)
    return sized_figure(rows, columns, width, height)


def sized_figure(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with a grid of axes, row by row; inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    return figure, [axes for row in grid for axes in row]


def save_figure(figure: Figure, folder: Path, name: str) -> dict[str, Path]:
    """Write PNG (200 dots per inch) and SVG; returns the paths by format.

    Raises:
        UserError: no permission, or no space left.
    """
    paths = {kind: folder / f"{name}.{kind}" for kind in FORMATS}
    for kind, path in paths.items():
        write_atomically(path, render_figure(figure, kind))
    return paths


def render_figure(figure: Figure, kind: str) -> bytes:
    """The bytes of a figure as `png` or `svg`; the same figure always gives the same bytes."""
    stream = BytesIO()
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
    with style():
        figure.savefig(stream, format=kind, dpi=200, metadata=metadata)
    return stream.getvalue()


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
    found: Estimate | Comparison,
    row: float,
    colour: str,
    limits: tuple[float, float],
) -> None:
    """An interval along the horizontal axis; ends beyond the limits become arrows."""
    if found.low is None or found.high is None:
        return
    left, right = max(found.low, limits[0]), min(found.high, limits[1])
    axes.plot([left, right], [row, row], color=colour, linewidth=1.0, zorder=2)
    for end, seen, arrow in ((found.low, left, "<"), (found.high, right, ">")):
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


def legend_of_axes(axes: Axes) -> None:
    """A legend under the axis label, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(
            handles,
            labels,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.18),
            frameon=False,
            borderaxespad=0.0,
            handlelength=3.2,
        )


def legend_of_figure(
    figure: Figure, grid: Iterable[Axes], columns: int, place: Place = "outside lower center"
) -> None:
    """One legend below several axes, each label once."""
    entries: dict[str, Any] = {}
    for axes in grid:
        handles, labels = axes.get_legend_handles_labels()
        entries = dict(zip(labels, handles, strict=True)) | entries
    figure.legend(
        list(entries.values()),
        list(entries),
        loc=place,
        ncols=columns,
        frameon=False,
        handlelength=3.2,
    )


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
