"""Throughput, speed-up and efficiency against workers.

One function per figure: a case in, a figure out, or None where a case has nothing to show.  The
horizontal axis has ticks at measured values only, and lines between them guide the eye, no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.data.setting import MAX_TOGETHER, Setting
from analysis.figures.curves import (
    Curve,
    Mark,
    Ticks,
    draw_curves,
    note_bounds,
    note_failures,
    top_of,
)
from analysis.figures.style import IDEAL, legend_of_axes, legend_of_figure, new_figure, style
from analysis.stats.points import BASES, base_of, base_rate, launch_ratios, point_table

MAX_COLUMNS = 3

Group = tuple[str, tuple[Setting, ...]]

#: A point and its row of the table of points.
Shown = tuple[Point, pd.Series]

_BASE_TITLES = {"single": "base: single", "own": "base: its own 1 worker"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One row of axes: a quantity against workers.

    Attributes:
        column: of the table of points, with its interval beside it.
        launches: the quantity of single launches of a point.
        bound: its bound at a point; None where there is none.
        ideal: the value of perfect scaling at a number of workers; None draws no line.
    """

    title: str
    y_label: str
    column: str
    launches: Callable[[Point], pd.Series]
    bound: Callable[[Point, float], float | None]
    ideal: Callable[[float], float] | None
    ideal_label: str

    def mark(self, shown: Shown, x: float) -> Mark:
        """What is drawn of a point at a position of the axis."""
        point, row = shown
        mean, low, high = (known(row[f"{self.column}{end}"]) for end in ("", "_low", "_high"))
        rate_bound = known(row["rate_bound"])
        drawn = mean is not None
        return Mark(
            x=x,
            launches=tuple(self.launches(point)) if drawn else (),
            mean=mean,
            low=low,
            high=high,
            failed=len(point.unusable),
            bound=self.bound(point, rate_bound) if drawn and rate_bound is not None else None,
        )


def known(value: float | None) -> float | None:
    """A number of a table; None where it is unknown."""
    return None if value is None or math.isnan(value) else float(value)


def plot_throughput(case: Case) -> Figure | None:
    """Examples per second against workers."""
    single = base_rate(base_of(case, case.points[0], "single"))
    panel = Panel(
        title="",
        y_label=f"{case.unit}/s",
        column="rate",
        launches=lambda point: point.rates,
        bound=lambda _, rate: rate,
        ideal=None if single is None else lambda workers: workers * single,
        ideal_label="ideal: workers x single",
    )
    return _against_workers(case, [panel])


def plot_speedup(case: Case) -> Figure | None:
    """Speed-up against workers, on both bases."""
    panels = [_ratio_panel(case, base, "speed-up", lambda _: 1.0) for base in BASES]
    return _against_workers(case, panels)


def plot_efficiency(case: Case) -> Figure | None:
    """Efficiency against workers, on both bases; points that claim none are left out."""
    panels = [
        _ratio_panel(case, base, "efficiency", lambda point: float(point.num_workers))
        for base in BASES
    ]
    return _against_workers(case, panels)


def _ratio_panel(case: Case, base: str, what: str, share: Callable[[Point], float]) -> Panel:
    """The launches' own ratios to a base, over a share that is 1 or the workers."""

    def launches(point: Point) -> pd.Series:
        rival = base_of(case, point, base)
        return (
            point.rates if rival is None else launch_ratios(point.rates, rival.rates) / share(point)
        )

    def bound(point: Point, rate: float) -> float | None:
        rival = base_rate(base_of(case, point, base))
        return None if rival is None else rate / rival / share(point)

    return Panel(
        title=_BASE_TITLES[base],
        y_label=what,
        column=f"{what.replace('-', '')}_{base}",
        launches=launches,
        bound=bound,
        ideal=(lambda workers: workers) if what == "speed-up" else (lambda _: 1.0),
        ideal_label="ideal",
    )


def _against_workers(case: Case, panels: Sequence[Panel]) -> Figure | None:
    rows = [row for _, row in point_table(case).iterrows()]
    items = list(zip(case.points, rows, strict=True))
    filled = [panel for panel in panels if any(panel.mark(item, 0.0).launches for item in items)]
    if not filled:
        return None
    groups = setting_groups(case.settings)
    ticks = worker_ticks(sorted({point.num_workers for point in case.points}))
    cells = [(panel, group) for panel in filled for group in groups if _shows(panel, group, items)]
    columns = min(len(cells), MAX_COLUMNS)
    with style():
        figure, grid = new_figure(math.ceil(len(cells) / columns), columns, len(groups) > 1)
        for axes, (panel, group) in zip(grid, cells, strict=False):
            curves = _curves(items, group, panel, ticks)
            top = _shared_top(items, groups, panel, ticks)
            _draw_panel(axes, panel, curves, ticks, top)
            parts = (case.name, group[0], panel.title)
            axes.set_title(", ".join(part for part in parts if part), loc="left")
        finish_grid(figure, grid, len(cells), apart=len(groups) > 1)
    return figure


def _shows(panel: Panel, group: Group, items: Sequence[Shown]) -> bool:
    """There is something to draw: a launch, or that there should have been one."""
    marks = [panel.mark(item, 0.0) for item in items if item[0].setting in group[1]]
    return any(mark.launches or mark.failed for mark in marks)


def _shared_top(
    items: Sequence[Shown], groups: Sequence[Group], panel: Panel, ticks: Ticks
) -> float:
    """The same end of the vertical axis for all axes of a panel."""
    curves = [curve for group in groups for curve in _curves(items, group, panel, ticks)]
    ideal = panel.ideal(max(point.num_workers for point, _ in items)) if panel.ideal else 0.0
    return top_of(curves, ideal)


def _draw_panel(
    axes: Axes, panel: Panel, curves: Sequence[Curve], ticks: Ticks, top: float
) -> None:
    if panel.ideal is not None:
        workers = [float(label) for label in ticks.labels]
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
    draw_curves(axes, curves, ticks, top)
    note_bounds(axes, curves)
    note_failures(axes, curves)
    axes.set_ylabel(panel.y_label)


def _curves(items: Sequence[Shown], group: Group, panel: Panel, ticks: Ticks) -> list[Curve]:
    workers = [float(label) for label in ticks.labels]
    curves = []
    for setting in group[1]:
        of_setting = [item for item in items if item[0].setting == setting]
        marks = tuple(
            panel.mark(item, worker_position(item[0].num_workers, workers)) for item in of_setting
        )
        why = "".join(m for m in "*+" if any(m in row["marks"] for _, row in of_setting))
        curves.append(Curve(label=f"{setting.label} {why}".rstrip(), marks=marks))
    return curves


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


def setting_groups(settings: Sequence[Setting]) -> list[Group]:
    """All settings in one axes if they can be told apart, else one axes per strategy.

    Strategies without servers share one axes; a strategy with too many settings gets one for each
    number of servers.
    """
    if len(settings) <= MAX_TOGETHER:
        return [("", tuple(settings))]
    groups: dict[str, list[Setting]] = {}
    for setting in settings:
        name = _group_name(setting, settings)
        groups.setdefault(name, []).append(setting)
    return [(name, tuple(group)) for name, group in groups.items()]


def _group_name(setting: Setting, settings: Sequence[Setting]) -> str:
    if not setting.traits.uses_servers:
        rivals = sum(1 for other in settings if not other.traits.uses_servers)
        return setting.strategy if rivals > MAX_TOGETHER else "without servers"
    rivals = sum(1 for other in settings if other.strategy == setting.strategy)
    many = rivals > MAX_TOGETHER and setting.num_ps is not None
    return f"{setting.strategy}, {setting.num_ps} ps" if many else setting.strategy


def worker_ticks(counts: Sequence[int]) -> Ticks:
    """Ticks at the measured numbers of workers."""
    return Ticks(
        positions=tuple(worker_position(count, counts) for count in counts),
        labels=tuple(str(count) for count in counts),
        axis_label="workers",
    )


def worker_position(count: float, counts: Sequence[float]) -> float:
    """Linear up to 8 workers, logarithmic beyond, where doublings are what is measured."""
    return math.log2(count) if max(counts) > 8 else count
