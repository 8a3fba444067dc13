"""Sweeps of the exchange's settings and of rungs, as their reports show them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from analysis.data.cases import Case
from analysis.figures.against_workers import plot_against_packs, plot_throughput
from analysis.figures.changes import plot_exchange, plot_ladder
from analysis.figures.save import save_figures
from analysis.report.explanation import explanation_lines
from analysis.report.pages.case_pages import changed_rows
from analysis.report.pages.first_page import key_numbers
from analysis.report.verdict import verdict
from analysis.stats.comparisons import comparisons
from analysis.stats.decision import Outcome
from analysis.stats.rivals import Kind
from analysis.stats.setting_pairs import ladders, varies_exchange, without_changed
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import AllReduce, AsynchronousServers, Single, SynchronousServers
from ps_allreduce.point.strategies.stock import LADDERS, Rung
from ps_allreduce.point.wire import UNBUCKETED, Collective, Wire, WireType
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import (
    case_of,
    changed,
    changes_of,
    reported,
    run,
    runs,
    times,
    with_wire,
)
from tests.fakes import make_experiment

SYNC = make_experiment(SynchronousServers, 2)
ASYNC = make_experiment(AsynchronousServers, 2)
RING = make_experiment(AllReduce, 2, bytes_per_pack=None)
WIRES = (
    UNBUCKETED,
    *(Wire(group_bytes=size) for size in (0, 2_000_000)),
    *(Wire(cut_bytes=size) for size in (0, 125_000, 2_000_000)),
    *(Wire(in_flight=count) for count in (0, 1, 2, 16)),
    *(Wire(gradients=kind) for kind in (WireType.FLOAT16, WireType.BFLOAT16)),
)


def rates(factor: float) -> dict[int, float | None]:
    return {0: 100.0 * factor, 1: 104.0 * factor, 2: 98.0 * factor}


def packed(size: int | None) -> Experiment:
    """A ring with TensorFlow's packs of a size; None is in buckets."""
    return make_experiment(AllReduce, 2, bytes_per_pack=size)


def all_changed(base: Experiment) -> list[RunRecord]:
    """A point and one for each of the wires, faster by half."""
    others = [with_wire(base, wire) for wire in WIRES]
    return [*runs(base, rates(1.0)), *(r for own in others for r in runs(own, rates(1.5)))]


SWEEP = case_of(
    runs(make_experiment(Single), rates(1.0)), *(all_changed(own) for own in (SYNC, ASYNC, RING))
)


def test_every_changed_point_is_held_against_its_own_defaults() -> None:
    found = changes_of(SWEEP)
    assert len(found) == 3 * len(WIRES)
    assert {item.second.best.experiment for item in found} == {SYNC, ASYNC, RING}
    labels = [{point.setting.strategy for point in item.points} for item in found]
    assert {len(each) for each in labels} == {1}
    assert {round(item.decision.ratio or 0.0, 9) for item in found} == {1.5}
    assert {item.decision.outcome for item in found} == {Outcome.FASTER}


def test_chance_findings_among_many_settings_are_corrected() -> None:
    noisy: dict[int, float | None] = {0: 100.0 * 1.05, 1: 104.0 * 1.06, 2: 98.0 * 1.04}
    others = [with_wire(SYNC, wire) for wire in WIRES]
    alone = case_of(runs(SYNC, rates(1.0)), runs(others[0], noisy))
    ring = runs(RING, rates(0.5))
    among = case_of(ring, runs(SYNC, rates(1.0)), *(runs(own, noisy) for own in others))
    assert [item.decision.outcome for item in changes_of(alone)] == [Outcome.FASTER]
    assert {item.decision.outcome for item in changes_of(among)} == {Outcome.UNDECIDED}


def test_other_workers_and_packs_without_buckets_are_no_change_of_the_exchange() -> None:
    other = with_wire(replace(SYNC, num_workers=4), UNBUCKETED)
    auto = [
        make_experiment(AllReduce, 2, collective=Collective.AUTO, bytes_per_pack=size)
        for size in (0, 1_000_000)
    ]
    for pair in ((SYNC, other), auto):
        assert changes_of(case_of(*(runs(own, rates(1.0)) for own in pair))) == []


@pytest.mark.parametrize("base", [SYNC, RING])
def test_what_was_asked_for_is_what_the_others_are_held_against(base: Experiment) -> None:
    half = with_wire(base, Wire(gradients=WireType.FLOAT16))
    packs = [packed(size) for size in (0, 2_000_000)]
    others = [
        base,
        *(packs if base is RING else []),
        *(with_wire(half, Wire(gradients=WireType.FLOAT16, in_flight=count)) for count in (1, 2)),
        with_wire(half, Wire(gradients=WireType.FLOAT16, cut_bytes=0)),
    ]
    found = changes_of(case_of(*(runs(own, rates(1.0)) for own in (half, *others))))
    assert {item.second.best.experiment for item in found} == {half}
    assert {item.first.best.experiment for item in found} == set(others)


def test_packs_and_dealing_are_held_against_the_defaults() -> None:
    packs = [RING, packed(0), packed(1_000_000)]
    dealt = [ASYNC, changed(ASYNC, staleness=3), changed(ASYNC, steps_per_dispatch=2)]
    found = changes_of(case_of(*(runs(own, rates(1.0)) for own in (*packs, *dealt))))
    assert {item.second.best.experiment for item in found} == {RING, ASYNC}
    assert len(found) == 4


def test_what_failed_is_not_what_others_are_held_against() -> None:
    others = [with_wire(SYNC, Wire(in_flight=count)) for count in (1, 2)]
    lost: dict[int, float | None] = {0: None, 1: None}
    case = case_of(runs(SYNC, lost), *(runs(own, rates(1.0)) for own in others))
    assert {item.second.best.experiment for item in changes_of(case)} == {others[0]}


def test_sizes_of_packs_alone_have_a_figure_of_their_own() -> None:
    case = case_of(runs(RING, rates(1.0)), runs(packed(0), rates(1.0)))
    assert not varies_exchange(case)
    assert plot_exchange(case) is None


def test_many_changed_points_are_left_out_of_other_figures_and_few_are_not() -> None:
    kept = [point.setting.traits for point in without_changed(SWEEP).points]
    assert kept == [Single, AsynchronousServers, SynchronousServers, AllReduce]
    few = case_of(*(runs(with_wire(SYNC, wire), rates(1.0)) for wire in (Wire(), UNBUCKETED)))
    assert without_changed(few) is few


def test_packs_of_several_sizes_and_workers_keep_their_own_figure() -> None:
    case = case_of(
        *(
            runs(replace(packed(size), num_workers=workers), rates(1.0))
            for workers in (1, 2, 4)
            for size in (None, 0, 500_000, 4_000_000)
        )
    )
    assert without_changed(case) is case
    assert plot_against_packs(case) is not None


def test_settings_are_counted_and_not_their_numbers_of_workers() -> None:
    points = [
        with_wire(replace(SYNC, num_workers=workers), wire)
        for workers in (2, 3, 4, 5)
        for wire in (Wire(), *WIRES[:3])
    ]
    case = case_of(*(runs(own, rates(1.0)) for own in points))
    assert without_changed(case) is case
    assert [len(rows) for rows in row_labels(drawn(case))] == [3, 3, 3, 3]


def drawn(case: Case) -> Figure:
    figure = plot_exchange(case)
    assert figure is not None
    return figure


def row_labels(figure: Figure) -> list[list[str]]:
    return [[text.get_text() for text in axes.get_yticklabels()] for axes in figure.axes]


def test_the_figure_has_a_row_for_each_setting_in_the_order_of_its_values() -> None:
    figure = drawn(SWEEP)
    rows = row_labels(figure)
    assert rows[0] == rows[1] == rows[2]
    assert rows[0] == [
        "ungrouped",
        "unbucketed",
        "groups of 2 MB",
        "cut at 0.125 MB",
        "cut at 2 MB",
        "uncut",
        "1 in flight",
        "2 in flight",
        "16 in flight",
        "all in flight",
        "float16 gradients",
        "bfloat16 gradients",
    ]
    assert figure.get_suptitle() == "SmallCNN"
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [
        "ps_async, round_robin, defaults, 2 workers",
        "ps_sync, round_robin, defaults, 2 workers",
        "all-reduce, defaults, 2 workers",
    ]
    assert figure.axes[-1].get_xlabel().startswith("images/s over those of the setting")


def test_failures_are_said_beside_their_row() -> None:
    lost = with_wire(SYNC, UNBUCKETED)
    figure = drawn(case_of(runs(SYNC, rates(1.0)), runs(lost, {0: None, 1: None})))
    assert row_labels(figure) == [["unbucketed"]]
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["   no launch ended well", "0/2"]


def test_an_interval_beyond_the_axes_ends_in_an_arrow() -> None:
    wild: dict[int, float | None] = {0: 50.0, 1: 208.0, 2: 98.0}
    figure = drawn(case_of(runs(SYNC, rates(1.0)), runs(with_wire(SYNC, UNBUCKETED), wild)))
    assert {"<", ">"} <= {line.get_marker() for line in figure.axes[0].get_lines()}


def test_a_mean_that_is_not_one_of_launches_of_the_same_repetition_is_in_the_axes() -> None:
    base: dict[int, float | None] = {0: 100.0, 1: 100.0, 2: 70.0}
    some: dict[int, float | None] = {0: 100.0, 1: 100.0, 2: None}
    (axes,) = drawn(case_of(runs(SYNC, base), runs(with_wire(SYNC, UNBUCKETED), some))).axes
    lines = [line for line in axes.get_lines()[1:] if line.get_marker() != "x"]
    means = [float(np.asarray(line.get_xdata())[0]) for line in lines]
    assert means
    assert all(axes.get_xlim()[0] < mean < axes.get_xlim()[1] for mean in means)


def test_all_figures_of_a_whole_sweep_have_room(tmp_path: Path) -> None:
    # A layout that collapses is a warning of Matplotlib's, which is an error here.
    found = save_figures(SWEEP, tmp_path, "")
    names = [figure.png.stem for figure in found]
    assert "exchange" in names
    assert "packs" not in names
    noted = {figure.png.stem: "of their own" in figure.caption for figure in found}
    assert noted == {
        name: name not in ("settings", "exchange", "breakdown", "explanation") for name in names
    }


@pytest.mark.parametrize("wires", [WIRES, WIRES[:2]])
def test_other_figures_tell_settings_apart_by_short_names(wires: tuple[Wire, ...]) -> None:
    points = [RING, SYNC, *(with_wire(SYNC, wire) for wire in wires)]
    case = without_changed(case_of(*(runs(point, rates(1.0)) for point in points)))
    figure = plot_throughput(case)
    assert figure is not None
    shown = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert all(len(text) < 60 for text in shown)


def test_each_strategy_tells_what_its_own_points_share(tmp_path: Path) -> None:
    points = (SYNC, changed(ASYNC, staleness=4), RING)
    page = reported(tmp_path, [run(own, 1.0) for own in points])
    assert "as labelled" not in page
    assert page.count("staleness") == 1
    assert "staleness 4, steps_per_dispatch 1" in page
    assert page.count("bytes_per_pack none") == 1
    assert "Changed settings" not in page


def point_on(rung: Rung) -> Experiment:
    stated = {name: getattr(rung.settings, name) for name in rung.settings.stated}
    if rung.strategy.uses_collective and "bytes_per_pack" not in stated:
        stated["bytes_per_pack"] = None
    return make_experiment(rung.strategy, 2, **stated)


#: Each rung is twice as fast as the one before it.
RECORDS: list[RunRecord] = [
    record
    for rungs in LADDERS.values()
    for number, rung in enumerate(rungs)
    for record in runs(point_on(rung), times(2.0**number))
]
LADDER = case_of(runs(make_experiment(Single), times(1.0)), RECORDS)


def test_every_rung_is_held_against_the_one_before() -> None:
    assert [each.name for each in ladders(LADDER)] == list(LADDERS)
    for ladder in ladders(LADDER):
        assert tuple(rung for rung, _ in ladder.rungs) == LADDERS[ladder.name]
    found = changes_of(LADDER)
    assert [round(each.decision.ratio or 0, 9) for each in found] == [2.0] * 10
    assert {each.decision.outcome for each in found} == {Outcome.FASTER}


def test_where_a_rung_is_left_out_the_next_is_held_against_the_last_that_is_there() -> None:
    left = [r for r in RECORDS if "statistics" not in r.experiment.title]
    found = changes_of(case_of(left))
    assert [round(each.decision.ratio or 0, 9) for each in found] == [2.0, 4.0, 2.0, 2.0] * 2


def test_all_changes_are_told_that_are_decided_to_bring_something() -> None:
    """Rungs of two sides have the same names."""
    told = [
        f"Changes of {name} that are decided to bring something: "
        f"{'; '.join(rung.name for rung in rungs[1:])}."
        for name, rungs in LADDERS.items()
    ]
    assert explanation_lines(LADDER)[-len(told) :] == told


def test_without_altered_parts_there_is_no_ladder() -> None:
    plain = case_of([r for r in RECORDS if not r.experiment.strategy.is_altered])
    assert list(ladders(plain)) == []
    assert plot_ladder(plain) is None


@pytest.mark.parametrize("case", [LADDER, case_of(RECORDS)])
def test_an_altered_point_is_never_taken_for_stock(case: Case) -> None:
    (row,) = comparisons(case).of(Kind.AS_SHIPPED)
    met = [point for side in row.sides for point in side.points]
    assert len(met) == 2
    assert not any(point.experiment.strategy.is_altered for point in met)


def texts(figure: Figure | None) -> list[str]:
    assert figure is not None
    return [
        text.get_text()
        for axes in figure.axes
        for each in (axes, *axes.child_axes)
        for text in each.get_yticklabels()
    ]


def test_the_figure_has_a_row_for_every_rung_and_its_ratio_beside(tmp_path: Path) -> None:
    shown = texts(plot_ladder(LADDER))
    assert set(shown) >= {rung.name for rungs in LADDERS.values() for rung in rungs}
    assert sum(text.startswith("2.00 [") for text in shown) == 10
    assert plot_exchange(LADDER) is None
    assert "ladder" in [figure.png.stem for figure in save_figures(LADDER, tmp_path, "")]


def test_a_rung_without_a_good_launch_keeps_its_row() -> None:
    failed = [
        *(r for r in RECORDS if "altered optimizer" not in r.experiment.title),
        *runs(point_on(LADDERS["all-reduce"][1]), {0: None}),
    ]
    assert "fused optimizer (0/1)" in texts(plot_ladder(case_of(failed)))


def test_the_report_says_what_every_rung_brings(tmp_path: Path) -> None:
    headline = verdict(LADDER).headline
    assert headline.startswith(
        "Ladder of parameter servers, 2 workers, over the rung before: fused optimizer 2.00 ["
    )
    assert "Ladder of all-reduce" in headline
    # The rungs that are left out may be faster than the ends.
    assert not any(line.startswith("Asynchronous") for line in verdict(LADDER).details)
    assert "<h3>Changed settings</h3>" in reported(tmp_path, RECORDS)


def test_the_page_of_a_ladder_has_the_rates_of_its_ends_and_the_names_of_its_rungs(
    tmp_path: Path,
) -> None:
    """The headline tells rungs by names that no other table has."""
    records = [r for r in RECORDS if r.experiment.strategy.kind.endswith("allreduce")]
    alone = case_of(records)
    assert verdict(alone).headline.startswith("Ladder of all-reduce, 2 workers")
    told = [each.meaning for each in key_numbers(alone)]
    assert told == [
        "images/s: stock_allreduce, as shipped, 2 workers",
        "images/s: all-reduce, defaults, 2 workers",
    ]
    rungs = {rung.name for rung in LADDERS["all-reduce"][1:]}
    assert {*changed_rows(alone)["rung"]} == rungs
    assert "Sweep compare: what does each rung bring?" in reported(tmp_path, records)
