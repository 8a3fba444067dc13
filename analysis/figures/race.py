"""The race of a tuning: the best rate so far against node minutes, a line for each side.

Which launches were made, and which setting was ahead, is decided in `experiments.tuning`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.style import (
    COLOURS,
    LINES,
    MARKERS,
    legend_of_figure,
    new_figure,
    style,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceLaunch:
    """A launch, and what was best after it.

    Attributes:
        node_minutes: hosts times minutes of all launches of its side so far.
        rate: examples per second; None where it did not end well.
        best_rate: mean of the launches of the setting that is ahead; None without any.
        overtakes: another setting is ahead than before.
    """

    node_minutes: float
    rate: float | None
    best_rate: float | None
    overtakes: bool


def plot_race(
    title: str, rates: str, sides: Sequence[tuple[str, Sequence[RaceLaunch]]]
) -> Figure:
    """Small circles are single launches; a marker stands where another setting takes the lead.

    Args:
        title: what was trained, and where.
        rates: what the vertical axis counts.
        sides: the launches of each by its name, in order.
    """
    with style():
        figure, (axes,) = new_figure(1, 1)
        for number, (name, launches) in enumerate(sides):
            _draw(axes, name, launches, number)
        axes.set_xlabel("node minutes of a side (hosts x minutes of launches)")
        axes.set_ylabel(f"best so far, {rates}")
        axes.set_title(title, loc="left")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.scatter([], [], s=6, facecolors="none", edgecolors="#444444", label="a launch")
        legend_of_figure(figure, [axes], columns=3)
    return figure


def _draw(axes: Axes, name: str, launches: Sequence[RaceLaunch], number: int) -> None:
    ahead = [(each.node_minutes, each.best_rate, each.overtakes) for each in launches]
    marked = [place for place, (*_, overtakes) in enumerate(ahead) if overtakes]
    axes.plot(
        [minutes for minutes, _, _ in ahead],
        [float("nan") if rate is None else rate for _, rate, _ in ahead],
        color=COLOURS[number],
        linestyle=LINES[number],
        linewidth=1.2,
        marker=MARKERS[number],
        markevery=[*marked, len(ahead) - 1] if ahead else None,
        markersize=6,
        markeredgecolor="white",
        markeredgewidth=0.6,
        drawstyle="steps-post",
        label=name,
        zorder=3,
    )
    made = [(each.node_minutes, each.rate) for each in launches if each.rate is not None]
    axes.scatter(
        [minutes for minutes, _ in made],
        [rate for _, rate in made],
        s=6,
        facecolors="none",
        edgecolors=COLOURS[number],
        linewidths=0.6,
        zorder=2,
    )
