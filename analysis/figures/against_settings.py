"""Throughput against the settings of each side: parameter servers, and bytes per pack.

One function per figure: a case in, a figure out, or None where a case has nothing to show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.cases import Case, Point
from analysis.figures.against_workers import finish_grid
from analysis.figures.curves import Curve, Mark, Ticks, draw_curves, note_failures, top_of
from analysis.figures.style import IDEAL, new_figure, style
from analysis.stats.points import base_rate
from analysis.stats.statistics import estimate
from analysis.wording import workers_text
from ps_allreduce.point.strategies import STRATEGIES

Series = Callable[[Point], tuple[str, int]]

#: Beyond all sizes of packs.
_ONE_PACK, _BUCKETS = 1 << 62, 1 << 63
_PLACES = {_ONE_PACK: "one pack", _BUCKETS: "buckets"}


def plot_against_servers(case: Case) -> Figure | None:
    """Examples per second against parameter servers.

    One row of axes per number of workers; synchronous and asynchronous strategies have axes of
    their own, since they do not compute the same.
    """
    with_servers = [point for point in case.points if point.setting.traits.uses_servers]
    workers = _worth_drawing(with_servers)
    strategies = list(dict.fromkeys(point.setting.strategy for point in with_servers))
    if not workers:
        return None
    cells = [(count, strategy) for count in workers for strategy in strategies]
    with style():
        figure, grid = new_figure(len(workers), len(strategies))
        for axes, (count, strategy) in zip(grid, cells, strict=True):
            row = [point for point in with_servers if point.num_workers == count]
            of_strategy = [point for point in row if point.setting.strategy == strategy]
            counts = sorted({point.experiment.num_ps for point in row})
            top = top_of(_curves(row, _server_series, counts))
            curves = _curves(of_strategy, _server_series, counts)
            _draw_series(axes, case.unit, curves, _ticks(counts), top)
            _draw_reference(axes, case, count)
            what = "synchronous" if STRATEGIES[strategy].synchronous else "asynchronous"
            axes.set_title(f"{case.name}, {workers_text(count)}: {what}", loc="left")
        finish_grid(figure, grid, len(cells), apart=False)
    return figure


def _worth_drawing(points: Sequence[Point]) -> list[int]:
    """Numbers of workers that were measured with several numbers of servers."""
    counts: dict[int, set[int]] = {}
    for point in points:
        counts.setdefault(point.num_workers, set()).add(point.experiment.num_ps)
    return sorted(workers for workers, found in counts.items() if len(found) > 1)


def _server_series(point: Point) -> tuple[str, int]:
    return point.setting.variant, point.experiment.num_ps


def _ticks(counts: Sequence[int]) -> Ticks:
    return Ticks(
        positions=tuple(float(index) for index in range(len(counts))),
        labels=tuple(str(count) for count in counts),
        axis_label="parameter servers",
    )


def plot_against_packs(case: Case) -> Figure | None:
    """Examples per second of all-reduce against the bytes of one pack, one curve per workers.

    Buckets are no pack of some size: they stand apart, and no line leads to them.
    """
    points = [point for point in case.points if point.setting.traits.uses_collective]
    sizes = sorted({_pack_place(point) for point in points})
    if len(sizes) < 2:
        return None
    ticks = Ticks(
        positions=tuple(float(index) for index in range(len(sizes))),
        labels=tuple(_PLACES[size] if size in _PLACES else f"{size / 1e6:g} MB" for size in sizes),
        axis_label="bytes per pack",
    )
    with style():
        figure, (axes,) = new_figure(1, 1)
        curves = _curves(points, _pack_series, sizes)
        _draw_series(axes, case.unit, curves, ticks, top_of(curves))
        axes.set_title(case.name, loc="left")
        finish_grid(figure, [axes], 1, apart=False)
    return figure


def _pack_series(point: Point) -> tuple[str, int]:
    packed = point.setting.bytes_per_pack is not None
    name = point.setting.strategy if packed else point.setting.label
    return f"{name}, {workers_text(point.num_workers)}", _pack_place(point)


def _pack_place(point: Point) -> int:
    """Where a point stands: by size, then one pack, which is the largest of all, then buckets."""
    size = point.setting.bytes_per_pack
    return _BUCKETS if size is None else size or _ONE_PACK


def _curves(points: Sequence[Point], series: Series, values: Sequence[int]) -> list[Curve]:
    """Curves by the name that `series` gives, at equal distances for its values."""
    marks: dict[str, list[Mark]] = {}
    for point in points:
        label, value = series(point)
        marks.setdefault(label, []).append(_mark(point, values.index(value)))
    return [Curve(label=label, marks=tuple(of_label)) for label, of_label in marks.items()]


def _mark(point: Point, x: float) -> Mark:
    """The throughput of a point."""
    failed = len(point.unusable)
    if point.rates.empty:
        return Mark(x=x, failed=failed)
    mean = estimate(point.rates)
    return Mark(
        x=x,
        launches=tuple(point.rates),
        mean=mean.mean,
        low=mean.low,
        high=mean.high,
        failed=failed,
    )


def _draw_series(axes: Axes, unit: str, curves: Sequence[Curve], ticks: Ticks, top: float) -> None:
    draw_curves(axes, curves, ticks, top)
    note_failures(axes, curves)
    axes.set_ylabel(f"{unit}/s")


def _draw_reference(axes: Axes, case: Case, workers: int) -> None:
    """All-reduce at the same number of workers, as a line to compare with."""
    for point in case.points:
        rate = base_rate(point)
        if point.setting.traits.uses_collective and point.num_workers == workers and rate:
            axes.axhline(
                rate,
                color=IDEAL,
                linewidth=1.0,
                linestyle=(0, (4, 2)),
                label=f"{point.setting.label}, same workers",
            )
            axes.set_ylim(0, max(axes.get_ylim()[1], rate * 1.1))
