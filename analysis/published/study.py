"""What is shown of a study from the literature, beside its published numbers.

Decides the form only.  What each study shows, and what sets it apart from the original, is decided
in its module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pandas as pd
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.stats.statistics import compare


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
