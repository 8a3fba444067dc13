"""What each setting of the exchange changes: a row for each.

One function per figure: a case in, a figure out, or None where a case has nothing to show.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.figures.curves import draw_row
from analysis.figures.style import COLOURS, IDEAL, MARKERS, style
from analysis.stats.points import launch_ratios
from analysis.stats.setting_pairs import Pair, changed_points, varies_exchange
from analysis.wording import workers_text

_WIDTH = 7.4
_ROW = 0.24
_AROUND = 0.75


def plot_exchange(case: Case) -> Figure | None:
    """Examples per second over those of the point that was changed, which has axes of its own."""
    if not varies_exchange(case):
        return None
    groups: dict[str, list[Pair]] = {}
    for item in changed_points(case):
        groups.setdefault(_title(item.second), []).append(item)
    heights = [len(items) * _ROW + _AROUND for items in groups.values()]
    limits = _limits([item for items in groups.values() for item in items])
    with style():
        # The case above all axes: with a long name a title would run off the edge.
        figure = Figure(figsize=(_WIDTH, sum(heights) + 0.8), layout="constrained")
        figure.suptitle(case.name, fontsize=9)
        grid = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights, sharex=True)
        for number, (title, items) in enumerate(groups.items()):
            axes = grid[number, 0]
            _draw(axes, items, number, limits)
            axes.set_title(title, loc="left")
        axes.set_xlim(limits)
        axes.set_xlabel(f"{case.unit}/s over those of the setting in the title (dotted line)")
    return figure


def _title(base: Point) -> str:
    return f"{base.setting.label}, {workers_text(base.num_workers)}"


def _limits(items: Sequence[Pair]) -> tuple[float, float]:
    """Around all launches and means; an interval that is longer ends in an arrow."""
    means = [item.comparison.ratio for item in items if item.comparison.ratio is not None]
    ratios = [1.0, *means, *(ratio for item in items for ratio in _ratios(item))]
    margin = 0.08 * (max(ratios) - min(ratios)) or 0.1
    return min(ratios) - margin, max(ratios) + margin


def _ratios(item: Pair) -> pd.Series:
    return launch_ratios(item.first.rates, item.second.rates)


def _draw(axes: Axes, items: Sequence[Pair], number: int, limits: tuple[float, float]) -> None:
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
    axes.axvline(1.0, color=IDEAL, linewidth=1.0, linestyle=(0, (1, 1)), zorder=1)
    for row, item in enumerate(items):
        draw_row(axes, [*_ratios(item)], item.comparison.ends, row, (colour, marker), limits)
        if item.comparison.ratio is None:
            what = "nothing to compare with" if len(item.first.rates) else "no launch ended well"
            axes.text(limits[0], row, f" {what}", color=colour, va="center", fontsize=7)
    axes.set_yticks(range(len(items)), [_row_label(item.first) for item in items])
    axes.set_ylim(len(items) - 0.4, -0.6)
    axes.grid(axis="x", visible=True)


def _row_label(point: Point) -> str:
    failed = f" ({len(point.unusable)} not ok)" if len(point.unusable) else ""
    return point.setting.exchange + failed
