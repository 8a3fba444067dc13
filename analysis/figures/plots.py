"""Throughput, speed-up and efficiency against workers.

One function per figure: a case in, a figure out, or None where a case has nothing to show.  The
horizontal axis has ticks at measured values only, and lines between them guide the eye, no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.data.settings import MAX_TOGETHER, Setting
from analysis.derive.bounds import reached_at
from analysis.derive.efficiency import Scaling, base_of_own, base_of_single, launch_ratios, scalings
from analysis.figures.curves import (
    IDEAL,
    Curve,
    Mark,
    Ticks,
    draw_curves,
    legend_of_axes,
    legend_of_figure,
    new_figure,
    note_bounds,
    note_failures,
    style,
    top_of,
)
from analysis.stats.statistics import Comparison, Estimate, estimate

MAX_COLUMNS = 3

Group = tuple[str, tuple[Setting, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What is shown of a point: all launches, their mean with its interval, and their bound."""

    launches: tuple[float, ...]
    centre: Estimate | Comparison | None
    bound: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One row of axes: a quantity against workers.

    Attributes:
        ideal: the value of perfect scaling at a number of workers; None draws no line.
    """

    title: str
    y_label: str
    value: Callable[[Scaling], Value]
    ideal: Callable[[float], float] | None
    ideal_label: str


def plot_throughput(case: Case) -> Figure | None:
    """Images per second against workers."""
    single = base_of_single(case)
    rate = estimate(list(single.rates.values())).mean if single and single.rates else None
    panel = Panel(
        title="",
        y_label="images/s",
        value=_throughput,
        ideal=None if rate is None else lambda workers: workers * rate,
        ideal_label="ideal: workers x single",
    )
    return _against_workers(case, [panel])


def _throughput(item: Scaling) -> Value:
    reached = reached_at(item.point)
    return Value(
        launches=tuple(item.point.rates.values()),
        centre=item.throughput,
        bound=reached.images_per_sec if reached else None,
    )


def plot_speedup(case: Case) -> Figure | None:
    """Speed-up against workers, on both bases."""
    return _against_workers(case, _ratio_panels(case, efficiency=False))


def plot_efficiency(case: Case) -> Figure | None:
    """Efficiency against workers, on both bases; points that claim none are left out."""
    return _against_workers(case, _ratio_panels(case, efficiency=True))


def _ratio_panels(case: Case, efficiency: bool) -> list[Panel]:
    what = "efficiency" if efficiency else "speed-up"
    bases: Mapping[str, Callable[[Point], Point | None]] = {
        "single": lambda _: base_of_single(case),
        "own": lambda point: base_of_own(case, point),
    }
    names = {"single": "base: single", "own": "base: its own 1 worker"}
    return [
        Panel(
            title=names[name],
            y_label=what,
            value=_ratio_value(f"{'efficiency' if efficiency else 'speedup'}_{name}", find),
            ideal=(lambda _: 1.0) if efficiency else (lambda workers: workers),
            ideal_label="ideal",
        )
        for name, find in bases.items()
    ]


def _ratio_value(
    name: str, find_base: Callable[[Point], Point | None]
) -> Callable[[Scaling], Value]:
    """The launches' own ratios beside the comparison of that name."""

    def value(item: Scaling) -> Value:
        found: Comparison | None = getattr(item, name)
        base = find_base(item.point)
        if found is None or base is None:
            return Value(launches=(), centre=None)
        share = item.point.num_workers if name.startswith("efficiency") else 1
        ratios = launch_ratios(item.point.rates, base.rates).values()
        reached = reached_at(item.point)
        base_rate = estimate(list(base.rates.values())).mean
        return Value(
            launches=tuple(ratio / share for ratio in ratios),
            centre=found,
            bound=reached.images_per_sec / base_rate / share if reached else None,
        )

    return value


def _against_workers(case: Case, panels: Sequence[Panel]) -> Figure | None:
    items = scalings(case)
    shown = [panel for panel in panels if any(panel.value(item).launches for item in items)]
    if not shown:
        return None
    groups = setting_groups(case.settings)
    ticks = worker_ticks(sorted({point.num_workers for point in case.points}))
    cells = [(panel, group) for panel in shown for group in groups if _shows(panel, group, items)]
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


def _shows(panel: Panel, group: Group, items: Sequence[Scaling]) -> bool:
    """There is something to draw: a launch, or that there should have been one."""
    mine = [item for item in items if item.point.setting in group[1]]
    return any(panel.value(item).launches or item.point.unusable for item in mine)


def _shared_top(
    items: Sequence[Scaling], groups: Sequence[Group], panel: Panel, ticks: Ticks
) -> float:
    """The same end of the vertical axis for all axes of a panel."""
    curves = [curve for group in groups for curve in _curves(items, group, panel, ticks)]
    ideal = panel.ideal(max(item.point.num_workers for item in items)) if panel.ideal else 0.0
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


def _curves(items: Sequence[Scaling], group: Group, panel: Panel, ticks: Ticks) -> list[Curve]:
    workers = [float(label) for label in ticks.labels]
    curves = []
    for setting in group[1]:
        mine = [item for item in items if item.point.setting == setting]
        marks = tuple(
            make_mark(
                worker_position(item.point.num_workers, workers), panel.value(item), item.point
            )
            for item in mine
        )
        why = "".join(mark for mark in "*+" if any(mark in item.marks for item in mine))
        curves.append(Curve(label=f"{setting.label} {why}".rstrip(), marks=marks))
    return curves


def make_mark(x: float, value: Value, point: Point) -> Mark:
    """What is drawn of a point at a position of the axis."""
    centre = value.centre
    mean = centre.mean if isinstance(centre, Estimate) else centre.ratio if centre else None
    return Mark(
        x=x,
        launches=value.launches,
        mean=mean,
        low=centre.low if centre else None,
        high=centre.high if centre else None,
        failed=len(point.unusable),
        bound=value.bound,
    )


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
        return str(setting.strategy) if rivals > MAX_TOGETHER else "without servers"
    rivals = sum(1 for other in settings if other.strategy is setting.strategy)
    many = rivals > MAX_TOGETHER and setting.num_ps is not None
    return f"{setting.strategy}, {setting.num_ps} ps" if many else str(setting.strategy)


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
