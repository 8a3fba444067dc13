"""What is shown of a study, in some beside numbers that were published.

Decides the form only: what launches are compared with, and how curves stand in panels.  What each
study shows is decided in its module; what is said of it stands in `studies.toml`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.figures.curves import Curves, Ticks, draw_curves
from analysis.figures.marks import known, signs_of, signs_text, top_of
from analysis.figures.save import DrawnFigure
from analysis.figures.style import finish_grid, name_figure, new_figure, style
from analysis.stats.statistics import compare, estimate
from analysis.wording import TextTable, with_interval
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.weights import ScaledModel

#: The profile in which studies have their small form.
SMALL_FORM = "quick"

_TEXTS = Path(__file__).with_name("studies.toml")

#: Holds published numbers.
PUBLISHED = Path(__file__).resolve().parents[1] / "published"

#: Inches: around panels, and of each row of them.
_AROUND, _PANEL = 1.0, 2.6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shown:
    """What a study shows of a sweep."""

    sentences: Sequence[str] = ()
    tables: Sequence[TextTable] = ()
    figures: Sequence[DrawnFigure] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStudy:
    """A study that shows something of its own, of a published original or of the suite.

    Attributes:
        name: of the sweep.
        source: of the original, or of what is measured.
        differences: what sets the sweep apart from the original, a sentence each.
        small_form: what does so in the small form of the study, besides.
        show: all cases of the sweep together.
    """

    name: str
    source: str
    differences: tuple[str, ...]
    small_form: tuple[str, ...]
    show: Callable[[Sequence[Case]], Shown]


@dataclass(frozen=True, slots=True)
class StudyTexts:
    """What is said of a study, by what it is said of (a part of `studies.toml`)."""

    said: Mapping[str, Any]

    def table(self, name: str, rows: pd.DataFrame, *, more: str = "", **changes: str) -> TextTable:
        """A table under its title and caption.

        Args:
            more: what the caption says of these rows besides.
        """
        said = self.said[name] | changes
        return TextTable(rows=rows, **said | {"caption": said.get("caption", "") + more})

    def figure(
        self, name: str, figure: Figure, data: pd.DataFrame, caption: str | None = None
    ) -> DrawnFigure:
        """A figure under its name, title and caption.

        Args:
            caption: where marks are not those of rates; else what is said of these follows.
        """
        said = self.said[name]
        signs = signs_text(signs_of(figure))
        told = " ".join(filter(None, [said.get("caption", ""), signs]))
        told = told if caption is None else caption
        return DrawnFigure(
            name=said["name"], title=said["title"], caption=told, figure=figure, data=data
        )


def texts_of(name: str) -> StudyTexts:
    """Of a study."""
    return StudyTexts(tomllib.loads(_TEXTS.read_text(encoding="utf-8"))[name])


def shown_study(name: str, show: Callable[[Sequence[Case]], Shown]) -> ShownStudy:
    """The study of a sweep's name, with what is said of it."""
    texts = texts_of(name).said
    return ShownStudy(
        name=name,
        source=texts["source"],
        differences=tuple(texts["differences"]),
        small_form=tuple(texts.get("small_form", [])),
        show=show,
    )


def launched(cases: Sequence[Case]) -> list[Point]:
    """The points of all cases that have a rate."""
    return [point for case in cases for point in case.points if len(point.rates)]


def model_name(experiment: Experiment) -> str:
    """The model that was published, whatever it is scaled to."""
    model = experiment.workload.model
    return model.base if isinstance(model, ScaledModel) else model.name


def beside_base(
    points: Iterable[Point],
    is_base: Callable[[Point], bool],
    shared: Callable[[Experiment], object],
) -> Iterator[tuple[Point, Point]]:
    """Points with launches, each with the base that shares with it what is to be shared.

    Those that have no base are left out.
    """
    launched = [point for point in points if len(point.rates)]
    bases = {shared(point.experiment): point for point in launched if is_base(point)}
    for point in launched:
        if (base := bases.get(shared(point.experiment))) is not None:
            yield point, base


def over_base(name: str, rates: pd.Series, base: pd.Series) -> dict[str, Any]:
    """The ratio of two means under a name, its interval (`low`, `high`), and single `launches`."""
    ends = map(known, (1.0, None, None) if rates.equals(base) else compare(rates, base).ends)
    launches = tuple(rates / estimate(base).mean)
    return {**dict(zip((name, "low", "high"), ends, strict=True)), "launches": launches}


def intervals(
    rows: pd.DataFrame, names: Sequence[str], spell: Callable[[float | None], str]
) -> list[str]:
    """Three columns as one of text: a mean, and the ends of its interval."""
    return [with_interval(spell, *map(float, each)) for each in rows[[*names]].to_numpy()]


def marks_from(rows: pd.DataFrame, means: pd.Series) -> pd.DataFrame:
    """Rows with `low`, `high` and `launches` as marks that figures draw; all else is unknown."""
    return rows.assign(mean=means, bound=math.nan, starred=False, ok=0, planned=0, failed=0)


def plot_panels(
    panels: Mapping[str, Curves],
    ticks: Ticks,
    labels: tuple[str, str],
    draw_beside: Callable[[Axes, str], None] = lambda axes, name: None,
    *,
    name: str = "",
    columns: int = 0,
    at_least: float = 1.0,
) -> Figure:
    """Curves in panels that share their scales.

    Args:
        panels: by their titles.
        labels: of the horizontal and the vertical scale.
        draw_beside: what else stands in a panel, by its title.
        name: above all panels.
        columns: panels beside each other; 0 for all.
        at_least: a value that the vertical axis holds, as those that were measured.
    """
    columns = columns or len(panels)
    rows = math.ceil(len(panels) / columns)
    every = pd.concat([marks for curves in panels.values() for marks in curves.values()])
    with style():
        figure, grid = new_figure(rows, columns, _AROUND + _PANEL * rows, alike="all")
        if name:
            name_figure(figure, name)
        for axes, (title, curves) in zip(grid, panels.items(), strict=False):
            draw_curves(axes, curves, ticks, top_of(every, at_least))
            draw_beside(axes, title)
            axes.set_title(title, loc="left")
        finish_grid(figure, grid, len(panels), labels)
    return figure
