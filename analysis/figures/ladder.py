"""The ladder: examples per second on every rung, and what each brings over the one before.

A case in, a figure out, or None where a case has no ladder.
"""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.figures.marks import data_of, marks_of, note_signs
from analysis.figures.rows import Row, draw_row, name_rows
from analysis.figures.style import COLOURS, MARKERS, WIDTH, legend_of_figure, name_figure, style
from analysis.stats.decision import Decision, Outcome
from analysis.stats.decisions import decisions
from analysis.stats.pairs.ladders import Ladder, ladders
from analysis.stats.statistics import estimate
from analysis.wording import ratio, with_interval, workers_text
from ps_allreduce.point.strategies.stock import Rung

#: Sizes, inches.
_ROW_HEIGHT, _AROUND_ROWS = 0.3, 0.8

_SHOWN = (Outcome.FASTER, Outcome.SLOWER, Outcome.EQUAL)


def plot_ladder(case: Case) -> Figure | None:
    """A panel for each side, with its rungs from top to bottom."""
    found = list(ladders(case))
    if not found:
        return None
    heights = [len(ladder.rungs) * _ROW_HEIGHT + _AROUND_ROWS for ladder in found]
    right = max((rate for each in found for p in each.points for rate in p.rates), default=1.0)
    with style():
        figure = Figure(figsize=(WIDTH, sum(heights) + 0.5), layout="constrained")
        name_figure(figure, case.name)
        grid = figure.subplots(len(found), 1, squeeze=False, height_ratios=heights, sharex=True)
        for number, (ladder, axes) in enumerate(zip(found, grid[:, 0], strict=True)):
            _draw_rungs(axes, case, ladder, (0.0, right * 1.15), number)
        axes.set_xlabel(f"{case.unit}/s")
        rungs = {point for ladder in found for point in ladder.points}
        note_signs(axes, marks_of(case, "rate")[[point in rungs for point in case.points]])
        legend_of_figure(figure, [axes])
    return figure


def ladder_data(case: Case) -> pd.DataFrame:
    """Every rung with its throughput, and its ratio over the rung before."""
    rates = data_of(marks_of(case, "rate"))
    rows = []
    for ladder in ladders(case):
        ratios = [(None, None, None), *(each.ends for each in _brought(case, ladder))]
        for (rung, point), (ratio_of, low, high) in zip(ladder.rungs, ratios, strict=True):
            own = rates.iloc[list(case.points).index(point)]
            brought = {"ratio": ratio_of, "ratio_low": low, "ratio_high": high}
            rows.append({"ladder": ladder.name, "rung": rung.name, **own, **brought})
    return pd.DataFrame(rows)


def _brought(case: Case, ladder: Ladder) -> list[Decision]:
    """What every rung but the first may be said to bring."""
    return [decisions(case).of(one, other) for other, one in pairwise(ladder.points)]


def _draw_rungs(
    axes: Axes, case: Case, ladder: Ladder, limits: tuple[float, float], number: int
) -> None:
    before = [None, *_brought(case, ladder)]
    for y, (point, decision) in enumerate(zip(ladder.points, before, strict=True)):
        _draw_rung(axes, point, decision, y, limits, number)
    name_rows(axes, [_name(rung, point) for rung, point in ladder.rungs])
    axes.set_xlim(limits)
    axes.set_title(f"{ladder.name}, {workers_text(ladder.num_workers)}", loc="left")
    axes.text(1.01, 1.0, "over the one before", transform=axes.transAxes, va="bottom")
    beside = axes.secondary_yaxis("right")
    beside.spines["right"].set_visible(False)
    texts = ["" if each is None else with_interval(ratio, *each.ends) for each in before]
    beside.set_yticks(range(len(texts)), texts)
    beside.tick_params(length=0)


def _name(rung: Rung, point: Point) -> str:
    """With the launches that are ok, of those planned, where some are missing."""
    missing = len(point.rates) < point.planned
    return f"{rung.name} ({len(point.rates)}/{point.planned})" if missing else rung.name


def _draw_rung(
    axes: Axes,
    point: Point,
    decision: Decision | None,
    y: int,
    limits: tuple[float, float],
    number: int,
) -> None:
    colour = COLOURS[number]
    if point.rates.empty:
        axes.text(0.0, y, " no launch ended well", color=colour, va="center", fontsize=7)
        return
    row = Row(
        y=y,
        launches=[*point.rates],
        ends=estimate(point.rates).ends,
        colour=colour,
        marker=MARKERS[number],
        filled=decision is None or decision.outcome in _SHOWN,
        starred=bool(point.mark),
    )
    draw_row(axes, row, limits)
