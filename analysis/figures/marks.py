"""What is drawn of a point: launches, mean, interval, bound, and how many launches are ok.

Decides what of a column of the table of points a figure shows, and the signs that all figures
share: those that a legend explains, and those of which captions tell where they are drawn.  The
same rows are the figure's data as CSV.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import offset_copy

from analysis.data.cases import Case, Point
from analysis.data.metric import RATE
from analysis.figures.style import DRAWN_SIDES, INK, NO_SIDE, OTHER_SIDE
from analysis.stats.points import base_of, launch_ratios, point_table
from analysis.stats.statistics import MIN_LAUNCHES
from ps_allreduce.point.strategies import AnyStrategy

#: What a star says in a legend.
STARRED = "processors may have been the limit"
FAILED = "attempts not ok"
LAUNCHES = "one launch each"
BOUND = "mean bound of links"


class Sign(StrEnum):
    """Labels of what is drawn and stands in no legend."""

    FEW = "_few launches"
    INTERVAL = "_interval"
    ARROW = "_arrow"
    HOLLOW = "_hollow"
    COUNTED = "_counted"
    UNCLAIMED = "_unclaimed"
    ABREAST = "_abreast"
    SILENT = "_silent"


_STAR: dict[str, Any] = {
    "linestyle": "none",
    "marker": (6, 2, 0),
    "markersize": 6,
    "markeredgewidth": 0.8,
    "zorder": 4,
}
_CROSS: dict[str, Any] = {
    "linestyle": "none",
    "marker": "x",
    "markersize": 6,
    "markeredgewidth": 1.6,
}
#: A bound is a stroke across the axis of the rates, in the colour of what it bounds.
STROKE: dict[str, Any] = {
    "linestyle": "none",
    "markersize": 9,
    "markeredgewidth": 1.6,
    "zorder": 1.5,
}
_CIRCLES: dict[str, Any] = {"s": 6, "facecolors": "none", "linewidths": 0.6, "zorder": 4}


def marks_of(case: Case, column: str) -> pd.DataFrame:
    """What is drawn of a column of the table of points, a row for each point.

    Columns: setting, side, num_workers, num_ps; mean, low, high as in the table; launches, those of
    single launches; bound, the same at the bound of the step; ok, planned, failed, numbers of
    launches and of attempts that did not end well; starred, as in the table.
    """
    points = point_table(case)
    what, _, base = column.partition("_")
    rivals = [base_of(case, point, base) if base else None for point in case.points]
    share = points["num_workers"] if what == "efficiency" else pd.Series(1.0, points.index)
    launches = [
        tuple((_over_each(point, rival) if rival else RATE.values(point)) / over)
        for point, rival, over in zip(case.points, rivals, share, strict=True)
    ]
    over = share * points[f"base_{base}"] if base else share
    known = points[column].notna()
    starred = points[f"marks_{base}" if base else "marks"] != ""
    return pd.DataFrame(
        {
            "setting": points["setting"],
            "side": [side_name(point.setting.traits) for point in case.points],
            "num_workers": points["num_workers"].astype(int),
            "num_ps": [point.experiment.num_ps for point in case.points],
            "mean": points[column],
            "low": points[f"{column}_low"],
            "high": points[f"{column}_high"],
            "launches": pd.Series(launches, dtype=object).where(known, None),
            "bound": (points["rate_bound"] / over).where(known),
            "ok": points["launches"].astype(int),
            "planned": points["planned"].astype(int),
            "failed": points["failed"].astype(int),
            "starred": starred,
        }
    )


def side_name(traits: type[AnyStrategy]) -> str:
    """TensorFlow as it ships stands with those that train alike."""
    if not traits.communicates():
        return NO_SIDE
    return next((own.name for own in DRAWN_SIDES if own.trains_like(traits)), OTHER_SIDE)


def _over_each(point: Point, base: Point) -> pd.Series:
    """Launches over those of each worker of a base."""
    return launch_ratios(RATE.gains(point), RATE.gains(base) / base.num_workers)


def data_of(marks: pd.DataFrame) -> pd.DataFrame:
    """Marks as the rows of a file: the launches of a point in one cell, with spaces."""
    told = marks["launches"].map(lambda each: " ".join(f"{value:.6g}" for value in each or ()))
    return marks.assign(launches=told)


def known(end: float | None) -> float:
    """A number for figures and tables; not a number where it is None."""
    return math.nan if end is None else end


def worth_drawing(marks: pd.DataFrame) -> bool:
    """There is a launch, or there should have been one."""
    return bool((marks["launches"].notna() | (marks["failed"] > 0)).any())


def top_of(marks: pd.DataFrame, at_least: float = 0.0, wanted: float = 0.0) -> float:
    """Where an axis of values ends: beyond all launches, and beyond what is not much higher.

    With three launches an interval can be many times as long as the axis; it must not squash what
    was measured.

    Args:
        at_least: a value that is shown as launches are.
        wanted: a value that is shown as ends of intervals are, unless it is too high.
    """
    launches = marks["launches"].explode().astype(float)
    largest = pd.Series([at_least, launches.max(), marks["bound"].max()]).max()
    highest = pd.Series([largest, marks["high"].max(), wanted]).max()
    return float(min(highest * 1.05, largest * 1.3)) or 1.0


def draw_launches(
    axes: Axes, x: Sequence[float], y: Sequence[float], colour: str, shift: tuple[int, int]
) -> None:
    """Small circles, shifted by some points to where the mean does not hide them."""
    figure = axes.get_figure(root=True)
    beside = offset_copy(axes.transData, figure, *shift, units="points")
    few = Sign.FEW if 0 < len(x) < MIN_LAUNCHES else None
    axes.scatter(x, y, edgecolors=colour, transform=beside, label=few, **_CIRCLES)


def draw_star(axes: Axes, x: float, y: float, colour: str, shift: tuple[int, int]) -> None:
    """Beside the mean, shifted by some points to where circles and interval leave room."""
    figure = axes.get_figure(root=True)
    beside = offset_copy(axes.transData, figure, *shift, units="points")
    axes.plot([x], [y], **_STAR, color=colour, transform=beside)


def draw_unclaimed(axes: Axes, x: float, colour: str) -> None:
    """A star at the bottom: launches went well and nothing is claimed of them."""
    bottom = axes.get_xaxis_transform()
    axes.plot([x], [0.03], **_STAR, color=colour, transform=bottom, label=Sign.UNCLAIMED)


def draw_cross(axes: Axes, x: float, y: float, colour: str, transform: Any = None) -> None:
    """Where a launch should have been."""
    where = {} if transform is None else {"transform": transform}
    axes.plot([x], [y], **_CROSS, color=colour, clip_on=False, zorder=4, **where)


def note_signs(axes: Axes, marks: pd.DataFrame) -> None:
    """Explain circles, stars and crosses in the legend, if there are any."""
    if marks["launches"].notna().any():
        axes.scatter([], [], edgecolors=INK, **_CIRCLES, label=LAUNCHES)
    note_stars(axes, marks["starred"])
    if (marks["failed"] > 0).any():
        axes.plot([], [], **_CROSS, color=INK, label=FAILED)


def note_stars(axes: Axes, starred: Iterable[object]) -> None:
    """Explain stars in the legend, if there is one."""
    if any(starred):
        axes.plot([], [], **_STAR, color=INK, label=STARRED)


def signs_of(figure: Figure) -> set[str]:
    """What is drawn: labels of legends, and each `Sign`."""
    return {str(artist.get_label()) for artist in figure.findobj()}


def signs_text(signs: set[str]) -> str:
    """What a caption says of the signs of points; nothing of what is not drawn."""
    told = []
    if signs & {LAUNCHES, Sign.INTERVAL}:
        intervals = " with 95 % intervals" * (Sign.INTERVAL in signs)
        some = ", from three launches on" * ({Sign.INTERVAL, Sign.FEW} <= signs)
        arrows = "; arrows: intervals that leave the axes" * (Sign.ARROW in signs)
        told.append(f"Markers: geometric means{intervals}{some}{arrows}.")
    told += [text for sign, text in _TOLD.items() if sign in signs]
    return " ".join(told)


_TOLD = {
    Sign.HOLLOW: "Hollow: not decided.",
    Sign.COUNTED: "Numbers such as 2/3: launches that are ok, of those planned.",
    Sign.UNCLAIMED: "A star at the bottom claims no efficiency.",
    Sign.ABREAST: "Points side by side belong to one tick.",
    Sign.SILENT: "Settings that exchange nothing stand in the table only.",
}
