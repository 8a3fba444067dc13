"""Which figures a case gets, what they are called and what is said below them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from analysis.data.cases import Case
from analysis.figures.against_settings import (
    plot_against_packs,
    plot_against_servers,
    plot_exchange,
)
from analysis.figures.against_workers import plot_efficiency, plot_speedup, plot_throughput
from analysis.figures.bars import plot_placement
from analysis.figures.ladder import plot_ladder
from analysis.figures.style import save_figure
from analysis.figures.where_time_goes import plot_breakdown, plot_explanation
from analysis.stats.setting_pairs import without_changed

_LAUNCHES = (
    "Small circles are single launches, large markers geometric means with 95 % intervals (from "
    "three launches on; an arrow marks an interval that leaves the axes)."
)
_STARS = (
    " A star says that the processors may have been the limit, of the point or of its base: such "
    "points claim no efficiency."
)

_WEAK = (
    "Scaling is weak: each worker keeps its batch, so the global batch (in brackets) grows with "
    "the workers."
)

_LEFT_OUT = " Other settings have a figure of their own."

_BOUNDS = (
    "Thin dashed lines with hollow markers are the bound that the links of those runs set, with "
    "perfect overlap; there is none within one host."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureKind:
    """A sort of figure.

    Attributes:
        plot: returns None where a case has nothing to show.
        shows_changed: points with many different settings of the exchange can be told apart in it.
    """

    name: str
    title: str
    caption: str
    plot: Callable[[Case], Figure | None]
    shows_changed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedFigure:
    """A figure on disk."""

    title: str
    caption: str
    png: Path
    svg: Path


KINDS = (
    FigureKind(
        name="throughput",
        title="Throughput against workers",
        caption=f"{_LAUNCHES} The dotted line is workers times the rate of strategy single. "
        "Asynchronous settings (ps_async, stock_ps) do not compute the same as synchronous ones. "
        "stock_ps and stock_allreduce are TensorFlow as it ships. "
        f"{_BOUNDS}",
        plot=plot_throughput,
    ),
    FigureKind(
        name="speedup",
        title="Speed-up against workers",
        caption=f"On both bases: strategy single with one worker's cores and threads, and one "
        f"worker of the same setting. {_WEAK} {_LAUNCHES} {_BOUNDS}",
        plot=plot_speedup,
    ),
    FigureKind(
        name="efficiency",
        title="Efficiency against workers",
        caption=f"Speed-up over workers. {_WEAK} {_BOUNDS}",
        plot=plot_efficiency,
    ),
    FigureKind(
        name="exchange",
        title="What each setting of the exchange changes",
        caption="Each row is a setting of the exchange, held against the setting of the title, by "
        f"launches of the same turn where both have it. {_LAUNCHES} Intervals are "
        "corrected for their number (Holm). Hollow markers are undecided.",
        plot=plot_exchange,
        shows_changed=True,
    ),
    FigureKind(
        name="ladder",
        title="From TensorFlow as it ships to the suite's defaults",
        caption="Each rung changes one thing of the rung above it. Beside it is the ratio of both "
        "rates, by launches of the same turn where both have it, with an interval that is "
        "corrected for the number of comparisons (Holm). Where a model has no batch norm, there "
        f"is no rung for its statistics. {_LAUNCHES} Hollow markers: whether the rung brings "
        "anything is undecided.",
        plot=plot_ladder,
        shows_changed=True,
    ),
    FigureKind(
        name="servers",
        title="Throughput against parameter servers",
        caption=f"{_LAUNCHES} Asynchronous settings do not compute the same as synchronous ones "
        "and stand apart. A grey dashed line across, where there is one, is all-reduce with as "
        "many workers.",
        plot=plot_against_servers,
    ),
    FigureKind(
        name="packs",
        title="Throughput against bytes per pack",
        caption="All-reduce with TensorFlow's own packs, and in buckets; sizes stand at equal "
        f"distances. {_LAUNCHES}",
        plot=plot_against_packs,
    ),
    FigureKind(
        name="placement",
        title="Placement: bytes per server, and throughput",
        caption="Trainable bytes on each parameter server, read back from the devices. The number "
        "beside a bar is the hottest server's load over the mean; 1.00 is balanced.",
        plot=plot_placement,
    ),
    FigureKind(
        name="breakdown",
        title="Where the time of a step goes",
        caption="Means over steps, workers and launches, by what there is to gain. Compute is that "
        "of the worker with least; a slow worker is what the one with most has beyond it. What the "
        "busiest link would save with equal servers, and with equal links, has parts of its own. "
        "The table of parts has the same time by what workers do.",
        plot=plot_breakdown,
        shows_changed=True,
    ),
    FigureKind(
        name="explanation",
        title="Why one setting is faster than another",
        caption="Each bar is a pair that differs by the rule of decision: how many milliseconds "
        "each part of a mean step has more at the setting that is named first, or to the left of 0 "
        "less. The parts add up to the difference (diamond). Where the global batches differ, the "
        "step of the first one is taken for as many examples. Intervals are in the table.",
        plot=plot_explanation,
        shows_changed=True,
    ),
)


def save_figures(case: Case, folder: Path, alone: bool) -> Sequence[SavedFigure]:
    """Draw and write all figures of a case.

    Args:
        alone: the case is the only one of its sweep, so file names need not tell it apart.

    Raises:
        UserError: no permission, or no space left.
    """
    saved = []
    unchanged = without_changed(case)
    for kind in KINDS:
        drawn = case if kind.shows_changed else unchanged
        figure = kind.plot(drawn)
        if figure is not None:
            name = kind.name if alone else f"{kind.name}-{slug(case.name)}"
            caption = kind.caption + _LEFT_OUT * (drawn is not case)
            caption += _STARS * any(point.mark for point in drawn.points)
            paths = save_figure(figure, folder, name)
            saved.append(SavedFigure(title=kind.title, caption=caption, **paths))
    return saved


def slug(name: str) -> str:
    """A name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")
