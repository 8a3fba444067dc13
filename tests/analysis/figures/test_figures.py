"""The race of a tuning as a figure: a line for each side, a marker where the lead changes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.data.cases import Case, make_cases
from analysis.data.setting import MAX_TOGETHER
from analysis.figures.against_workers import (
    plot_against_packs,
    plot_against_servers,
    plot_efficiency,
    plot_throughput,
    setting_groups,
)
from analysis.figures.bars import plot_breakdown, plot_placement
from analysis.figures.contenders import contenders_data, pair_axis, plot_contenders
from analysis.figures.curves import coloured, label_ends
from analysis.figures.marks import BOUND, STARRED, top_of
from analysis.figures.marks import FAILED as NOT_OK
from analysis.figures.point_rows import draw_rows, name_rows
from analysis.figures.race import plot_foretold, plot_race
from analysis.figures.save import KINDS, save_figures
from analysis.figures.style import (
    INK,
    SIDE_COLOURS,
    cut_labels,
    finish_grid,
    new_figure,
    render_figure,
    style,
    touching,
)
from analysis.report.pages.case_pages import unclaimed_lines
from analysis.stats.points import point_table
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.sides import ALLREDUCE, PS_ASYNC, PS_SYNC, SideKind
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    NoCommunication,
    Single,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import (
    case_of,
    links_between,
    on_own_hosts,
    placement_used,
    runs,
    table_of,
    tasks_on,
)
from tests.fakes import make_experiment

GOOD = {0: 100.0, 1: 110.0, 2: 95.0}
RATES: dict[int, float | None] = {**GOOD}
FAILED: dict[int, float | None] = {0: None, 1: None}
SINGLE = runs(make_experiment(Single), RATES)
RING = [record for n in (1, 2) for record in runs(make_experiment(AllReduce, n), RATES)]
SERVERS = [
    record
    for strategy in (SynchronousServers, AsynchronousServers)
    for count in (1, 2, 4)
    for policy in Policy
    for record in runs(
        make_experiment(strategy, 2, num_ps=count, placement=policy),
        RATES,
        placement=placement_used(*range(1, count + 1)),
    )
]


def drawn(figure: Figure | None) -> Figure:
    assert figure is not None
    return figure


def titles(figure: Figure | None) -> list[str]:
    return [axes.get_title(loc="left") for axes in drawn(figure).axes]


def ticks(figure: Figure | None) -> list[str]:
    return [text.get_text() for text in drawn(figure).axes[0].get_xticklabels()]


def legend(figure: Figure | None) -> list[str]:
    figure = drawn(figure)
    holders = [*figure.legends, *(a.get_legend() for a in figure.axes if a.get_legend())]
    return [text.get_text() for holder in holders if holder for text in holder.get_texts()]


def rows(figure: Figure | None) -> list[str]:
    return [text.get_text() for text in drawn(figure).axes[0].get_yticklabels()]


def texts(figure: Figure | None) -> list[str]:
    return [text.get_text() for axes in drawn(figure).axes for text in axes.texts]


def reduced(*workers: int) -> list[RunRecord]:
    return [record for n in workers for record in runs(make_experiment(AllReduce, n), RATES)]


def test_two_numbers_of_workers_are_marks_on_the_row_of_their_setting() -> None:
    figure = plot_throughput(case_of(SINGLE, RING))
    assert rows(figure) == ["single", "all-reduce"]
    assert legend(figure) == ["1 worker", "2 workers", "one launch each"]
    # Twice 100 images/s would be ideal; that is beyond the axis.
    assert texts(figure) == ["3/3", "3/3", "3/3", "1 x single"]
    assert drawn(figure).axes[0].get_xlim() == pytest.approx((0, 1.3 * 110))


def test_three_numbers_of_workers_are_lines_with_a_tick_for_each() -> None:
    figure = plot_throughput(case_of(SINGLE, reduced(1, 2, 4)))
    (axes,) = drawn(figure).axes
    # Doublings are equally far apart.
    assert list(axes.get_xticks()) == [0, 1, 2]
    assert ticks(figure) == ["1", "2", "4"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("workers", "images/s")
    assert legend(figure) == ["workers x single", "single", "one launch each"]
    assert texts(figure) == ["all-reduce"]
    # The ideal line ends at four times 100 images/s; it leaves the axes.
    assert axes.get_ylim() == pytest.approx((0, 1.3 * 110))


def test_failures_are_drawn_and_counted_and_break_the_line() -> None:
    lost = runs(make_experiment(AllReduce, 2), FAILED)
    figure = plot_throughput(case_of(SINGLE, reduced(1, 4, 8), lost))
    assert NOT_OK in legend(figure)
    assert "0/2" in texts(figure)
    drawn_lines = [np.asarray(line.get_xydata()) for line in drawn(figure).axes[0].get_lines()]
    line = next(each for each in drawn_lines if len(each) == 4)
    assert np.isnan(line[:, 1]).tolist() == [False, True, False, False]
    figure = plot_throughput(case_of(SINGLE, lost))
    assert {"0/2", "   no launch ended well"} <= set(texts(figure))
    assert NOT_OK in legend(figure)


def test_what_claims_no_efficiency_says_so() -> None:
    crowded = runs(make_experiment(AllReduce, 2), RATES, oversubscribed=True)
    figure = plot_efficiency(case_of(SINGLE, crowded, reduced(1)))
    assert any("not claimed" in text for text in texts(figure))
    # Where nothing is claimed there is nothing to draw: a sentence says why.
    nothing = case_of(SINGLE, crowded)
    assert plot_efficiency(nothing) is None
    (sentence,) = unclaimed_lines(nothing)
    assert sentence.startswith(
        "Efficiency (base: a single worker) is not claimed where processors "
    )
    assert unclaimed_lines(case_of(SINGLE, RING)) == []
    figure = plot_efficiency(case_of(SINGLE, crowded, reduced(1, 4)))
    assert stars(figure) == 1
    assert STARRED in legend(figure)


def test_an_efficiency_that_is_not_claimed_has_its_own_reason() -> None:
    free = runs(make_experiment(AsynchronousServers, 2), RATES)
    table, records = table_of([*SINGLE, *reduced(2), *free])
    table.loc[(table["strategy"] == "ps_async").to_numpy(), "largest_share"] = 0.9
    (case,) = make_cases(table, records)
    told = [text for text in texts(plot_efficiency(case)) if "not claimed" in text]
    assert told == ["   not claimed: one worker made far more steps than others"]


def test_labels_beside_lines_keep_apart() -> None:
    figure = Figure()
    axes = figure.subplots()
    axes.set_ylim(0, 100)
    ends = {"a": 50.0, "b": 50.5, "c": 90.0}
    marks = {name: pd.DataFrame({"x": [1, 2], "mean": [10.0, y]}) for name, y in ends.items()}
    label_ends(axes, marks)
    heights = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert heights["b"] - heights["a"] == pytest.approx(5.5)
    assert heights["b"] + heights["a"] == pytest.approx(100.5)
    assert heights["c"] == 90.0


def side_colours(figure: Figure | None) -> set[str]:
    """Of sides, those that means are drawn in."""
    lines = [line for axes in drawn(figure).axes for line in axes.get_lines()]
    found = {to_hex(line.get_color()) for line in lines if len(np.asarray(line.get_xdata()))}
    return found & {SIDE_COLOURS[side.name] for side in (ALLREDUCE, PS_SYNC, PS_ASYNC)}


@pytest.mark.parametrize(
    ("strategy", "side"),
    [(AllReduce, ALLREDUCE), (SynchronousServers, PS_SYNC), (AsynchronousServers, PS_ASYNC)],
)
def test_a_side_has_one_colour_in_all_figures(strategy: type[AnyStrategy], side: SideKind) -> None:
    points = [make_experiment(strategy, n) for n in (1, 2, 4)]
    few, many = (case_of(*(runs(own, RATES) for own in some)) for some in (points[:2], points))
    figures = [plot_throughput(few), plot_throughput(many)]
    assert [side_colours(each) for each in figures] == [{SIDE_COLOURS[side.name]}] * 2


def test_a_star_stands_beside_the_mean_where_the_bound_does_not() -> None:
    figure, (axes,) = new_figure(1, 1, 2.0)
    values = {"mean": 1.0, "low": 0.9, "high": 1.1, "bound": 1.02, "y": 0.0, "ok": 3, "planned": 3}
    marks = pd.DataFrame([{**values, "failed": 0, "starred": True, "launches": (1.0,)}])
    draw_rows(axes, marks, (INK, "o"), (0.0, 2.0))
    (star,) = [line for line in axes.get_lines() if line.get_marker() == (6, 2, 0)]
    places = [star.get_transform().transform((1.0, 0.0)), axes.transData.transform((1.0, 0.0))]
    assert places[0][0] < places[1][0]
    assert render_figure(figure, "svg")


def stars(figure: Figure | None) -> int:
    """How many points have a star."""
    lines = [line for axes in drawn(figure).axes for line in axes.get_lines()]
    return sum(line.get_marker() == (6, 2, 0) and line.get_label() != STARRED for line in lines)


def test_all_figures_of_rates_have_stars_where_the_table_has_them() -> None:
    points = [make_experiment(SynchronousServers, 2, num_ps=count) for count in (1, 3, 2)]
    crowded = [
        record for own in points for record in runs(own, RATES, oversubscribed=own.num_ps == 2)
    ]
    case = case_of(SINGLE, crowded)
    assert list(point_table(case)["marks"]) == ["", "", "*", ""]
    for plot in (plot_throughput, plot_against_servers, plot_placement):
        assert stars(plot(case)) == 1
        assert STARRED in legend(plot(case))
    bars = [text.get_text() for text in drawn(plot_breakdown(case)).axes[0].get_yticklabels()]
    assert [label.endswith(" *") for label in bars] == [False, False, True, False]
    assert STARRED not in legend(plot_throughput(case_of(SINGLE, crowded[:3])))


def test_too_many_settings_get_axes_per_strategy() -> None:
    case = case_of(SINGLE, RING, SERVERS)
    groups = setting_groups(case.settings)
    # Those with as many servers stand beside each other.
    assert list(groups) == ["without servers"] + [
        f"{strategy}, {count} ps" for count in (1, 2, 4) for strategy in ("ps_async", "ps_sync")
    ]
    assert all(len(settings) <= MAX_TOGETHER for settings in groups.values())
    # The figure against servers shows the same points.
    assert plot_throughput(case) is None


def test_panels_share_scales_and_a_legend() -> None:
    kinds, policies = (SynchronousServers, AsynchronousServers), list(Policy)
    points = [
        make_experiment(kind, workers, num_ps=2, placement=policy)
        for kind in kinds
        for policy in policies
        for workers in (1, 2, 4)
    ]
    # What sends nothing is far above the others, and would press them to the bottom.
    silent = runs(make_experiment(Single), {turn: 9.0 * rate for turn, rate in GOOD.items()})
    case = case_of(silent, *(runs(own, RATES) for own in points))
    figure = drawn(plot_throughput(case))
    assert titles(figure) == ["ps_async", "ps_sync"]
    assert {axes.get_ylim() for axes in figure.axes} == {(0.0, 1.3 * 110)}
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert [name for name in legend(figure) if name in {str(each) for each in policies}] == policies


INTERVALS = [(540.0, 560.0), (590.0, 600.0)]


@pytest.mark.parametrize(
    ("intervals", "others", "least"),
    [
        (INTERVALS, [], 0.88),
        (INTERVALS, [5000.0, 2.0, 545.0], 0.88),
        (INTERVALS, [530.0, 610.0, 5000.0], 1 / 3),
        (INTERVALS[:1], [500.0 + number for number in range(200)], 1 / 3),
        ([], [550.0, 551.0], 0.0),
        ([], [550.0], 0.0),
    ],
)
def test_intervals_of_what_is_compared_fill_a_third_of_their_axis(
    intervals: list[tuple[float, float]], others: list[float], least: float
) -> None:
    low, high = pair_axis(intervals, others)
    ends = [end for interval in intervals for end in interval] or others
    assert low < min(ends) <= max(ends) < high
    assert (max(ends) - min(ends)) / (high - low) >= least - 1e-9


def test_what_is_near_to_the_intervals_is_on_their_axis() -> None:
    low, high = pair_axis(INTERVALS, [535.0, 5000.0])
    assert low < 535.0
    assert high < 5000.0


def test_the_first_figure_shows_what_the_verdict_compares_whatever_else_was_measured() -> None:
    fast = {turn: 30.0 * rate for turn, rate in GOOD.items()}
    silent = [own for n in (1, 4) for own in runs(make_experiment(NoCommunication, n), fast)]
    slower: dict[int, float | None] = {0: 90.0, 1: 97.0, 2: 91.0}
    sides = runs(make_experiment(AllReduce, 4), RATES)
    sides += runs(make_experiment(SynchronousServers, 4), slower)
    shipped = runs(make_experiment(StockServers, 4), {turn: 0.2 * x for turn, x in GOOD.items()})
    case = case_of(runs(make_experiment(Single), fast), silent, sides, shipped)
    above, below = drawn(next(f for kind in KINDS if (f := kind.plot(case)))).axes
    names = [text.get_text() for text in above.get_yticklabels()]
    assert names == ["all-reduce\n3 launches", "ps_sync, round_robin\n3 launches"]
    assert above.get_xlabel() == "images/s; this axis does not begin at 0"
    lows, highs = contenders_data(case)[["low", "high"]][:2].to_numpy().T
    left, right = above.get_xlim()
    assert left < lows.min() <= highs.max() < right
    assert (highs.max() - lows.min()) / (right - left) >= 1 / 3
    # Below are all that exchange gradients, with bars from 0.
    assert [text.get_text() for text in below.get_yticklabels()] == [
        "all-reduce",
        "ps_sync, round_robin",
        "stock_ps, round_robin",
    ]
    assert below.get_xlim()[0] == 0.0
    assert {patch.get_x() for patch in below.patches if isinstance(patch, Rectangle)} == {0.0}


def test_launches_too_few_for_an_interval_are_on_the_axis_of_what_is_compared() -> None:
    ring = runs(make_experiment(AllReduce, 4), RATES)
    for other in (20.0, 500.0):
        servers = runs(make_experiment(SynchronousServers, 4), {0: other})
        above = drawn(plot_contenders(case_of(SINGLE, ring, servers))).axes[0]
        left, right = above.get_xlim()
        assert left < other < right


def test_a_line_breaks_at_numbers_of_workers_that_a_setting_does_not_have() -> None:
    placed = {Policy.ROUND_ROBIN: (1, 4), Policy.GREEDY: (1, 2, 4)}
    points = [
        make_experiment(SynchronousServers, n, num_ps=1, placement=policy)
        for policy, workers in placed.items()
        for n in workers
    ]
    (axes,) = drawn(plot_throughput(case_of(SINGLE, *(runs(own, RATES) for own in points)))).axes
    lines = [
        np.asarray(line.get_ydata()) for line in axes.get_lines() if str(line.get_marker()) in "os^"
    ]
    breaks = [np.isnan(line).tolist() for line in lines if len(line)]
    assert sorted(breaks) == [[False], [False, False, False], [False, True, False]]


def test_no_two_settings_of_a_figure_look_alike() -> None:
    labels = [f"setting {number}" for number in range(30)]
    marks = coloured(pd.DataFrame({"label": labels, "side": [PS_SYNC.name] * 30}))
    assert not marks.duplicated(["colour", "marker"]).any()


def test_no_key_and_no_title_is_cut() -> None:
    title = "stock_ps, round_robin, dense embeddings, 8 steps per dispatch, defaults, 4 workers"
    for shape in ((1, 1), (1, 2), (2, 2)):
        with style():
            figure, grid = new_figure(*shape, 2.2 * shape[0])
            for axes in grid:
                axes.plot([0.0, 1.0], [0.0, 1.0], label=title)
                axes.set_title(title, loc="left")
            finish_grid(figure, grid, min(len(grid), 3), ("x", "y"))
        render_figure(figure, "png")
        assert cut_labels(figure) == []
        holders = [*figure.legends, *filter(None, (axes.get_legend() for axes in figure.axes))]
        (key,) = (text.get_window_extent() for holder in holders for text in holder.get_texts())
        assert figure.bbox.x0 <= key.x0 <= key.x1 <= figure.bbox.x1


def test_curves_of_one_strategy_are_told_apart_by_their_servers_too() -> None:
    served = [
        (kind, workers, count, policy)
        for kind in (SynchronousServers, AsynchronousServers)
        for workers in (1, 2, 4)
        for count in (1, 2, 4)
        for policy in (Policy.ROUND_ROBIN, Policy.PARTITIONED)[: 1 + (count > 1)]
        if count <= workers
    ]
    points = [
        make_experiment(kind, workers, num_ps=count, placement=policy)
        for kind, workers, count, policy in served
    ]
    case = case_of(SINGLE, *(runs(own, RATES) for own in points))
    for figure in (plot_throughput(case), plot_efficiency(case)):
        assert titles(figure) == ["ps_async", "ps_sync"]
        assert [name for name in legend(figure) if name.endswith(" ps")] == [
            "round_robin, 1 ps",
            "round_robin, 2 ps",
            "partitioned, 2 ps",
            "round_robin, 4 ps",
            "partitioned, 4 ps",
        ]


def test_what_sends_nothing_makes_no_curves_of_the_rest() -> None:
    silent = [own for n in (1, 2, 4) for own in runs(make_experiment(NoCommunication, n), RATES)]
    placed = [
        record
        for policy in Policy
        for record in runs(make_experiment(SynchronousServers, 4, placement=policy), RATES)
    ]
    expected = ["no_communication", *(f"ps_sync, {policy}" for policy in Policy)]
    assert rows(plot_efficiency(case_of(SINGLE, silent, placed))) == expected


def test_one_side_alone_has_a_row_for_each_setting_at_the_most_workers() -> None:
    rates = {Policy.ROUND_ROBIN: 1.0, Policy.GREEDY: 3.0, Policy.PARTITIONED: 2.0}
    servers = [
        record
        for policy, factor in rates.items()
        for workers in (1, 2)
        for record in runs(
            make_experiment(SynchronousServers, workers, num_ps=2, placement=policy),
            {turn: factor * rate for turn, rate in GOOD.items()},
        )
    ]
    case = case_of(SINGLE, servers)
    fastest_first = ["ps_sync, greedy", "ps_sync, partitioned", "ps_sync, round_robin"]
    compared, beside = drawn(plot_contenders(case)).axes
    assert [text.get_text() for text in beside.get_yticklabels()] == fastest_first
    assert [text.get_text().split("\n")[0] for text in compared.get_yticklabels()] == [
        "ps_sync, greedy",
        "ps_sync, round_robin",
    ]
    assert contenders_data(case)["num_workers"].tolist() == [2, 2, 2]


def test_servers_are_drawn_where_their_number_varies() -> None:
    figure = plot_against_servers(case_of(SERVERS, RING))
    kinds = ("asynchronous", "synchronous")
    assert titles(figure) == [f"2 workers, {kind}" for kind in kinds]
    assert "all-reduce, same workers" in legend(figure)
    for records in (RING, runs(make_experiment(SynchronousServers, 2), RATES)):
        assert plot_against_servers(case_of(records)) is None


def test_buckets_stand_apart_from_packs() -> None:
    sizes = (0, 500_000, None)
    case = case_of(
        *(
            runs(make_experiment(AllReduce, workers, bytes_per_pack=n), RATES)
            for n in sizes
            for workers in (2, 4)
        )
    )
    figure = plot_against_packs(case)
    assert ticks(figure) == ["0.5 MB", "one pack", "buckets"]
    assert legend(figure) == ["all-reduce, 2 workers", "all-reduce, 4 workers", "one launch each"]
    assert texts(figure) == ["all-reduce, buckets, 2 workers", "all-reduce, buckets, 4 workers"]


EMULATED = Workload(emulated=EmulatedCompute(forward_s=0.001, backward_s=0.001))


SINGLE_FAST = runs(make_experiment(Single, workload=EMULATED), {0: 500.0})


def bounded(workers: int) -> list[RunRecord]:
    """All-reduce on hosts of their own, at half of a bound of 1000 images/s."""
    # 16 images per worker and step: 16 ms for each worker, 1 ms of them forward.
    network_s = 0.016 * workers - 0.001
    crossing = 2 * (workers - 1) / workers * 10_000
    return runs(
        make_experiment(AllReduce, workers, workload=EMULATED),
        {0: 500.0},
        gradient_bytes=10_000,
        **on_own_hosts(workers, bits_per_s=8 * crossing / network_s),
    )


@pytest.mark.parametrize(("plot", "height"), [(plot_throughput, 1000.0), (plot_efficiency, 0.5)])
def test_bounds_stand_beside_curves_where_a_network_sets_them(
    plot: Callable[[Case], Figure | None], height: float
) -> None:
    case = case_of(*(bounded(workers) for workers in (1, 2, 4)), SINGLE_FAST)
    figure = drawn(plot(case))
    assert BOUND in legend(figure)
    lines = [line for line in figure.axes[0].get_lines() if line.get_marker() == "_"]
    joined = [line for line in lines if line.get_linestyle() == "-"]
    curves = [np.asarray(line.get_xydata()) for line in joined]
    (bound,) = (curve for curve in curves if len(curve))
    # A single worker sends nothing, so there is no bound.
    assert np.isnan(bound[:, 1]).tolist() == [True, False, False]
    assert bound[-1, 1] == pytest.approx(height)
    assert figure.axes[0].get_ylim()[1] > height
    assert BOUND not in legend(plot_throughput(case_of(RING)))


def test_placement_shows_bytes_beside_throughput() -> None:
    figure = drawn(plot_placement(case_of(SERVERS)))
    assert rows(figure)[:2] == ["round_robin, 1 ps", "greedy, 1 ps"]
    assert "1.60" in [text.get_text() for text in figure.axes[0].texts]
    servers = ["hottest server", "other servers"]
    assert sorted(legend(figure)) == sorted([*servers, "ps_async", "ps_sync", "one launch each"])
    assert plot_placement(case_of(RING)) is None
    lost = runs(make_experiment(SynchronousServers, 2), FAILED)
    figure = drawn(plot_placement(case_of(lost)))
    assert [text.get_text() for text in figure.axes[1].texts] == ["   no launch ended well", "0/2"]


def test_placements_are_in_the_order_of_the_bytes_on_their_hottest_server() -> None:
    loads = {Policy.ROUND_ROBIN: (10, 90), Policy.GREEDY: (70, 30), Policy.PARTITIONED: (50, 50)}
    hosts = [f"n{number}" for number in range(4)]
    workers = {f"worker:{number}": host for number, host in enumerate(hosts)}
    around: dict[str, Any] = {
        "tasks": tasks_on(workers | {"ps:0": "n0", "ps:1": "n1"}),
        "links": links_between(hosts, 1e6),
        "gradient_bytes": 100,
    }
    served = [
        record
        for policy, sizes in loads.items()
        for record in runs(
            make_experiment(SynchronousServers, 4, num_ps=2, placement=policy, workload=EMULATED),
            RATES,
            placement=placement_used(*sizes),
            **around,
        )
    ]
    figure = drawn(plot_placement(case_of(served)))
    assert rows(figure) == ["partitioned, 2 ps", "greedy, 2 ps", "round_robin, 2 ps"]
    bars = [bar for bar in figure.axes[0].patches if isinstance(bar, Rectangle) and bar.get_width()]
    first_of_each = [bar.get_width() * 1000 for bar in bars if bar.get_x() == 0.0]
    assert first_of_each == pytest.approx([50, 70, 90])
    # The links that set the bounds are those of the hottest server.
    assert BOUND in legend(figure)
    strokes = [line for line in figure.axes[1].get_lines() if line.get_markersize() == 9]
    found = [np.asarray(line.get_xdata(), dtype=float) for line in strokes]
    bounds = [float(place[0]) for place in found if place.size]
    assert bounds == sorted(bounds, reverse=True)
    assert len(set(bounds)) == 3


def test_tensorflow_as_it_ships_is_drawn_under_names_of_its_own() -> None:
    served = [make_experiment(kind, 2) for kind in (SynchronousServers, StockServers)]
    points = [*served, make_experiment(StockAllReduce, 2)]
    case = case_of(SINGLE, RING, *(runs(own, RATES) for own in points))
    assert {"stock_ps, round_robin", "stock_allreduce"} <= set(rows(plot_throughput(case)))
    shown = rows(plot_placement(case))
    assert shown == ["round_robin, 2 ps", "round_robin, 2 ps, as shipped"]


def test_breakdown_has_a_bar_per_point_with_launches() -> None:
    case = case_of(SINGLE, RING, runs(make_experiment(SynchronousServers, 2), FAILED))
    figure = drawn(plot_breakdown(case))
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == [
        "single (1 worker)",
        "all-reduce (1 worker)",
        "all-reduce (2 workers)",
    ]
    labels = set(legend(figure))
    assert {"compute alone", "input", "exchange and update", "update", "dispatch"} <= labels


def test_a_long_name_of_a_row_takes_two_lines_and_leaves_room_for_values() -> None:
    figure, (axes,) = new_figure(1, 1, 2.0)
    long = "all-reduce, distributed evaluation, evaluation batches 32 (default)"
    name_rows(axes, ["single", long])
    own, other = drawn(figure).axes[0].get_yticklabels()
    assert own.get_text() == "single"
    assert other.get_text().split("\n") == [
        "all-reduce, distributed evaluation,",
        "evaluation batches 32 (default)",
    ]
    assert float(other.get_fontsize()) < float(own.get_fontsize())


def test_nothing_measured_draws_nothing() -> None:
    case = case_of(runs(make_experiment(AllReduce, 2), FAILED))
    assert [kind.name for kind in KINDS if kind.plot(case) is not None] == []


def test_a_huge_interval_does_not_squash_the_launches() -> None:
    marks = pd.DataFrame(
        {"launches": [(1.0, 2.0), None], "high": [100.0, None], "bound": [None] * 2}
    )
    assert top_of(marks) == pytest.approx(2.6)
    assert top_of(marks[1:]) == 1.0
    assert (top_of(marks, 8.0), top_of(marks, 1.0, 8.0)) == pytest.approx((10.4, 2.6))


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_case_gives_the_same_bytes(kind: str) -> None:
    case = case_of(SINGLE, RING)
    first, second = (render_figure(drawn(plot_throughput(case)), kind) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("most", [16_400, 310_000, 5030])
def test_numbers_of_a_scale_stand_apart_inside_the_figure(most: int) -> None:
    with style():
        figure, grid = new_figure(1, 3, 2.0)
        for axes in grid:
            axes.set_xlim(0.0, most)
    render_figure(figure, "png")
    assert not any(touching(axes) for axes in grid)
    assert all(len(axes.get_xticks()) > 1 for axes in grid)


def test_names_of_scales_do_not_run_into_each_other() -> None:
    upwards = "efficiency on as many workers that do not communicate"
    with style():
        figure, grid = new_figure(2, 1, 4.0)
        for axes in grid:
            axes.set_ylabel(upwards)
    render_figure(figure, "png")
    assert cut_labels(figure) == []
    assert all("\n" in axes.get_ylabel() for axes in grid)


def test_names_of_scales_are_on_several_lines_where_they_do_not_fit() -> None:
    across = "milliseconds of a step more than the other setting"
    upwards = "efficiency on as many workers that do not communicate"
    with style():
        figure, (axes, other) = new_figure(1, 2, 2.2)
        axes.barh(["a setting with a long name"], [1.0])
        other.set_xlabel("ms")
        axes.set_xlabel(across)
        axes.set_ylabel(upwards)
    render_figure(figure, "png")
    assert cut_labels(figure) == []
    assert "\n" in axes.get_ylabel()
    names = (axes.get_ylabel(), axes.get_xlabel())
    assert [" ".join(name.split()) for name in names] == [upwards, across]
    assert other.get_xlabel() == "ms"


def test_a_single_point_has_no_figure(tmp_path: Path) -> None:
    """The tables say as much."""
    assert save_figures(case_of(SINGLE), tmp_path, "") == []


def test_files_are_named_after_the_figure_and_where_needed_the_case(tmp_path: Path) -> None:
    case = case_of(SINGLE, RING)
    alone = save_figures(case, tmp_path, "")
    assert [each.png.name for each in alone] == [
        f"{name}.png" for name in ("throughput", "efficiency", "breakdown")
    ]
    assert alone[0].files == [f"throughput.{kind}" for kind in ("png", "svg", "pdf", "csv")]
    shared = save_figures(case, tmp_path, "SmallCNN")
    assert shared[0].svg.name == "throughput-SmallCNN.svg"
    named = [name for figure in [*alone, *shared] for name in figure.files]
    assert all((tmp_path / name).stat().st_size for name in named)
    row, *_ = pd.read_csv(alone[0].csv).to_dict("records")
    assert (row["setting"], row["num_workers"], row["ok"], row["planned"]) == ("single", 1, 3, 3)
    assert row["launches"] == "100 110 95"


def test_figures_do_not_depend_on_the_window_system_of_the_environment() -> None:
    asked = "import analysis.figures.style, matplotlib; print(matplotlib.get_backend())"
    environment = os.environ | {"MPLBACKEND": "nonsense"}
    words = [sys.executable, "-c", asked]
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.strip().lower() == "agg"


LAUNCHES = pd.DataFrame(
    [
        ("all-reduce", 0.5, 10.0, "a", 10.0),
        ("all-reduce", 1.0, 12.0, "b", 12.0),
        ("all-reduce", 1.5, None, "b", 12.0),
        ("servers", 0.5, None, None, None),
        ("servers", 1.0, 9.0, "c", 9.0),
    ],
    columns=["side", "node_minutes", "rate", "best_experiment_id", "best_rate"],
)


def test_each_side_has_a_line_and_its_launches() -> None:
    figure = plot_race(LAUNCHES, "SmallCNN, 2 hosts", "images")
    (axes,) = figure.axes
    heights = [np.asarray(line.get_ydata(), dtype=float).tolist() for line in axes.lines]
    assert heights == [[10.0, 12.0, 12.0], [pytest.approx(math.nan, nan_ok=True), 9.0]]
    assert [line.get_markevery() for line in axes.lines] == [[0, 1, 2], [0, 1]]
    assert (axes.get_ylabel(), figure.get_suptitle()) == ("images/s", "SmallCNN, 2 hosts")
    again = plot_race(LAUNCHES, "SmallCNN, 2 hosts", "images")
    assert render_figure(figure, "png") == render_figure(again, "png")


def test_a_side_without_any_good_launch_has_an_empty_line() -> None:
    assert plot_race(LAUNCHES.iloc[:4], "SmallCNN, 2 hosts", "images").axes


PREDICTED = pd.DataFrame(
    {
        "further": 2.0,
        "setting": ["allreduce", "ps_sync, partitioned", "ps_sync, round_robin"],
        "side": [ALLREDUCE.name, PS_SYNC.name, PS_SYNC.name],
        "predicted": [90.0, 110.0, 700.0],
        "low": [80.0, 100.0, 600.0],
        "high": [100.0, 120.0, 800.0],
        "measured": [91.0, 108.0, 650.0],
        "counts": True,
    }
)


def test_scales_of_predicted_rates_have_ticks_in_digits() -> None:
    figure = plot_foretold(PREDICTED, "before")
    figure.draw_without_rendering()
    low, high = figure.axes[0].get_xlim()
    named = [float(text) for text in ticks(figure) if low <= float(text) <= high]
    assert named == [100.0, 200.0, 500.0]


def test_predicted_settings_have_the_colour_of_their_side_and_markers_of_their_own() -> None:
    (axes,) = plot_foretold(PREDICTED, "before").axes
    marks = [each for each in axes.collections if isinstance(each, PathCollection)]
    colours = [to_hex(np.asarray(each.get_facecolor()).tolist()[0]) for each in marks]
    assert colours == [SIDE_COLOURS[side] for side in PREDICTED["side"]]
    assert len({np.asarray(each.get_paths()[0].vertices).tobytes() for each in marks}) == len(marks)


def test_a_legend_of_predictions_names_settings_that_do_not_count() -> None:
    apart = PREDICTED.assign(counts=[False, True, True])
    assert {*PREDICTED["setting"], "apart"} <= {*legend(plot_foretold(apart, "before"))}
    assert "apart" not in legend(plot_foretold(PREDICTED, "before"))
