"""A published curve of efficiency, and the curves of the sweep that repeats the study."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.figure import Figure

from analysis.data.cases import Case
from analysis.figures.curves import draw_curves
from analysis.figures.marks import data_of, marks_of, top_of
from analysis.figures.style import finish_grid, name_figure, new_figure, style
from analysis.published.beside import PublishedStudy, series_of
from analysis.published.catalogue import published_of

#: Inches.
_HEIGHT = 3.6


def plot_beside_published(case: Case) -> Figure | None:
    """Efficiency against workers, on a logarithmic axis: published and measured here."""
    study = published_of(case)
    if study is None:
        return None
    curves = {
        name: marks.assign(x=marks["num_workers"].map(math.log2))
        for name, marks in _curves(study, case).items()
    }
    every = pd.concat(curves.values())
    if every["launches"].isna().all():
        return None
    ticks = {math.log2(count): str(count) for count in sorted({*every["num_workers"]})}
    with style():
        figure, grid = new_figure(1, 1, _HEIGHT)
        name_figure(figure, case.name)
        draw_curves(grid[0], curves, ticks, top_of(every, 1.0))
        finish_grid(figure, grid, 1, ("workers", "efficiency on a single worker"))
    return figure


def beside_published_data(case: Case) -> pd.DataFrame:
    """The data of the figure, a row for each point of each curve."""
    study = published_of(case)
    if study is None:
        return pd.DataFrame()
    curves = _curves(study, case)
    return data_of(pd.concat([marks.assign(curve=name) for name, marks in curves.items()]))


def _curves(study: PublishedStudy, case: Case) -> dict[str, pd.DataFrame]:
    """Marks of the published curve, and of each series of the case."""
    marks = marks_of(case, "efficiency_single")
    rows = study.rows()
    published = pd.DataFrame(
        {
            "num_workers": rows["workers"],
            "num_ps": rows["num_ps"],
            "mean": rows["efficiency"],
            **dict.fromkeys(("low", "high", "bound"), math.nan),
            **dict.fromkeys(("ok", "planned", "failed"), 0),
            "launches": None,
            "starred": False,
        }
    )
    own = {
        name: marks.iloc[[case.points.index(point) for point in points]]
        for name, points in series_of(study, case).items()
    }
    return {study.system: published, **own}
