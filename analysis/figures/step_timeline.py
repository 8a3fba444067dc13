"""One traced step of each strategy: what every worker did in it, and the way of every message.

A case in, a figure out, or None where no step was traced.  Decides which step is shown; what its
parts are is decided in `analysis.timeline.traced`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.figures.style import (
    COLOURS,
    HATCHES,
    IDEAL,
    PAPER,
    bar_fill,
    legend_of_figure,
    name_figure,
    style,
)
from analysis.timeline.traced import Span, TracedRun, Way, parts_of, traced_run, ways_of
from analysis.wording import workers_text
from ps_allreduce.record.step_table import StepTable

#: More than these are not read: strategies, and workers of each.
MOST_STRATEGIES, MOST_WORKERS = 6, 4

#: Sizes, inches: a row with messages, and one without.
_WIDTH, _ROW_HEIGHT, _BARE_HEIGHT, _AROUND_ROWS = 7.4, 0.5, 0.28, 0.4

#: Of a row: the bar of the step, and the room of the messages below it.
_BAR, _MESSAGES = 0.3, 0.52

UNSEEN = "a step that nobody sees into"
UNDER_WAY = "message under way"
_PARTS: dict[str, Any] = {
    "forward": bar_fill(0),
    "backward": {**bar_fill(0), "hatch": HATCHES[1], "edgecolor": PAPER},
    "exchange": {"facecolor": "#DDDDDD", "edgecolor": "#7F7F7F", "linewidth": 0.6},
    "update": {"facecolor": "#DDDDDD", "edgecolor": "#7F7F7F", "linewidth": 0.6},
    "input wait": bar_fill(2),
    UNSEEN: {"facecolor": "white", "edgecolor": "black", "linewidth": 0.6},
}

#: The parts of a message's way: from which moment to which, what it is called, how it is drawn:
#: colour, width of a line among few and among many, dashes.
_WAY = (
    ("ready", "turn", "gradient waits for its turn", (COLOURS[4], 0.8, 0.1, (0, (1, 1.5)))),
    ("turn", "acknowledged", UNDER_WAY, (COLOURS[6], 1.5, 0.9, "solid")),
    ("acknowledged", "back", "acknowledged, waits for its value", (COLOURS[7], 0.7, 0.4, "solid")),
)

#: Of so many messages in a row the widest lines just do not touch.
_MESSAGES_APART = 12


def plot_timeline(case: Case) -> Figure | None:
    """A panel for each strategy, with a row for each worker."""
    shown = shown_runs(case)
    if not shown:
        return None
    rows = [min(point.num_workers, MOST_WORKERS) for point, _ in shown]
    heights = [
        count * (_ROW_HEIGHT if run.communicates else _BARE_HEIGHT) + _AROUND_ROWS
        for count, (_, run) in zip(rows, shown, strict=True)
    ]
    with style():
        figure = Figure(figsize=(_WIDTH, sum(heights) + 1.2), layout="constrained")
        name_figure(figure, case.name)
        grid = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights, sharex=True)
        for (point, run), axes in zip(shown, grid[:, 0], strict=True):
            _draw(axes, point, run)
        grid[-1, 0].set_xlabel("ms since the step began")
        grid[-1, 0].set_xlim(left=0.0)
        legend_of_figure(figure, [*grid[:, 0]])
    return figure


def timeline_data(case: Case) -> pd.DataFrame:
    """What is drawn, in ms since the shown step began: parts of steps, and ways of messages."""
    return pd.DataFrame(
        row
        for point, run in shown_runs(case)
        for row in _rows(run, {"setting": point.setting.label, "workers": point.num_workers})
    )


def _rows(run: TracedRun, about: Mapping[str, object]) -> Iterator[dict[str, object]]:
    begin, end = window_of(run.steps)
    yield from ({**about, **row} for row in _part_rows(run, begin, end))
    yield from ({**about, **row} for row in _message_rows(run, begin, end))


def _part_rows(run: TracedRun, begin: float, end: float) -> Iterator[dict[str, object]]:
    for worker, spans in _spans(run).items():
        for name in dict.fromkeys(span.name for span in spans):
            own = _clipped([span for span in spans if span.name == name], begin, end)
            for since, length in own:
                yield {
                    "worker": worker,
                    "part": name,
                    "begin_ms": since,
                    "end_ms": since + length,
                }


def _message_rows(run: TracedRun, begin: float, end: float) -> Iterator[Mapping[str, object]]:
    for way in ways_of(run):
        if way.ready < end and way.back > begin:
            moments = {
                "begin_ms": way.ready,
                "turn_ms": way.turn,
                "acknowledged_ms": way.acknowledged,
                "end_ms": way.back,
            }
            since_ms = {name: (moment - begin) * 1e3 for name, moment in moments.items()}
            yield {"worker": way.worker, "part": f"message {way.number}", **since_ms}


def shown_runs(case: Case) -> list[tuple[Point, TracedRun]]:
    """Of each strategy the point with the highest rate and the most workers that has traced steps.

    Strategies in which no gradient leaves its worker are shown where there are no others.
    """
    best: dict[str, tuple[Point, TracedRun]] = {}
    known = [point for point in case.points if len(point.rates)]
    for point in sorted(known, key=lambda p: (p.num_workers, p.rates.mean()), reverse=True):
        strategy = point.setting.strategy
        if strategy not in best and (run := traced_run(point)) is not None:
            best[strategy] = point, run
    kinds = dict.fromkeys(point.setting.strategy for point in case.points)
    in_order = [best[kind] for kind in kinds if kind in best]
    sent = [each for each in in_order if each[0].setting.traits.communicates()]
    return (sent or in_order)[:MOST_STRATEGIES]


def window_of(steps: StepTable) -> tuple[float, float]:
    """Begin and end of what is shown: a step of the first worker, and those of others beside it.

    Of its traced steps but the first, which follows a pause, the one with the median length.  Each
    other worker adds that step of its own which overlaps longest with it.
    """
    first, *others = steps.by_worker()
    later = first.select(np.arange(len(first)) >= min(1, len(first) - 1))
    row = np.argsort(later.end - later.start, kind="stable")[(len(later) - 1) // 2]
    begin, end = float(later.start[row]), float(later.end[row])
    spans = [(begin, end)]
    for table in others:
        overlap = np.minimum(table.end, end) - np.maximum(table.start, begin)
        if overlap.max() > 0:
            beside = int(overlap.argmax())
            spans.append((float(table.start[beside]), float(table.end[beside])))
    return min(begin for begin, _ in spans), max(end for _, end in spans)


def _draw(axes: Axes, point: Point, run: TracedRun) -> None:
    begin, end = window_of(run.steps)
    workers = np.unique(run.steps.worker)[:MOST_WORKERS].tolist()
    left_out = point.num_workers - len(workers)
    spans, ways = _spans(run), ways_of(run)
    for row, worker in enumerate(workers):
        for name, fill in _PARTS.items():
            own = [span for span in spans[worker] if span.name == name]
            if bars := _clipped(own, begin, end):
                axes.broken_barh(bars, (row - _BAR, _BAR), label=name, **fill)
        _draw_ways(axes, row, [way for way in ways if way.worker == worker], begin, end)
    axes.axvline((end - begin) * 1e3, color=IDEAL, linewidth=0.8, linestyle="--")
    middles = [row if run.communicates else row - _BAR / 2 for row in range(len(workers))]
    axes.set_yticks(middles, [f"worker:{worker}" for worker in workers])
    axes.set_ylim(len(workers) - (0.4 if run.communicates else 0.9), -0.45)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    more = f" ({left_out} more not shown)" if left_out else ""
    axes.set_title(f"{point.setting.label}, {workers_text(point.num_workers)}{more}", loc="left")


def _spans(run: TracedRun) -> dict[int, list[Span]]:
    """By worker the parts of its steps; a step that has none as a whole."""
    spans: dict[int, list[Span]] = defaultdict(list)
    rows = zip(
        run.steps.worker.tolist(), run.steps.start.tolist(), run.steps.end.tolist(), strict=True
    )
    for (worker, begin, end), parts in zip(rows, parts_of(run), strict=True):
        spans[worker] += parts or [Span(name=UNSEEN, begin=begin, end=end)]
    return spans


def _clipped(spans: Iterable[Span], begin: float, end: float) -> list[tuple[float, float]]:
    """What of it is between two moments: begin and length, in ms since the first of them."""
    inside = [(max(span.begin, begin), min(span.end, end)) for span in spans]
    return [((low - begin) * 1e3, (high - low) * 1e3) for low, high in inside if low < high]


def _draw_ways(axes: Axes, row: int, ways: Sequence[Way], begin: float, end: float) -> None:
    """A thin line for each message, those that are ready first at the top."""
    inside = [way for way in ways if way.ready < end and way.back > begin]
    if not inside:
        return
    numbers = 1 + max(way.number for way in inside)
    heights = [row + 0.03 + _MESSAGES * (way.number + 0.5) / numbers for way in inside]
    for since, until, label, (colour, width, thinnest, dashes) in _WAY:
        low, high = (
            [(min(max(getattr(way, name), begin), end) - begin) * 1e3 for way in inside]
            for name in (since, until)
        )
        shown = max(thinnest, width * min(1.0, _MESSAGES_APART / numbers))
        look: dict[str, Any] = {"colors": colour, "linestyles": dashes, "linewidths": shown}
        axes.hlines(heights, low, high, label=label, **look)
