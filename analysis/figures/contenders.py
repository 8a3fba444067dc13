"""The two settings that the verdict compares, and every setting at as many workers.

It answers what a sweep asks: a case in, a figure out, or None where nothing is compared.  Decides
the axis of the two, which nothing else that was measured may squash, and what stands below it.
Other numbers of workers, and what sends nothing, stand in other figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.data.metric import RATE
from analysis.figures.marks import data_of, marks_of, top_of
from analysis.figures.point_rows import draw_rows, finish_values, name_rows
from analysis.figures.style import (
    MARKERS,
    SIDE_COLOURS,
    legend_of_figure,
    name_figure,
    new_figure,
    style,
)
from analysis.stats.doubts import is_uneven
from analysis.stats.findings import headline_row
from analysis.stats.points import mean_rate
from analysis.wording import count_text, workers_text

#: Of the axis of the two: the least share that their intervals fill, and what is left at each end.
FILLED, _MARGIN = 1 / 3, 0.06

#: Half an axis around a single value, as a share of it.
_AROUND_ONE = 0.05

#: Inches: of the axes of the two, of a row below them, and of what is around all axes.
_PAIR, _ROW_HEIGHT, _AROUND = 0.8, 0.22, 2.5

#: Between settings that do not compute the same, in rows.
_BETWEEN = 0.7

#: Colour and marker of every side.
_LOOKS = {
    side: (colour, marker)
    for (side, colour), marker in zip(SIDE_COLOURS.items(), MARKERS, strict=False)
}

#: How thick and how pale the bars are.
_BAR, _PALE = 0.62, 0.2


def plot_contenders(case: Case) -> Figure | None:
    """What is compared on an axis that need not begin at 0; below it all settings, from 0.

    The fastest are at the top, and what is not ranked below; asynchronous settings stand apart.
    """
    if not _compared(case):
        return None
    marks = _marks(case)
    height = _ROW_HEIGHT * (marks["y"].max() + 1.3)
    with style():
        figure, (above, below) = new_figure(2, 1, _PAIR + height + _AROUND, heights=(_PAIR, height))
        name_figure(figure, case.name)
        _draw_pair(above, marks, RATE.unit_of(case))
        _draw_all(below, marks, RATE.unit_of(case))
        legend_of_figure(figure, [below])
    return figure


def contenders_data(case: Case) -> pd.DataFrame:
    """What is drawn, in the order of the rows."""
    return data_of(_marks(case).drop(columns=["y", "name"]))


def pair_axis(
    intervals: Sequence[tuple[float, float]], others: Sequence[float]
) -> tuple[float, float]:
    """Where an axis begins and ends of which intervals fill at least a third.

    Args:
        intervals: of what is compared; from the lowest end to the highest one they fill the axis.
            Where there are none, the other values do.
        others: values that are shown as far as there is room for them, the nearest first.
    """
    filling = [end for interval in intervals for end in interval] or [*others]
    low, high = min(filling), max(filling)
    if low == high:
        low, high = low * (1 - _AROUND_ONE), high * (1 + _AROUND_ONE)
    longest = (high - low) / FILLED * (1 - 2 * _MARGIN)
    for value in sorted(others, key=lambda each: max(low - each, each - high)):
        if max(high, value) - min(low, value) <= longest:
            low, high = min(low, value), max(high, value)
    margin = (high - low) * _MARGIN / (1 - 2 * _MARGIN)
    return low - margin, high + margin


def _compared(case: Case) -> tuple[Point, ...]:
    """The best of both sides; of one side alone, what leads and what it is told against."""
    row = headline_row(case)
    return () if row is None else row.points


def _marks(case: Case) -> pd.DataFrame:
    """The rates of what is compared and of all settings with as many workers, and their rows."""
    rows = pd.DataFrame(_rows(case), columns=["number", "y", "name", "compared"])
    marks = marks_of(case, "rate").iloc[rows["number"]].reset_index(drop=True)
    return marks.assign(**rows.drop(columns="number"))


def _rows(case: Case) -> Iterator[tuple[int, float, str, bool]]:
    """The position of a point in the case, its row and name, and whether it is compared."""
    compared = _compared(case)
    workers = {point.num_workers for point in compared}
    of_size = [point for point in case.points if point.num_workers in workers]
    shown = [point for point in of_size if point.setting.traits.communicates()]
    y, last = -1.0, True
    for point in sorted(shown, key=_order):
        synchronous = point.setting.traits.synchronous
        y, last = y + 1.0 + _BETWEEN * (synchronous is not last), synchronous
        name = point.setting.label
        name += f", {workers_text(point.num_workers)}" * (len(workers) > 1)
        name += ", not ranked" * is_uneven(point)
        yield case.points.index(point), y, name, point in compared


def _order(point: Point) -> tuple[bool, bool, float]:
    """What is not ranked comes last."""
    rate = mean_rate(point) if len(point.rates) else 0.0
    return not point.setting.traits.synchronous, is_uneven(point), -rate


def _draw_pair(axes: Axes, marks: pd.DataFrame, unit: str) -> None:
    pair = marks[marks["compared"]]
    launches = pair["launches"].explode().dropna().astype(float)
    # Launches fill the axis where they are too few for an interval.
    of_point = launches.groupby(level=0)
    known = pair.fillna({"low": of_point.min(), "high": of_point.max()})
    ends = known[["low", "high"]].dropna().itertuples(index=False, name=None)
    limits = pair_axis([*ends], [*launches, *pair["bound"].dropna()])
    for side, own in pair.assign(y=range(len(pair))).groupby("side"):
        draw_rows(axes, own, _LOOKS[str(side)], limits, counted=False)
    named = zip(pair["name"], pair["ok"], strict=True)
    name_rows(axes, [f"{name}\n{count_text(count, 'launch')}" for name, count in named])
    axes.set_xlim(limits)
    axes.set_title("compared", loc="left")
    axes.set_xlabel(unit + "; this axis does not begin at 0" * (limits[0] > 0))


def _draw_all(axes: Axes, marks: pd.DataFrame, unit: str) -> None:
    right = top_of(marks)
    for side, own in marks.groupby("side", sort=False):
        colour, marker = _LOOKS[str(side)]
        axes.barh(own["y"], own["mean"], _BAR, color=colour, alpha=_PALE, zorder=1)
        axes.plot([], [], marker, color=colour, label=side)
        draw_rows(axes, own, (colour, marker), (0.0, right))
    name_rows(axes, marks["name"].tolist(), marks["y"].tolist())
    finish_values(axes, marks, (0.0, right), unit)
    counts = sorted({int(count) for count in marks["num_workers"]})
    workers = workers_text(counts[-1])
    smaller = "".join(f"{count} or " for count in counts[:-1])
    axes.set_title(f"all that send, {smaller}{workers}", loc="left")
