"""What more hosts would do, as pictures that need no script.

What they show is decided in `analysis.predict.sliders`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.figures.style import (
    COLOURS,
    GRID,
    LINES,
    MARKERS,
    PAPER,
    legend_of_figure,
    new_figure,
    style,
)
from analysis.wording import rate_text

_HEIGHT = 3.2

_OPEN = "not clear: intervals overlap"


def plot_fastest(cells: pd.DataFrame, settings: list[str]) -> Figure:
    """The fastest setting for each number of workers and rate of links, as coloured cells.

    Args:
        cells: columns: workers, bits_per_s, setting (empty where intervals overlap).
        settings: in the order of their colours.
    """
    grid = cells.pivot(index="bits_per_s", columns="workers", values="setting")
    numbers = grid.map(lambda name: [*settings, ""].index(name))
    names, colours = [*settings, _OPEN], [*COLOURS[: len(settings)], GRID]
    with style():
        figure, (axes,) = new_figure(1, 1, _HEIGHT)
        axes.pcolormesh(
            numbers.to_numpy(),
            cmap=ListedColormap(colours),
            vmin=-0.5,
            vmax=len(settings) + 0.5,
            edgecolors=PAPER,
            linewidth=1,
        )
        axes.set_xticks(np.arange(grid.shape[1]) + 0.5, [str(each) for each in grid.columns])
        axes.set_yticks(np.arange(grid.shape[0]) + 0.5, [rate_text(each) for each in grid.index])
        axes.grid(visible=False)
        axes.set_xlabel("workers, one on each host")
        axes.set_ylabel("links")
        patches = [Patch(color=c, label=n) for n, c in zip(names, colours, strict=True)]
        figure.legend(handles=patches, loc="outside lower center", ncols=2, frameon=False)
    return figure


def plot_servers_needed(points: pd.DataFrame, settings: list[str]) -> Figure:
    """Servers against workers, a line for each setting; hollow where bounds are compared.

    Args:
        points: columns: workers, setting, servers, is_bound.
        settings: in the order of their colours.
    """
    with style():
        figure, (axes,) = new_figure(1, 1, _HEIGHT)
        for name, own in points.groupby("setting", sort=False):
            number = settings.index(str(name))
            colour = COLOURS[number]
            axes.plot(own["workers"], own["servers"], LINES[number], color=colour, lw=1, label=name)
            for is_bound, some in own.groupby("is_bound"):
                fill = "none" if is_bound else colour
                axes.scatter(
                    some["workers"],
                    some["servers"],
                    s=18,
                    marker=MARKERS[number],
                    edgecolors=colour,
                    facecolors=fill,
                )
        _of_workers(axes)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_ylabel("servers beside them")
        legend_of_figure(figure, [axes])
    return figure


def plot_efficiencies(points: pd.DataFrame) -> Figure:
    """Efficiency against workers with 90 % intervals; only what is possible at most far out.

    Args:
        points: columns: workers, setting, efficiency, low, high, at_most.
    """
    with style():
        figure, (axes,) = new_figure(1, 1, _HEIGHT)
        for number, (name, own) in enumerate(points.groupby("setting", sort=False)):
            colour, line = COLOURS[number], LINES[number]
            axes.fill_between(
                own["workers"], own["low"], own["high"], color=colour, alpha=0.2, lw=0
            )
            axes.plot(own["workers"], own["efficiency"], line, color=colour, label=str(name))
            axes.plot(own["workers"], own["at_most"], line, color=colour, lw=0.7, alpha=0.7)
        _of_workers(axes)
        axes.set_ylim(0, None)
        axes.set_ylabel("efficiency")
        legend_of_figure(figure, [axes])
    return figure


def _of_workers(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("workers, one on each host")
