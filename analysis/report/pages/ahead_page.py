"""What more hosts would do: sliders over the closed form, and pictures that need no script.

Decides that a sweep which calibrates has this page, and what its pictures are.  What they show is
decided in `analysis.predict.sliders`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.data.blocks import SweepResults
from analysis.figures.save import DrawnFigure
from analysis.figures.style import (
    COLOURS,
    GRID,
    LINES,
    MARKERS,
    PAPER,
    legend_below,
    legend_of_figure,
    new_figure,
    style,
)
from analysis.predict.calibration import families, usable
from analysis.predict.calibration_file import NAME, CalibrationFile, save_calibration
from analysis.predict.predictions import FURTHEST, Teller
from analysis.predict.sliders import Sliders, efficiencies, fastest, servers_needed, sliders
from analysis.report.pages.page_parts import Page, PagePart
from analysis.wording import rate_text, workers_text
from ps_allreduce.errors import UserError

#: The sweep that is made for this.
CALIBRATE = "calibrate"

ANCHOR, TITLE = "ahead", "What more hosts would do"


def ahead_page(results: SweepResults) -> Page | None:
    """The page, whose figures are saved; None for other sweeps, and where nothing can be told.

    Raises:
        UserError: no permission, or no space left.
    """
    if results.name != CALIBRATE:
        return None
    try:
        known = families(usable(results.block.records))
    except UserError:  # too little was measured
        return None
    tellers = [Teller.of(each) for each in known if each.largest.strategy.synchronous]
    shown, folder = sliders(tellers), results.files.folder
    if shown is None:
        return None
    source = (
        f"{results.name}, {results.block.provenance.commit}, {results.block.records[-1].started_at}"
    )
    save_calibration(folder / NAME, CalibrationFile(source=source, settings=tuple(tellers)))
    return _page_of(shown, folder, results.name)


def _page_of(shown: Sliders, folder: Path, name: str) -> Page:
    """Sliders and pictures, which are saved in the folder."""
    part = PagePart(
        sentences=_sentences(shown),
        figures=[d.save(folder, name, ANCHOR) for d in _pictures(shown) if len(d.data)],
        sliders=json.dumps(shown.to_page(), separators=(",", ":")).replace("<", "\\u003c"),
    )
    return Page(anchor=ANCHOR, title=TITLE, parts=[part])


def _pictures(shown: Sliders) -> Iterator[DrawnFigure]:
    settings, at = [each.name for each in shown.settings], rate_text(shown.bits_per_s)
    cells = fastest(shown)
    # A setting that was measured with fewer workers ends the picture of all.
    least = FURTHEST * min(each.teller.calibrated for each in shown.settings)
    yield DrawnFigure(
        name="fastest",
        title="Which setting is fastest",
        caption=f"With the best number of servers, {shown.batch} {shown.unit} in a worker's step; "
        f"grey where intervals overlap. Beyond {least} workers nothing is said.",
        figure=_plot_fastest(cells, settings),
        data=cells,
    )
    needed = servers_needed(shown)
    yield DrawnFigure(
        name="servers-needed",
        title="Servers needed",
        caption=f"The fewest with 95 % of the rate with the best number, links of {at}. Hollow: "
        "bounds are compared, not rates.",
        figure=_plot_needed(needed, settings),
        data=needed,
    )
    shares = efficiencies(shown)
    yield DrawnFigure(
        name="efficiency-ahead",
        title="Efficiency",
        caption=f"Rate over workers times the rate of one that sends nothing, links of {at}. "
        f"Bands: 90 %. Thin lines: the bound, which bands may pass; beyond {FURTHEST} times the "
        "workers that were measured only that is said.",
        figure=_plot_efficiencies(shares),
        data=shares,
    )


def _sentences(shown: Sliders) -> list[str]:
    told = [
        "These are predictions from this sweep, each with its 90 % interval. make predict writes "
        "such ones down, and make check-predictions holds them against launches.",
        f"One worker on each host, servers beside workers; measured with up to "
        f"{workers_text(shown.calibrated)}. "
        f"{NAME} holds what was learned: make advise RESULTS={NAME} HOSTS=16 answers from "
        "it elsewhere.",
    ]
    if any(each.form.shares_cores for each in shown.settings):
        told.append(
            "These hosts are emulated on one machine and share its processors, also with more of "
            "them: where computation limits, hosts of your own may do better."
        )
    unknown: dict[str, list[str]] = {}
    for each in shown.settings:
        for text in each.teller.unknown:
            unknown.setdefault(text, []).append(each.name)
    if unknown:
        named = "; ".join(
            text if len(names) == len(shown.settings) else f"of {' and '.join(names)}, {text}"
            for text, names in unknown.items()
        )
        told.append(f"Not known: {named}.")
    return told


_HEIGHT = 3.2

_OPEN = "not clear: intervals overlap"


def _plot_fastest(cells: pd.DataFrame, settings: list[str]) -> Figure:
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
        patches = [Patch(color=colour) for colour in colours]
        legend_below(figure, dict(zip(names, patches, strict=True)))
    return figure


def _plot_needed(points: pd.DataFrame, settings: list[str]) -> Figure:
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


def _plot_efficiencies(points: pd.DataFrame) -> Figure:
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
