"""How figures look: colours, fonts, sizes and legends, and how they are saved.

Decides colours that colour-blind readers can tell apart (Okabe and Ito, 2008), markers and line
styles that differ as well so that a figure reads in grey, and legends outside the axes.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ps_allreduce.record.files import write_atomically

#: Okabe and Ito's colours without yellow, which is lost on white paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "p", "<", ">")
LINES = ("-", "--", "-.", ":")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++", "ooo", "---")
IDEAL = "#8C8C8C"
FORMATS = ("png", "svg")

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
    # Users' models have names with whatever characters, which are no formulas.
    "text.parse_math": False,
    # The same records give the same bytes.
    "svg.hashsalt": "ps-allreduce",
}


def style() -> AbstractContextManager[None]:
    """Draw and save within this context."""
    return mpl.rc_context(_STYLE)


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


def bar_fill(index: int) -> dict[str, Any]:
    """Colour and hatch of a segment: either tells it from its neighbours.

    Colours that come again have another hatch then.
    """
    colour = COLOURS[index % len(COLOURS)]
    hatch = HATCHES[(index + index // len(COLOURS)) % len(HATCHES)]
    return {
        "facecolor": colour,
        "edgecolor": "white" if hatch else colour,
        "hatch": hatch,
        "linewidth": 0.6,
    }
