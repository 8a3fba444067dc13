"""What each change brings: rungs over the one before, settings of the exchange over another.

One function per figure: a case in, a figure out, or None where a case has nothing to show.  A
hollow marker says that it is undecided whether a change brings anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.data.metric import RATE
from analysis.figures.marks import data_of, known, marks_of, note_signs, side_name
from analysis.figures.point_rows import draw_rows, finish_values, name_rows
from analysis.figures.style import (
    IDEAL,
    MARKERS,
    SIDE_COLOURS,
    legend_of_figure,
    name_figure,
    new_figure,
    style,
)
from analysis.stats.comparisons import Comparison, comparisons
from analysis.stats.decision import Decision, Outcome
from analysis.stats.points import launch_ratios, point_name
from analysis.stats.rivals import Kind
from analysis.stats.setting_pairs import Ladder, ladders, varies_exchange
from analysis.wording import ratio_text, workers_text
from ps_allreduce.point.strategies.stock import Rung

#: Inches, of a row and around all rows: of a ladder, and of the exchange.
_ROW_HEIGHT, _AROUND_ROWS = 0.3, 0.8
_CHANGE_HEIGHT, _AROUND_CHANGES = 0.24, 0.75

#: Where something is known of a change.
_SHOWN = (Outcome.FASTER, Outcome.SLOWER, Outcome.EQUAL)


def plot_ladder(case: Case) -> Figure | None:
    """A panel for each side, with its rungs from top to bottom."""
    found = list(ladders(case))
    if not found:
        return None
    heights = [len(ladder.rungs) * _ROW_HEIGHT + _AROUND_ROWS for ladder in found]
    right = 1.15 * max((r for each in found for p in each.points for r in p.rates), default=1.0)
    marks = marks_of(case, "rate").assign(bound=math.nan)
    with style():
        height = sum(heights) + 0.5
        figure, grid = new_figure(len(found), 1, height, alike="row", heights=heights)
        name_figure(figure, case.name)
        for ladder, axes in zip(found, grid, strict=True):
            rungs = [case.points.index(point) for point in ladder.points]
            _draw_rungs(axes, marks.iloc[rungs], _brought(case, ladder), right)
            name_rows(axes, [_rung_name(rung, point) for rung, point in ladder.rungs])
            axes.set_title(f"{ladder.name}, {workers_text(ladder.num_workers)}", loc="left")
        on_rungs = {point for ladder in found for point in ladder.points}
        own = marks[[point in on_rungs for point in case.points]]
        finish_values(grid[-1], own, (0.0, right), RATE.unit_of(case))
        legend_of_figure(figure, [grid[-1]])
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
    table = comparisons(case)
    rows = [table.between(one, other) for other, one in pairwise(ladder.points)]
    return [row.decision for row in rows if row]


def _draw_rungs(axes: Axes, marks: pd.DataFrame, brought: Sequence[Decision], right: float) -> None:
    """Every rung, hollow where it is undecided what it brings, and its ratio beside it."""
    filled = [True, *(decision.outcome in _SHOWN for decision in brought)]
    look = SIDE_COLOURS[marks["side"].iloc[0]], MARKERS[0]
    rows = marks.assign(y=range(len(marks)), filled=filled)
    draw_rows(axes, rows, look, (0.0, right), counted=False)
    axes.text(1.01, 1.0, "over the one before", transform=axes.transAxes, va="bottom")
    beside = axes.secondary_yaxis("right")
    beside.spines["right"].set_visible(False)
    texts = ["", *(ratio_text(*decision.ends) for decision in brought)]
    beside.set_yticks(range(len(texts)), texts)
    beside.tick_params(length=0)


def _rung_name(rung: Rung, point: Point) -> str:
    """With the launches that are ok, of those planned, where some are missing."""
    missing = len(point.rates) < point.planned
    return f"{rung.name} ({len(point.rates)}/{point.planned})" if missing else rung.name


def plot_exchange(case: Case) -> Figure | None:
    """Examples per second over those of the point that was changed, which has axes of its own."""
    if not varies_exchange(case) or any(ladders(case)):
        return None
    groups: dict[str, list[Comparison]] = {}
    for item in comparisons(case).of(Kind.CHANGED):
        groups.setdefault(point_name(item.second.best), []).append(item)
    heights = [len(items) * _CHANGE_HEIGHT + _AROUND_CHANGES for items in groups.values()]
    limits = _limits([item for items in groups.values() for item in items])
    with style():
        # The case above all axes: with a long name a title would run off the edge.
        height = sum(heights) + 1.0
        figure, grid = new_figure(len(groups), 1, height, alike="row", heights=heights)
        name_figure(figure, case.name)
        for number, (axes, (title, items)) in enumerate(zip(grid, groups.items(), strict=True)):
            _draw_changes(axes, items, MARKERS[number % len(MARKERS)], limits)
            axes.set_title(title, loc="left")
        axes.set_xlim(limits)
        axes.set_xlabel(
            f"{RATE.unit_of(case)} over those of the setting in the title (dotted line)"
        )
        note_signs(axes, _exchange_marks([item for items in groups.values() for item in items]))
        legend_of_figure(figure, [axes])
    return figure


def exchange_data(case: Case) -> pd.DataFrame:
    """Every setting of the exchange over the one that it is changed from, with its launches."""
    names = ("ratio", "low", "high")
    return pd.DataFrame(
        {
            "setting": point_name(item.first.best),
            "changed_from": point_name(item.second.best),
            **dict(zip(names, item.decision.ends, strict=True)),
            "outcome": str(item.decision.outcome),
            "launches": " ".join(f"{ratio:.6g}" for ratio in _ratios(item)),
            "ok": len(item.first.best.rates),
            "planned": item.first.best.planned,
        }
        for item in comparisons(case).of(Kind.CHANGED)
    )


def _limits(items: Sequence[Comparison]) -> tuple[float, float]:
    """Around all launches and means; an interval that is longer ends in an arrow."""
    means = [item.decision.ratio for item in items if item.decision.ratio is not None]
    ratios = [1.0, *means, *(ratio for item in items for ratio in _ratios(item))]
    margin = 0.08 * (max(ratios) - min(ratios)) or 0.1
    return min(ratios) - margin, max(ratios) + margin


def _ratios(item: Comparison) -> pd.Series:
    return launch_ratios(item.first.best.rates, item.second.best.rates)


def _exchange_marks(items: Sequence[Comparison]) -> pd.DataFrame:
    """What is drawn of each setting: ratios over the one that it is changed from."""
    names = ("mean", "low", "high")
    return pd.DataFrame(
        {
            **dict(zip(names, map(known, item.decision.ends), strict=True)),
            "launches": tuple(_ratios(item)),
            "bound": math.nan,
            "ok": len(item.first.best.rates),
            "planned": item.first.best.planned,
            "failed": len(item.first.best.unusable),
            "starred": bool(item.first.best.mark or item.second.best.mark),
            "filled": item.decision.outcome in _SHOWN,
        }
        for item in items
    )


def _draw_changes(
    axes: Axes, items: Sequence[Comparison], marker: str, limits: tuple[float, float]
) -> None:
    look = SIDE_COLOURS[side_name(items[0].second.best.setting.traits)], marker
    axes.axvline(1.0, color=IDEAL, linewidth=1.0, linestyle=(0, (1, 1)), zorder=1)
    marks = _exchange_marks(items).assign(y=range(len(items)))
    draw_rows(axes, marks.assign(unclaimed="nothing to compare with"), look, limits)
    name_rows(axes, [item.first.best.setting.exchange for item in items])
