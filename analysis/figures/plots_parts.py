"""What lies behind the throughput: bytes per server, and the parts of a step.

One function per figure: a case in, a figure out, or None where a case has nothing to show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case
from analysis.derive.breakdown import Breakdown, breakdowns
from analysis.derive.placement import PlacementPoint, placement_points
from analysis.figures.curves import (
    COLOURS,
    HATCHES,
    MARKERS,
    draw_interval,
    legend_of_figure,
    sized_figure,
    style,
)
from analysis.wording import workers_text

_BAR = 0.68
_PARTS = (
    ("compute", "compute_s"),
    ("everything else: exposed communication, updates, dispatch", "communication_s"),
    ("input wait", "input_wait_s"),
)


def plot_placement(case: Case) -> Figure | None:
    """Bytes per server beside the throughput per policy, at the largest number of workers."""
    found = placement_points(case)
    if not found:
        return None
    workers = max(item.point.num_workers for item in found)
    shown = [item for item in found if item.point.num_workers == workers]
    labels = list(dict.fromkeys(_category(item) for item in shown))
    with style():
        figure, (left, right) = sized_figure(1, 2, 8.6, 1.9 + 0.42 * len(labels))
        _draw_loads(left, shown, labels)
        _draw_rates(right, shown, labels)
        # Above both axes: a long name would run from the left one into the right one.
        figure.suptitle(case.name, fontsize=9)
        left.set_title("trainable bytes per server", loc="left")
        right.set_title(f"throughput, {workers_text(workers)}", loc="left")
        legend_of_figure(figure, [left], columns=4, place="outside lower left")
        legend_of_figure(figure, [right], columns=2, place="outside lower right")
    return figure


def _category(item: PlacementPoint) -> str:
    return f"{item.point.setting.variant}, {item.point.experiment.num_ps} ps"


def _prepare(axes: Axes, labels: Sequence[str], x_label: str) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    axes.set_xlabel(x_label)


def _draw_loads(axes: Axes, shown: Sequence[PlacementPoint], labels: Sequence[str]) -> None:
    """One bar per placement, one segment per server, the hottest server's excess beside it."""
    total = max(sum(item.used_bytes) for item in shown)
    unit, name = (1e6, "MB") if total >= 1e6 else (1e3, "kB")
    servers = max(len(item.used_bytes) for item in shown)
    by_label = {_category(item): item for item in reversed(shown)}
    for row, label in enumerate(labels):
        start = 0.0
        for server, size in enumerate(by_label[label].used_bytes):
            axes.barh(row, size / unit, _BAR, left=start, **_fill(server))
            start += size / unit
        axes.text(
            start + total / unit * 0.02, row, f"{by_label[label].max_over_mean:.2f}", va="center"
        )
    for server in range(servers):
        axes.barh([0], [0], label=f"ps:{server}", **_fill(server))
    _prepare(axes, labels, f"{name} (number beside: hottest server over mean)")
    axes.set_xlim(0, total / unit * 1.14)


def _fill(index: int) -> dict[str, Any]:
    """Colour and hatch of a segment: either tells it from its neighbours."""
    return {
        "facecolor": COLOURS[index % len(COLOURS)],
        "edgecolor": "white" if index % len(HATCHES) else COLOURS[index % len(COLOURS)],
        "hatch": HATCHES[index % len(HATCHES)],
        "linewidth": 0.6,
    }


def _draw_rates(axes: Axes, shown: Sequence[PlacementPoint], labels: Sequence[str]) -> None:
    """Launches and mean of every strategy on the row of its placement."""
    strategies = list(dict.fromkeys(item.point.setting.strategy for item in shown))
    right = max((rate for item in shown for rate in item.point.rates.values()), default=1.0) * 1.3
    for index, strategy in enumerate(strategies):
        shift = (index - (len(strategies) - 1) / 2) * 0.3
        mine = [item for item in shown if item.point.setting.strategy is strategy]
        rows = [labels.index(_category(item)) + shift for item in mine]
        _draw_rate_column(axes, mine, rows, index, right)
        axes.plot([], [], MARKERS[index], color=COLOURS[index], label=str(strategy))
    _prepare(axes, labels, "images/s (launches, mean with 95 % interval)")
    axes.tick_params(axis="y", length=0, labelleft=False)
    axes.set_xlim(0, right)


def _draw_rate_column(
    axes: Axes, items: Sequence[PlacementPoint], rows: Sequence[float], index: int, right: float
) -> None:
    colour, marker = COLOURS[index], MARKERS[index]
    for item, row in zip(items, rows, strict=True):
        rates = list(item.point.rates.values())
        axes.scatter(
            rates, [row] * len(rates), s=9, facecolors="none", edgecolors=colour, linewidths=0.7
        )
        mean = item.throughput
        if mean is None:
            axes.text(0.02, row, "no launch ended well", color=colour, va="center", fontsize=7)
            continue
        axes.plot([mean.mean], [row], marker, color=colour, markeredgecolor="white")
        draw_interval(axes, mean, row, colour, (0.0, right))


def plot_breakdown(case: Case) -> Figure | None:
    """Stacked parts of the mean step, a bar per point, grouped by workers."""
    found = sorted(breakdowns(case), key=lambda item: item.point.num_workers)
    if not found:
        return None
    rows = _rows(found)
    with style():
        figure, (axes,) = sized_figure(1, 1, 7.4, 1.4 + 0.3 * (rows[-1] + 1))
        for index, (label, name) in enumerate(_PARTS):
            _draw_part(axes, found, rows, index, label, name)
        _draw_totals(axes, found, rows)
        axes.set_yticks(rows, [_bar_label(item) for item in found])
        axes.set_ylim(rows[-1] + 0.6, -0.6)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", visible=True)
        axes.set_xlabel("mean step time of a worker, ms")
        axes.set_title(case.name, loc="left")
        legend_of_figure(figure, [axes], columns=2)
    return figure


def _bar_label(item: Breakdown) -> str:
    return f"{item.point.setting.label} ({workers_text(item.point.num_workers)})"


def _rows(found: Sequence[Breakdown]) -> list[float]:
    """Positions from the top, with a gap where the number of workers changes."""
    rows, previous = [0.0], found[0].point.num_workers
    for item in found[1:]:
        rows.append(rows[-1] + (1.0 if item.point.num_workers == previous else 1.6))
        previous = item.point.num_workers
    return rows


def _draw_part(
    axes: Axes,
    found: Sequence[Breakdown],
    rows: Sequence[float],
    index: int,
    label: str,
    name: str,
) -> None:
    before = [sum(getattr(item, part) for _, part in _PARTS[:index]) for item in found]
    axes.barh(
        rows,
        [getattr(item, name) * 1e3 for item in found],
        _BAR,
        left=[value * 1e3 for value in before],
        label=label,
        **_fill(index),
    )


def _draw_totals(axes: Axes, found: Sequence[Breakdown], rows: Sequence[float]) -> None:
    """The step time of every launch, so that the spread behind a bar can be seen."""
    spots = [
        (total * 1e3, row + _BAR / 2)
        for item, row in zip(found, rows, strict=True)
        for total in item.launch_totals_s
    ]
    axes.scatter(
        [x for x, _ in spots],
        [y for _, y in spots],
        s=10,
        facecolors="white",
        edgecolors="black",
        linewidths=0.7,
        label="single launches",
        zorder=4,
    )
