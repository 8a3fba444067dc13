"""Predicted rates beside measured ones: a panel for each scale, a mark for each point.

Which points count, and what is said of all together, is decided in `analysis.predict`.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.style import (
    COLOURS,
    INK,
    MARKERS,
    finish_grid,
    legend_of_figure,
    name_figure,
    new_figure,
    style,
)

_HEIGHT = 3.6


def plot_foretold(points: pd.DataFrame, title: str) -> Figure:
    """Measured over predicted rates against predicted ones; bars are intervals.

    Args:
        points: a row each; columns: further (times the calibrated workers), setting, predicted,
            low, high, measured, counts (hollow where not).
    """
    scales = sorted(set(points["further"]))
    with style():
        figure, grid = new_figure(1, len(scales), _HEIGHT, alike="all")
        for axes, scale in zip(grid, scales, strict=True):
            _draw(axes, points[points["further"] == scale], [*dict.fromkeys(points["setting"])])
            axes.set_title(f"{scale:g} times the calibrated workers", loc="left")
            axes.set_xscale("log")
        name_figure(figure, title)
        finish_grid(figure, grid, len(scales), ("predicted examples/s", "measured / predicted"))
        legend_of_figure(figure, grid)
    return figure


def _draw(axes: Axes, points: pd.DataFrame, settings: list[str]) -> None:
    axes.axhline(1.0, color=INK, linewidth=0.8)
    for number, setting in enumerate(settings):
        own = points[points["setting"] == setting]
        predicted, colour = own["predicted"], COLOURS[number]
        axes.vlines(
            predicted, own["low"] / predicted, own["high"] / predicted, color=colour, lw=0.8
        )
        for counts, some in own.groupby("counts"):
            axes.scatter(
                some["predicted"],
                some["measured"] / some["predicted"],
                s=18,
                marker=MARKERS[number],
                facecolors=colour if counts else "none",
                edgecolors=colour,
                linewidths=0.8,
                label=setting if counts else None,
                zorder=3,
            )
