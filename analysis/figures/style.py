"""How figures look: colours, fonts, sizes and legends, and how they are saved.

Decides colours that colour-blind readers can tell apart (Okabe and Ito, 2008), markers and line
styles that differ as well so that a figure reads in grey, legends outside the axes, and a width at
which a figure can be read on a phone.  Ink, grid and paper are colours that a page may replace by
its own.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox, BboxBase

from ps_allreduce.point.sides import ALLREDUCE, HYBRID, PS_ASYNC, PS_SYNC
from ps_allreduce.record.files import write_atomically

INK, FAINT, GRID, PAPER = "#1b1b1b", "#707070", "#dddddd", "#ffffff"

#: What stands in a page for the colours that are not those of data, so that it may be dark.
IN_PAGE: Mapping[str, str] = {
    INK: "currentColor",
    FAINT: "var(--faint)",
    GRID: "var(--line)",
    PAPER: "var(--back)",
}

#: Okabe and Ito's colours without yellow, which is lost on white paper; the palest come last.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", INK, "#7f7f7f", "#e69f00", "#56b4e9")

#: Of settings that exchange nothing, and of those whose strategy is on no side.
NO_SIDE, OTHER_SIDE = "without exchange", "another exchange"

DRAWN_SIDES = (ALLREDUCE, PS_SYNC, PS_ASYNC, HYBRID)

#: Of a side the same in all figures of points; bars of parts have the others.
SIDE_COLOURS: Mapping[str, str] = {
    **{side.name: colour for side, colour in zip(DRAWN_SIDES, COLOURS, strict=False)},
    NO_SIDE: INK,
    OTHER_SIDE: COLOURS[5],
}
#: Of Tol's colours (2021) those that look like none of the sides.
_PART_COLOURS = ("#56b4e9", "#e69f00", "#7f7f7f", "#882255", "#ddcc77", INK)

MARKERS = ("o", "s", "^", "D", "v", "p", "<", ">")
LINES = ("-", "--", "-.", ":")
#: Straight lines only: dots and circles make a picture ten times as large, and slow to draw.
HATCHES = ("", "///", "|||", "xxx", "\\\\\\", "+++", "//||", "---")
IDEAL = "#8c8c8c"
FORMATS = ("png", "svg", "pdf")
#: Inches.  On a phone a point is then about a pixel.
WIDTH = 5.2

#: Dots per inch of a PNG, for whose texts places are found.
_DPI = 200

#: Of a PNG.  Higher levels take half as long again and make these files hardly smaller.
_COMPRESSION = 3

#: Characters that fit beside each other.
_LINE = 72

#: Lines are longer by so much than equal ones, since words are not cut.
_HALF_A_WORD = 6

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
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "hatch.linewidth": 0.6,
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
    ),
    # Users' models have names with whatever characters, which are no formulas.
    "text.parse_math": False,
    # Text stays text: it can be searched, copied and read aloud.
    "svg.fonttype": "none",
    # The same records give the same bytes.
    "svg.hashsalt": "ps-allreduce",
}

_NO_DATE: Mapping[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


#: Characters of a line of a legend: below all axes, and in the place of one of two.
_BELOW, _INSIDE = 65, 30

#: So many numbers stand below axes at most where more would touch each other.
_MOST_NUMBERS = 6

#: Inches of a line of a legend.
_LEGEND_LINE = 0.2

#: The widest legend, as a share of the figure.
_WIDEST = 0.98

_LEGEND: Mapping[str, Any] = {"frameon": False, "handlelength": 3.2}


def style() -> AbstractContextManager[None]:
    """Draw and save within this context."""
    return mpl.rc_context(_STYLE)


def logarithmic(*axes_of: XAxis | YAxis) -> None:
    """Scales with a tick at 1, 2 and 5 of every power of ten, in digits.

    Matplotlib writes powers as formulas, which are not parsed here.
    """
    for axis in axes_of:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())


def new_figure(
    rows: int,
    columns: int,
    height: float,
    *,
    alike: Literal["none", "row", "all"] = "none",
    heights: Sequence[float] | None = None,
) -> tuple[Figure, list[Axes]]:
    """A figure with a grid of axes, row by row.

    Args:
        height: of the whole, inches.
        alike: which axes share their vertical scale; those that do share the horizontal one.
        heights: of the rows, as shares; all the same where none are given.
    """
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    grid = figure.subplots(
        rows,
        columns,
        squeeze=False,
        sharex=alike != "none",
        sharey=alike,
        height_ratios=heights,
    )
    return figure, [axes for row in grid for axes in row]


def name_figure(figure: Figure, name: str) -> None:
    """Say above all axes what the figure is about, on as many lines as it takes."""
    figure.suptitle(_filled(name, _LINE), x=0.01, ha="left", fontsize=9)


def save_figure(figure: Figure, folder: Path, name: str) -> dict[str, Path]:
    """Write PNG, SVG and PDF; returns the paths by format.

    Raises:
        UserError: no permission, or no space left.
    """
    paths = {kind: folder / f"{name}.{kind}" for kind in FORMATS}
    for kind, path in paths.items():
        write_atomically(path, render_figure(figure, kind))
    return paths


def render_figure(figure: Figure, kind: str) -> bytes:
    """The bytes of a figure in one of `FORMATS`; the same plot always gives the same bytes."""
    stream = BytesIO()
    with style():
        _lay_out(figure)
        options: dict[str, Any] = {}
        if kind == "png":
            options["pil_kwargs"] = {"compress_level": _COMPRESSION}
        figure.savefig(stream, format=kind, dpi=_DPI, metadata=_NO_DATE[kind], **options)
    return stream.getvalue()


def _lay_out(figure: Figure) -> None:
    """Find the places of all parts once.

    A figure that is saved with an engine for them, even one that does nothing, is drawn twice.
    """
    engine = figure.get_layout_engine()
    if engine is not None:
        figure.set_dpi(_DPI)
        engine.execute(figure)
        for axes in figure.axes:
            _thin_out(axes)
        for lines in (2, 3):
            cut = cut_labels(figure)
            if not cut:
                break
            for label in cut:
                text = " ".join(label.get_text().split())
                label.set_text(_filled(text, len(text) // lines + _HALF_A_WORD))
            engine.execute(figure)
        figure.set_layout_engine(None)


def _thin_out(axes: Axes) -> None:
    """Leave numbers of the lower scale out until they stand apart, inside the figure."""
    for count in range(_MOST_NUMBERS, 1, -1):
        if not isinstance(axes.xaxis.get_major_locator(), MaxNLocator) or not touching(axes):
            return
        axes.xaxis.set_major_locator(MaxNLocator(count))


def touching(axes: Axes) -> bool:
    """Two numbers of its lower scale touch, or one reaches beyond the figure."""
    low, high = sorted(axes.get_xlim())
    shown = [
        label.get_window_extent()
        for label in axes.get_xticklabels()
        if label.get_text() and low <= label.get_position()[0] <= high
    ]
    places = sorted(shown, key=lambda each: each.x0)
    apart = [right.x0 - left.x1 >= left.height / 3 for left, right in pairwise(places)]
    edge = axes.get_figure(root=True)
    assert edge is not None
    room = edge.bbox
    return not all(apart) or any(each.x0 < room.x0 or each.x1 > room.x1 for each in places)


def _filled(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_on_hyphens=False)


def cut_labels(figure: Figure) -> list[Text]:
    """The names of figure, axes and scales that reach beyond the figure, or into others."""
    scales = [axis.label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    names = [*figure.texts, *scales]
    cut = [name for name in names if name.get_text() and _is_cut(name, figure.bbox)]
    upright = [axes.yaxis.label for axes in figure.axes if axes.get_ylabel()]
    cut += [one for one in upright if any(_overlap(one, other) for other in upright)]
    for axes in figure.axes:
        own, whole = axes.get_position(), figure.bbox
        beside = [at.x0 for each in figure.axes if _is_beside(at := each.get_position(), own)]
        room = Bbox.from_extents(whole.x0, whole.y0, whole.x1 * min(beside, default=1.0), whole.y1)
        titles = [
            each
            for each in axes.get_children()
            if isinstance(each, Text) and each not in axes.texts and each.get_text()
        ]
        cut += [title for title in titles if _is_cut(title, room)]
    return cut


def _overlap(one: Text, other: Text) -> bool:
    places = one.get_window_extent(), other.get_window_extent()
    return one is not other and places[0].overlaps(places[1])


def _is_beside(other: Bbox, own: Bbox) -> bool:
    """It stands in the same row, to the right."""
    return bool(other.x0 >= own.x1 and other.y0 < own.y1 and own.y0 < other.y1)


def _is_cut(text: Text, room: BboxBase) -> bool:
    own = text.get_window_extent()
    inside = room.x0 <= own.x0 <= own.x1 <= room.x1 and room.y0 <= own.y0 <= own.y1 <= room.y1
    return not inside


def legend_of_figure(figure: Figure, grid: Sequence[Axes], columns: int = 2) -> None:
    """One legend below all axes, each label once."""
    legend_below(figure, _entries(grid), columns)


def legend_below(figure: Figure, entries: Mapping[str, Any], columns: int = 2) -> None:
    """A legend below all axes, of marks by their labels; long labels take fewer columns."""
    for count in range(min(columns, len(entries)), 0, -1):
        legend = figure.legend(
            list(entries.values()),
            [_filled(label, _BELOW) for label in entries],
            loc="outside lower center",
            ncols=count,
            **_LEGEND,
        )
        if count == 1 or legend.get_window_extent().width <= _WIDEST * figure.bbox.width:
            more = math.ceil(len(entries) / count) - math.ceil(len(entries) / columns)
            figure.set_figheight(figure.get_figheight() + _LEGEND_LINE * more)
            return
        legend.remove()


def _entries(grid: Sequence[Axes]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for axes in grid:
        handles, labels = axes.get_legend_handles_labels()
        entries = dict(zip(labels, handles, strict=True)) | entries
    return entries


def finish_grid(figure: Figure, grid: Sequence[Axes], used: int, labels: tuple[str, str]) -> None:
    """Name the scales at the outer axes only, and explain all axes in one legend.

    The legend stands where axes are left over, else below.

    Args:
        used: how many axes show something.
        labels: of the horizontal and the vertical scale.
    """
    columns = sum(axes.get_position().y0 == grid[0].get_position().y0 for axes in grid)
    for number, axes in enumerate(grid[:used]):
        if number + columns >= used:
            axes.set_xlabel(labels[0])
            axes.tick_params(labelbottom=True)
        if number % columns == 0:
            axes.set_ylabel(labels[1])
    if used == len(grid):
        legend_of_figure(figure, grid)
        return
    entries = _entries(grid[:used])
    free, *others = grid[used:]
    free.set_axis_off()
    labels_inside = [_filled(label, _INSIDE) for label in entries]
    free.legend([*entries.values()], labels_inside, loc="center left", **_LEGEND)
    for axes in others:
        axes.remove()


def bar_fill(index: int) -> dict[str, Any]:
    """Colour and hatch of a segment: either tells it from its neighbours.

    Colours that come again have another hatch then.
    """
    colour = _PART_COLOURS[index % len(_PART_COLOURS)]
    hatch = HATCHES[(index + index // len(_PART_COLOURS)) % len(HATCHES)]
    return {
        "facecolor": colour,
        "edgecolor": PAPER if hatch else colour,
        "hatch": hatch,
        "linewidth": 0.6,
    }
