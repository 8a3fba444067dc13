"""Throughput, speed-up and efficiency against workers.

One function per figure: a case in, a figure out, or None where a case has nothing to show.  The
horizontal axis has ticks at measured values only, and lines between them guide the eye, no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case
from analysis.data.setting import MAX_TOGETHER, Setting
from analysis.figures.curves import (
    Curves,
    curves_of,
    draw_curves,
    marks_of,
    top_of,
    worth_drawing,
)
from analysis.figures.style import IDEAL, legend_of_axes, legend_of_figure, new_figure, style
from analysis.stats.points import BASES, point_table

MAX_COLUMNS = 3

_BASE_TITLES = {"single": "base: single", "own": "base: its own 1 worker"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One row of axes: a quantity against workers.

    Attributes:
        column: of the table of points.
        ideal: the value of perfect scaling at a number of workers; None draws no line.
        is_scaling: the axis tells the global batch, which grows with the workers.
    """

    title: str
    y_label: str
    column: str
    ideal: Callable[[float], float] | None
    ideal_label: str
    is_scaling: bool = False


def plot_throughput(case: Case) -> Figure | None:
    """Examples per second against workers."""
    single = point_table(case)["base_single"].iloc[0]
    panel = Panel(
        title="",
        y_label=f"{case.unit}/s",
        column="rate",
        ideal=None if math.isnan(single) else lambda workers: workers * single,
        ideal_label="ideal: workers x single",
    )
    return _against_workers(case, [panel])


def plot_speedup(case: Case) -> Figure | None:
    """Speed-up against workers, on both bases."""
    return _against_workers(case, _ratio_panels("speed-up", lambda workers: workers))


def plot_efficiency(case: Case) -> Figure | None:
    """Efficiency against workers, on both bases; points that claim none are left out."""
    return _against_workers(case, _ratio_panels("efficiency", lambda _: 1.0))


def _ratio_panels(what: str, ideal: Callable[[float], float]) -> list[Panel]:
    return [
        Panel(
            title=_BASE_TITLES[base],
            y_label=what,
            column=f"{what.replace('-', '')}_{base}",
            ideal=ideal,
            ideal_label="ideal",
            is_scaling=True,
        )
        for base in BASES
    ]


def _against_workers(case: Case, panels: Sequence[Panel]) -> Figure | None:
    batches = _global_batches(case)
    workers = [*batches]
    groups = setting_groups(case.settings)
    cells: list[tuple[Panel, pd.DataFrame, str, pd.DataFrame]] = []
    for panel in panels:
        marks = _marks(case, panel, workers)
        in_groups = [
            (name, marks[marks["setting"].isin([setting.label for setting in settings])])
            for name, settings in groups.items()
        ]
        if marks["launches"].notna().any():
            cells += [(panel, marks, *each) for each in in_groups if worth_drawing(each[1])]
    if not cells:
        return None
    columns = min(len(cells), MAX_COLUMNS)
    with style():
        figure, grid = new_figure(math.ceil(len(cells) / columns), columns, len(groups) > 1)
        for axes, (panel, marks, name, shown) in zip(grid, cells, strict=False):
            # Where scaling is poor, the ideal line leaves the axes.
            ideals = (panel.ideal(workers[0]), panel.ideal(workers[-1])) if panel.ideal else ()
            _draw_panel(axes, panel, curves_of(shown), batches, top_of(marks, *ideals))
            parts = (case.name, name, panel.title)
            axes.set_title(", ".join(part for part in parts if part), loc="left")
        finish_grid(figure, grid, len(cells), apart=len(groups) > 1)
    return figure


def _marks(case: Case, panel: Panel, workers: Sequence[int]) -> pd.DataFrame:
    """Marks at their numbers of workers, with the label of their curve."""
    points = point_table(case)
    return marks_of(case, panel.column).assign(
        x=points["num_workers"].map(lambda count: worker_position(count, workers)),
        setting=points["setting"],
        label=points["setting"],
    )


def _global_batches(case: Case) -> dict[int, int]:
    """Of every number of workers, in ascending order: each worker keeps its batch."""
    batches = {point.num_workers: point.experiment.global_batch for point in case.points}
    return dict(sorted(batches.items()))


def _draw_panel(
    axes: Axes, panel: Panel, curves: Curves, batches: Mapping[int, int], top: float
) -> None:
    workers = [*batches]
    if panel.ideal is not None:
        low, high = workers[0], workers[-1]
        fine = [low + (high - low) * part / 50 for part in range(51)]
        axes.plot(
            [worker_position(count, workers) for count in fine],
            [panel.ideal(count) for count in fine],
            color=IDEAL,
            linewidth=1.0,
            linestyle=(0, (1, 1)),
            label=panel.ideal_label,
            zorder=1,
        )
    ticks = {
        worker_position(count, workers): f"{count}\n({batch})" if panel.is_scaling else str(count)
        for count, batch in batches.items()
    }
    draw_curves(axes, curves, ticks, top)
    axes.set_xlabel("workers (global batch)" if panel.is_scaling else "workers")
    axes.set_ylabel(panel.y_label)


def finish_grid(figure: Figure, grid: Sequence[Axes], used: int, apart: bool) -> None:
    """Legends, and no axes where there is nothing to draw.

    Args:
        apart: axes show different curves, so each has a legend of its own.
    """
    for axes in grid[used:]:
        axes.remove()
    if not apart:
        legend_of_figure(figure, grid[:used], columns=2 if used == 1 else 3)
        return
    for axes in grid[:used]:
        legend_of_axes(axes)


def setting_groups(settings: Sequence[Setting]) -> dict[str, list[Setting]]:
    """All settings in one axes if they can be told apart, else one axes per strategy.

    Strategies without servers share one axes; a strategy with too many settings gets one for each
    number of servers.
    """
    if len(settings) <= MAX_TOGETHER:
        return {"": [*settings]}
    groups: dict[str, list[Setting]] = {}
    for setting in settings:
        groups.setdefault(_group_name(setting, settings), []).append(setting)
    return groups


def _group_name(setting: Setting, settings: Sequence[Setting]) -> str:
    if not setting.traits.uses_servers:
        rivals = sum(1 for other in settings if not other.traits.uses_servers)
        return setting.strategy if rivals > MAX_TOGETHER else "without servers"
    rivals = sum(1 for other in settings if other.strategy == setting.strategy)
    many = rivals > MAX_TOGETHER and setting.num_ps is not None
    return f"{setting.strategy}, {setting.num_ps} ps" if many else setting.strategy


def worker_position(count: float, counts: Sequence[float]) -> float:
    """Linear up to 8 workers, logarithmic beyond, where doublings are what is measured."""
    return math.log2(count) if max(counts) > 8 else count
