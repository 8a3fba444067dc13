"""The settings of one side at the most workers, fastest first.

It answers what a sweep of parameter servers or of all-reduce alone asks: a case in, a figure out,
or None where both sides were measured.  Other numbers of workers, and what sends nothing, stand in
other figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.figures.marks import BOUND, STROKE, data_of, draw_cross, marks_of, note_signs, top_of
from analysis.figures.rows import Row, count_beside, draw_row
from analysis.figures.style import (
    COLOURS,
    INK,
    MARKERS,
    legend_of_figure,
    name_figure,
    new_figure,
    style,
)
from analysis.stats.decisions import decisions
from analysis.stats.statistics import estimate
from analysis.wording import workers_text

#: Inches: of a row, and of what is around all rows.
_ROW_HEIGHT, _AROUND = 0.22, 1.5

#: Between settings that do not compute the same, in rows.
_BETWEEN = 0.7


def plot_contenders(case: Case) -> Figure | None:
    """A row for each setting, the fastest at the top; asynchronous settings stand apart, below."""
    if not decisions(case).contenders:
        return None
    marks = _marks(case)
    right = top_of(marks)
    with style():
        figure, (axes,) = new_figure(1, 1, _ROW_HEIGHT * (marks["y"].max() + 1) + _AROUND)
        name_figure(figure, case.name)
        for number, (training, own) in enumerate(marks.groupby("training", sort=False)):
            look = COLOURS[number], MARKERS[number]
            axes.plot([], [], look[1], color=look[0], label=training)
            for mark in own.itertuples():
                _draw_mark(axes, mark, look, right)
        axes.set_yticks(marks["y"], marks["name"])
        axes.set_ylim(marks["y"].max() + 0.6, -0.7)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", visible=True)
        axes.set_xlim(0, right)
        axes.set_xlabel(f"{case.unit}/s at {workers_text(int(marks['num_workers'].iloc[0]))}")
        if marks["bound"].notna().any():
            axes.plot([], [], "|", color=INK, **STROKE, label=BOUND)
        note_signs(axes, marks)
        legend_of_figure(figure, [axes])
    return figure


def contenders_data(case: Case) -> pd.DataFrame:
    """What is drawn, in the order of the rows."""
    return data_of(_marks(case).drop(columns=["y", "name"]))


def _marks(case: Case) -> pd.DataFrame:
    """The rates of all contenders with the heights and names of their rows."""
    rows = pd.DataFrame(_rows(case), columns=["number", "y", "name", "training"])
    marks = marks_of(case, "rate").iloc[rows["number"]].reset_index(drop=True)
    return marks.assign(**rows.drop(columns="number"))


def _rows(case: Case) -> Iterator[tuple[int, float, str, str]]:
    """The position of a point in the case, and its row."""
    y = 0.0
    for alone in decisions(case).contenders:
        default = alone.default_of(alone.best)
        training = "synchronous" if alone.best.setting.traits.synchronous else "asynchronous"
        for point in sorted(alone.points, key=_slowness):
            name = point.setting.label + " (default)" * (point is default)
            yield case.points.index(point), y, name, training
            y += 1.0
        y += _BETWEEN


def _slowness(point: Point) -> float:
    return -estimate(point.rates).mean


def _draw_mark(axes: Axes, mark: Any, look: tuple[str, str], right: float) -> None:
    mean, low, high = (None if math.isnan(x) else x for x in (mark.mean, mark.low, mark.high))
    row = Row(
        y=mark.y,
        launches=mark.launches,
        ends=(mean, low, high),
        colour=look[0],
        marker=look[1],
        starred=mark.starred,
    )
    draw_row(axes, row, (0.0, right))
    if not math.isnan(mark.bound):
        axes.plot([mark.bound], [mark.y], "|", color=look[0], **STROKE)
    if mark.failed:
        draw_cross(axes, 0.0, mark.y, look[0])
    count_beside(axes, mark.y, mark.ok, mark.planned)
