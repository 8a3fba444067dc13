"""Figures of a tuning: its race, and predicted rates beside those that were measured afterwards.

Which launches were made, and which setting was ahead, is decided in `experiments.tuning`; which
predictions count, and what is said of all together, in `analysis.predict`.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.metric import RATE
from analysis.figures.marks import LAUNCHES
from analysis.figures.style import (
    COLOURS,
    INK,
    LINES,
    MARKERS,
    PAPER,
    SIDE_COLOURS,
    finish_grid,
    legend_of_figure,
    logarithmic,
    name_figure,
    new_figure,
    style,
)


def plot_race(launches: pd.DataFrame, title: str, unit: str) -> Figure:
    """Small circles are launches; a marker stands where another setting takes the lead.

    Args:
        launches: a row each, in order; columns: side, node_minutes (of its side so far), rate (not
            a number where it did not end well), best_experiment_id and best_rate after it.
        unit: what is counted per second.
    """
    with style():
        figure, (axes,) = new_figure(1, 1, 4.0)
        for number, (side, made) in enumerate(launches.groupby("side", sort=False)):
            _draw(axes, str(side), made, number)
        axes.set_xlabel("node minutes of the side (hosts x minutes of launches)")
        axes.set_ylabel(RATE.unit.format(unit=unit))
        name_figure(figure, title)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.scatter([], [], s=6, facecolors="none", edgecolors=INK, label=LAUNCHES)
        legend_of_figure(figure, [axes], columns=2)
    return figure


def _draw(axes: Axes, side: str, made: pd.DataFrame, number: int) -> None:
    overtakes = made["best_experiment_id"] != made["best_experiment_id"].shift()
    overtakes.iloc[-1] = True
    axes.plot(
        made["node_minutes"],
        made["best_rate"].astype(float),
        color=COLOURS[number],
        linestyle=LINES[number],
        linewidth=1.2,
        drawstyle="steps-post",
        marker=MARKERS[number],
        markevery=[*overtakes.to_numpy().nonzero()[0]],
        markersize=6,
        markeredgecolor=PAPER,
        markeredgewidth=0.6,
        label=f"{side}: best so far",
        zorder=3,
    )
    axes.scatter(
        made["node_minutes"],
        made["rate"].astype(float),
        s=6,
        facecolors="none",
        edgecolors=COLOURS[number],
        linewidths=0.6,
        zorder=2,
    )


_HEIGHT = 3.6

_FORETOLD = "predicted examples/s", "measured / predicted; bars: 90 %"


def plot_foretold(points: pd.DataFrame, title: str) -> Figure:
    """Measured over predicted rates against predicted ones; bars are intervals.

    A side has its colour, and each setting its marker.

    Args:
        points: a row each; columns: further (times the calibrated workers), setting, side,
            predicted, low, high, measured, counts (hollow where not).
    """
    scales = sorted(set(points["further"]))
    with style():
        figure, grid = new_figure(1, len(scales), _HEIGHT, alike="all")
        for axes, scale in zip(grid, scales, strict=True):
            _draw_foretold(
                axes, points[points["further"] == scale], [*dict.fromkeys(points["setting"])]
            )
            axes.set_title(f"workers x {scale:g}", loc="left")
            logarithmic(axes.xaxis)
        name_figure(figure, title)
        finish_grid(figure, grid, len(scales), _FORETOLD)
    return figure


def _draw_foretold(axes: Axes, points: pd.DataFrame, settings: list[str]) -> None:
    axes.axhline(1.0, color=INK, linewidth=0.8)
    if not points["counts"].all():
        axes.scatter([], [], s=18, facecolors="none", edgecolors=INK, label="apart")
    for number, setting in enumerate(settings):
        own = points[points["setting"] == setting]
        if own.empty:
            continue
        predicted, colour = own["predicted"], SIDE_COLOURS[own["side"].iloc[0]]
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
                label=setting if counts == own["counts"].max() else None,
                zorder=3,
            )
