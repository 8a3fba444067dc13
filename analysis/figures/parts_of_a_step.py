"""Where the time of a step goes: compute, exposed communication, input wait.

One function per figure: a case in, a figure out, or None where a case has nothing to show.  The
parts are costs, so their means over launches are arithmetic and add up.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.figures.style import bar_fill, legend_of_figure, sized_figure, style
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
    shown = [point for point in case.points if len(point.launches)]
    if not shown:
        return None
    shown.sort(key=lambda point: point.num_workers)
    positions = _positions(shown)
    with style():
        figure, (axes,) = sized_figure(1, 1, 7.4, 1.4 + 0.3 * (positions[-1] + 1))
        _draw_parts(axes, shown, positions)
        _draw_totals(axes, shown, positions)
        axes.set_yticks(positions, [_bar_label(point) for point in shown])
        axes.set_ylim(positions[-1] + 0.6, -0.6)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", visible=True)
        axes.set_xlabel("mean step time of a worker, ms")
        axes.set_title(case.name, loc="left")
        legend_of_figure(figure, [axes], columns=2)
    return figure


def _bar_label(point: Point) -> str:
    return f"{point.setting.label} ({workers_text(point.num_workers)})"


def _positions(points: Sequence[Point]) -> list[float]:
    """Positions from the top, with a gap where the number of workers changes."""
    positions, previous = [0.0], points[0].num_workers
    for point in points[1:]:
        positions.append(positions[-1] + (1.0 if point.num_workers == previous else 1.6))
        previous = point.num_workers
    return positions


def _draw_parts(axes: Axes, points: Sequence[Point], positions: Sequence[float]) -> None:
    means = [point.launches[list(_PARTS)].astype(float).mean() * 1e3 for point in points]
    left = [0.0] * len(points)
    for index, (column, label) in enumerate(_PARTS.items()):
        widths = [mean[column] for mean in means]
        axes.barh(positions, widths, _BAR, left=left, label=label, **bar_fill(index))
        left = [start + width for start, width in zip(left, widths, strict=True)]


def _draw_totals(axes: Axes, points: Sequence[Point], positions: Sequence[float]) -> None:
    """The step time of every launch, so that the spread behind a bar can be seen."""
    spots = [
        (total * 1e3, position + _BAR / 2)
        for point, position in zip(points, positions, strict=True)
        for total in point.launches[list(_PARTS)].sum(axis="columns")
    ]
    axes.scatter(
        [x for x, _ in spots],
        [y for _, y in spots],
        s=10,
        facecolors="white",
        edgecolors="black",
        linewidths=0.7,
        label="single launches",
        zorder=4,
    )
