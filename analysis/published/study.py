"""What is shown of a study from the literature, beside its published numbers.

Decides the form only.  What each study shows, and what sets it apart from the original, is decided
in its module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.figures.style import COLOURS, FAINT, LINES, MARKERS, PAPER
from analysis.stats.statistics import compare
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.weights import ScaledModel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StudyTable:
    """A table of text, under headings."""

    rows: pd.DataFrame
    title: str = ""
    caption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StudyFigure:
    """A figure, and what is drawn in it as a table.

    Attributes:
        name: of its files.
    """

    name: str
    title: str
    caption: str
    figure: Figure
    data: pd.DataFrame


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shown:
    """What a study shows of a sweep."""

    sentences: Sequence[str] = ()
    tables: Sequence[StudyTable] = ()
    figures: Sequence[StudyFigure] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStudy:
    """A published study, and how a sweep that repeats it is shown.

    Attributes:
        name: of the sweep.
        source: where the published numbers are from.
        differences: what sets the sweep apart from the original, a sentence each.
        show: all cases of the sweep together.
    """

    name: str
    source: str
    differences: tuple[str, ...]
    show: Callable[[Sequence[Case]], Shown]


def model_name(experiment: Experiment) -> str:
    """The model that was published, whatever it is scaled to."""
    model = experiment.workload.model
    return model.base if isinstance(model, ScaledModel) else model.name


def draw_launches(axes: Axes, xs: Sequence[float], ys: Sequence[float]) -> None:
    """Small circles."""
    axes.plot(xs, ys, "o", mfc="none", mec=FAINT, ms=3, mew=0.7)


def draw_speed_ups(axes: Axes, place: int, column: str, own: pd.DataFrame, label: str) -> None:
    """A curve with intervals and launches.

    Args:
        place: of the curve among others, for its marker, line and colour.
        column: of the numbers of workers or hosts.
        own: a row for each of them: `speed_up`, `low`, `high`, `launches`.
    """
    for count, launches in zip(own[column], own["launches"], strict=True):
        draw_launches(axes, [count] * len(launches), launches)
    low, high = own["speed_up"] - own["low"], own["high"] - own["speed_up"]
    axes.errorbar(
        own[column],
        own["speed_up"],
        yerr=[low.fillna(0.0), high.fillna(0.0)],
        fmt=MARKERS[place] + LINES[place % len(LINES)],
        color=COLOURS[place],
        mec=PAPER,
        ms=6,
        label=label,
    )


def rate_over(point: Point, base: Point) -> tuple[float, float, float]:
    """The rate of a point over that of another with its interval; not a number where unknown."""
    ratio, low, high = compare(point.rates, base.rates).ends
    return known(ratio), known(low), known(high)


def known(end: float | None) -> float:
    """A number for figures and tables; not a number where it is None."""
    return math.nan if end is None else end


def spaced(values: Sequence[float]) -> str:
    """Several values in one field of a CSV file."""
    return " ".join(f"{value:.6g}" for value in values)
