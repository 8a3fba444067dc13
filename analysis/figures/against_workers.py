"""Throughput and efficiency against workers, servers and bytes per pack.

One function per figure: a case in, a figure out, or None where a case has nothing to show.  One or
two numbers of workers are marks on the row of their setting; from three on there are lines, with
ticks at measured values only: they guide the eye, no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case
from analysis.data.metric import RATE
from analysis.data.setting import MAX_TOGETHER, Setting, called
from analysis.figures.curves import coloured, curves_of, draw_curves, label_ends
from analysis.figures.marks import Sign, data_of, marks_of, top_of, worth_drawing
from analysis.figures.point_rows import Quantity, plot_settings
from analysis.figures.style import IDEAL, finish_grid, name_figure, new_figure, style
from analysis.stats.points import base_of, base_text, point_table
from analysis.wording import workers_text
from ps_allreduce.declared import megabytes
from ps_allreduce.point.strategies import STRATEGIES, AnyStrategy

_COLUMNS = 2

#: Inches, of axes in a figure of one and of several.
_HEIGHT, _HEIGHT_OF_MANY = 3.4, 2.2

#: Lines through fewer numbers of workers say less than marks on rows.
_LEAST_SIZES = 3

#: More rows than nobody takes in, where a figure against servers shows the same points.
_MOST_ROWS = 2 * MAX_TOGETHER

#: Settings by the title of the axes that they share.
SettingGroups = Mapping[str, Sequence[Setting]]

#: Why no efficiency is claimed; else there is no base to compare with.
_LIMITED = "not claimed: processors may have been the limit"
_UNEVEN = "not claimed: one worker made far more steps than others"
_NO_BASE = "not claimed: nothing to compare with"

#: Beyond all sizes of packs.
_ONE_PACK, _BUCKETS = 1 << 61, 1 << 62
_PLACES = {_ONE_PACK: "one pack", _BUCKETS: "buckets"}

#: Of axes with lines, inches.
_AXES_HEIGHT = 2.4

#: Lines through fewer numbers of servers say less than the rows of the figure of throughput.
_LEAST_SERVERS = 3


def plot_throughput(case: Case) -> Figure | None:
    """Examples per second against workers; a single point has nothing beside it to be seen."""
    if len(case.points) < 2:
        return None
    single = point_table(case)["base_single"].iloc[0]
    known = [] if math.isnan(single) or case.shares_cores else _workers(case)
    ideals = {count: count * single for count in known}
    return _plot(case, "rate", Quantity(label=RATE.unit_of(case), ideals=ideals))


def plot_efficiency(case: Case) -> Figure | None:
    """Efficiency against workers; points that claim none are named."""
    quantity = Quantity(
        label=f"efficiency on {base_text(case)}",
        ideals=dict.fromkeys(_workers(case), 1.0),
        is_claimed=True,
    )
    return _plot(case, "efficiency_single", quantity)


def rate_data(case: Case) -> pd.DataFrame:
    """The data of figures of throughput."""
    return data_of(marks_of(case, "rate"))


def efficiency_data(case: Case) -> pd.DataFrame:
    """The data of the figure of efficiency."""
    return data_of(marks_of(case, "efficiency_single"))


def _workers(case: Case) -> list[int]:
    return sorted({point.num_workers for point in case.points})


def _plot(case: Case, column: str, quantity: Quantity) -> Figure | None:
    marks = marks_of(case, column)
    if quantity.is_claimed:
        bases = {base_of(case, point, "single") for point in case.points}
        marks = marks.assign(unclaimed=_unclaimed(case))
        marks = marks[[point not in bases for point in case.points]]
    if marks["launches"].isna().all():
        return None
    if max(_sizes(case).values()) < _LEAST_SIZES:
        if len(case.settings) > _MOST_ROWS and varied_servers(case):
            return None
        return plot_settings(marks, quantity, case.name)
    groups = setting_groups([s for s in case.settings if s.label in set(marks["setting"])])
    sending = _without_silent(groups) if len(groups) > 1 else groups
    drawn = {setting.label for settings in sending.values() for setting in settings}
    shown = marks[marks["setting"].isin(drawn)]
    if shown["launches"].isna().all():
        return None
    figure = _plot_lines(case, shown, quantity, sending)
    if len(shown) < len(marks):
        figure.set_label(Sign.SILENT)
    return figure


def _unclaimed(case: Case) -> list[str]:
    """Of each point, why no efficiency is claimed, where none is."""
    points = point_table(case)
    return [
        _LIMITED if mark else _UNEVEN if uneven else _NO_BASE
        for mark, uneven in zip(points["marks_single"], points["uneven"], strict=True)
    ]


def _sizes(case: Case) -> Mapping[Setting, int]:
    """Numbers of workers of the settings that exchange gradients; of all, if none of them does."""
    sizes = dict.fromkeys(case.settings, 0)
    for point in case.points:
        sizes[point.setting] += 1
    return {each: n for each, n in sizes.items() if each.traits.communicates()} or sizes


def _without_silent(groups: SettingGroups) -> SettingGroups:
    """Without what sends nothing, which is so fast that it would press all others down."""
    sending = {
        name: [setting for setting in settings if setting.traits.communicates()]
        for name, settings in groups.items()
    }
    return {name: settings for name, settings in sending.items() if settings}


def _plot_lines(
    case: Case, marks: pd.DataFrame, quantity: Quantity, groups: SettingGroups
) -> Figure:
    """Axes for each group of settings, all on the same scales; none where nothing is claimed."""
    workers = _workers(case)
    place = {count: worker_position(count) for count in workers}
    names = {
        setting.label: _curve_name(setting, title)
        for title, settings in groups.items()
        for setting in settings
    }
    marks = marks.assign(x=marks["num_workers"].map(place), label=marks["setting"].map(names))
    marks = coloured(marks)
    shown = {
        name: own
        for name, settings in groups.items()
        if worth_drawing(own := marks[marks["setting"].isin([each.label for each in settings])])
        and not (quantity.is_claimed and own["launches"].isna().all())
    }
    columns = min(len(shown), _COLUMNS)
    rows = math.ceil(len(shown) / columns)
    height = _HEIGHT + 0.9 if len(shown) == 1 else _HEIGHT_OF_MANY * rows + 1.0
    ticks = {place[point.num_workers]: str(point.num_workers) for point in case.points}
    ticks = dict(sorted(ticks.items()))
    top = top_of(marks, 0.0, max(quantity.ideals.values(), default=0.0))
    labels = list(dict.fromkeys(marks["label"]))
    with style():
        figure, grid = new_figure(rows, columns, height, alike="all")
        name_figure(figure, case.name)
        for axes, (name, own) in zip(grid, shown.items(), strict=False):
            _draw_ideal(axes, quantity, workers)
            curves = curves_of(own, labels)
            draw_curves(axes, curves, ticks, top)
            axes.set_title(name, loc="left")
            if len(shown) == 1:
                label_ends(axes, curves)
        finish_grid(figure, grid, len(shown), ("workers", quantity.label))
    return figure


def _curve_name(setting: Setting, title: str) -> str:
    """Without what the title of its axes says: the strategy, and perhaps the number of servers."""
    if title == setting.called:
        return setting.label.removeprefix(f"{setting.called}, ")
    return setting.variant if title.startswith(f"{setting.called},") else setting.label


def _draw_ideal(axes: Axes, quantity: Quantity, workers: Sequence[int]) -> None:
    """Perfect scaling, which is a straight line of workers."""
    if not (ideals := quantity.ideals):
        return
    low, high = workers[0], workers[-1]
    slope = (ideals[high] - ideals[low]) / (high - low)
    fine = [low + (high - low) * part / 50 for part in range(51)]
    axes.plot(
        [worker_position(count) for count in fine],
        [ideals[low] + slope * (count - low) for count in fine],
        color=IDEAL,
        linewidth=1.0,
        linestyle=(0, (1, 1)),
        label="ideal" if quantity.is_claimed else "workers x single",
        zorder=1,
    )


def setting_groups(settings: Sequence[Setting]) -> SettingGroups:
    """All settings in one axes if they can be told apart, else one axes per strategy.

    Strategies without servers share one axes; a strategy with too many settings gets one for each
    number of servers, those with as many servers beside each other.
    """
    if len(settings) <= MAX_TOGETHER:
        return {"": [*settings]}
    groups: dict[str, list[Setting]] = {}
    for setting in sorted(settings, key=lambda each: each.num_ps or 0):
        groups.setdefault(_group_name(setting, settings), []).append(setting)
    return groups


def _group_name(setting: Setting, settings: Sequence[Setting]) -> str:
    if not setting.traits.uses_servers:
        rivals = sum(1 for other in settings if not other.traits.uses_servers)
        return setting.called if rivals > MAX_TOGETHER else "without servers"
    rivals = sum(1 for other in settings if other.strategy == setting.strategy)
    many = rivals > MAX_TOGETHER and setting.num_ps is not None
    return f"{setting.called}, {setting.num_ps} ps" if many else setting.called


def worker_position(count: float) -> float:
    """Doublings are what is measured, so they are equally far apart."""
    return math.log2(count)


def plot_against_servers(case: Case) -> Figure | None:
    """Examples per second against parameter servers.

    One row of axes per number of workers; synchronous and asynchronous strategies have axes of
    their own, since they do not compute the same.
    """
    several = varied_servers(case)
    if not several:
        return None
    marks = _marks(case)
    servers = coloured(marks[marks["num_ps"] > 0].assign(label=marks["variant"]))
    strategies = servers["strategy"].unique()
    cells = [(int(workers), strategy) for workers in several for strategy in strategies]
    labels, height = list(dict.fromkeys(servers["label"])), _AXES_HEIGHT * len(several) + 0.9
    with style():
        figure, grid = new_figure(len(several), len(strategies), height, alike="row")
        name_figure(figure, case.name)
        for axes, (workers, strategy) in zip(grid, cells, strict=True):
            row = servers[servers["workers"] == workers]
            row = row.assign(x=row["num_ps"].rank(method="dense") - 1)
            numbers = sorted(row["num_ps"].unique())
            curves = curves_of(row[row["strategy"] == strategy], labels)
            draw_curves(axes, curves, _ticks(numbers), top_of(row))
            _draw_reference(axes, marks[marks["workers"] == workers])
            what = _training_of(STRATEGIES[strategy])
            axes.set_title(f"{workers_text(workers)}, {what}", loc="left")
        finish_grid(figure, grid, len(cells), ("parameter servers", RATE.unit_of(case)))
    return figure


def varied_servers(case: Case) -> list[int]:
    """Numbers of workers with several numbers of servers; none where nowhere are enough of them."""
    counts: dict[int, set[int]] = {}
    for point in case.points:
        if point.experiment.num_ps:
            counts.setdefault(point.num_workers, set()).add(point.experiment.num_ps)
    if max(map(len, counts.values()), default=0) < _LEAST_SERVERS:
        return []
    return [workers for workers, those in sorted(counts.items()) if len(those) > 1]


def _training_of(traits: type[AnyStrategy]) -> str:
    training = "synchronous" if traits.synchronous else "asynchronous"
    return f"{training}, as shipped" if traits.as_shipped else training


def plot_against_packs(case: Case) -> Figure | None:
    """Examples per second of all-reduce against the bytes of one pack, one curve per workers.

    Buckets are no pack of some size: they stand apart, and no line leads to them.
    """
    marks = _marks(case)
    marks = marks[marks["packs"]]
    sizes = sorted(marks["place"].unique())
    if len(sizes) < 2:
        return None
    names = marks["strategy"].map(called).where(marks["place"] != _BUCKETS, marks["setting"])
    marks = marks.assign(
        x=marks["place"].rank(method="dense") - 1,
        label=names + ", " + marks["workers"].map(workers_text),
    )
    places = [_PLACES.get(size) or megabytes(size) for size in sizes]
    with style():
        figure, (axes,) = new_figure(1, 1, _AXES_HEIGHT + 1.4)
        curves = curves_of(coloured(marks))
        draw_curves(axes, curves, _ticks(places), top_of(marks))
        label_ends(axes, curves)
        name_figure(figure, case.name)
        finish_grid(figure, [axes], 1, ("bytes per pack", RATE.unit_of(case)))
    return figure


def _marks(case: Case) -> pd.DataFrame:
    """The throughput of all points without their bounds, beside their settings."""
    settings = [
        {
            "strategy": point.setting.strategy,
            "variant": point.setting.variant,
            "workers": point.num_workers,
            "collective": point.setting.traits.uses_collective,
            "packs": "bytes_per_pack" in point.setting.traits.understands(),
            # By size, then one pack, which is the largest of all, then buckets.
            "place": _BUCKETS if size is None else size or _ONE_PACK,
        }
        for point in case.points
        for size in [point.setting.bytes_per_pack]
    ]
    return marks_of(case, "rate").assign(bound=np.nan).join(pd.DataFrame(settings))


def _ticks(values: Sequence[object]) -> dict[float, str]:
    """Values at equal distances."""
    return {float(position): str(value) for position, value in enumerate(values)}


def _draw_reference(axes: Axes, marks: pd.DataFrame) -> None:
    """All-reduce at the same number of workers, as a line to compare with."""
    measured = marks[marks["collective"] & marks["mean"].notna()]
    for setting, rate in zip(measured["setting"], measured["mean"], strict=True):
        axes.axhline(
            rate,
            color=IDEAL,
            linewidth=1.0,
            linestyle=(0, (4, 2)),
            label=f"{setting}, same workers",
        )
        axes.set_ylim(0, max(axes.get_ylim()[1], rate * 1.1))
