"""A sweep of the exchange's settings, as its report shows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

from analysis.__main__ import cli
from analysis.data.cases import Case, make_cases
from analysis.figures.plots import plot_throughput
from analysis.figures.plots_settings import plot_against_packs
from analysis.figures.plots_tuning import plot_tuning
from analysis.figures.save import save_figures
from analysis.stats.statistics import Outcome
from analysis.stats.tuning import is_tuning, tuned_points, without_tuned
from ps_allreduce.point.experiment import Collective, Experiment
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.point.wire import STOCK, Wire, WireType
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import experiment, run, runs, save

SYNC = experiment(Strategy.PS_SYNC, 2)
ASYNC = experiment(Strategy.PS_ASYNC, 2)
RING = experiment(Strategy.ALLREDUCE, 2, bytes_per_pack=None)
WIRES = (
    STOCK,
    *(Wire(group_bytes=size) for size in (0, 2_000_000)),
    *(Wire(cut_bytes=size) for size in (0, 125_000, 2_000_000)),
    *(Wire(in_flight=count) for count in (0, 1, 2, 16)),
    *(Wire(gradients=kind) for kind in (WireType.FLOAT16, WireType.BFLOAT16)),
)


def rates(factor: float) -> dict[int, float | None]:
    return {0: 100.0 * factor, 1: 104.0 * factor, 2: 98.0 * factor}


def tuned(usual: Experiment, factor: float = 1.5) -> list[RunRecord]:
    """The usual point and one for each of the wires, faster by a factor."""
    others = [replace(usual, wire=wire) for wire in WIRES]
    return [*runs(usual, rates(1.0)), *(r for own in others for r in runs(own, rates(factor)))]


def case_of(*groups: Iterable[RunRecord]) -> Case:
    (case,) = make_cases(record for group in groups for record in group)
    return case


SWEEP = case_of(
    runs(experiment(Strategy.SINGLE), rates(1.0)), *(tuned(own) for own in (SYNC, ASYNC, RING))
)


def test_every_tuned_point_is_held_against_its_own_defaults() -> None:
    found = tuned_points(SWEEP)
    assert len(found) == 3 * len(WIRES)
    assert {item.usual.experiment for item in found} == {SYNC, ASYNC, RING}
    assert all(item.usual.setting.strategy is item.point.setting.strategy for item in found)
    assert {round(item.comparison.ratio or 0.0, 9) for item in found} == {1.5}
    assert {item.outcome for item in found} == {Outcome.FASTER}


def test_chance_findings_among_many_settings_are_corrected() -> None:
    noisy: dict[int, float | None] = {0: 100.0 * 1.05, 1: 104.0 * 1.06, 2: 98.0 * 1.04}
    others = [replace(SYNC, wire=wire) for wire in WIRES]
    alone = case_of(runs(SYNC, rates(1.0)), runs(others[0], noisy))
    among = case_of(runs(SYNC, rates(1.0)), *(runs(own, noisy) for own in others))
    assert [item.outcome for item in tuned_points(alone)] == [Outcome.FASTER]
    assert {item.outcome for item in tuned_points(among)} == {Outcome.NO_DIFFERENCE}


def test_other_numbers_of_workers_are_no_tuning() -> None:
    other = replace(SYNC, num_workers=4, wire=STOCK)
    assert tuned_points(case_of(runs(SYNC, rates(1.0)), runs(other, rates(1.0)))) == ()


@pytest.mark.parametrize("usual", [SYNC, RING])
def test_what_was_asked_for_is_what_the_others_are_held_against(usual: Experiment) -> None:
    half = replace(usual, wire=Wire(gradients=WireType.FLOAT16))
    packs = [replace(RING, bytes_per_pack=size) for size in (0, 2_000_000)]
    others = [
        usual,
        *(packs if usual is RING else []),
        *(replace(half, wire=replace(half.wire, in_flight=count)) for count in (1, 2)),
        replace(half, wire=replace(half.wire, cut_bytes=0)),
    ]
    found = tuned_points(case_of(*(runs(own, rates(1.0)) for own in (half, *others))))
    assert {item.usual.experiment for item in found} == {half}
    assert {item.point.experiment for item in found} == set(others)


def test_packs_and_dealing_are_held_against_the_defaults() -> None:
    packs = [replace(RING, bytes_per_pack=size) for size in (None, 0, 1_000_000)]
    dealt = [ASYNC, replace(ASYNC, staleness=3), replace(ASYNC, steps_per_dispatch=2)]
    found = tuned_points(case_of(*(runs(own, rates(1.0)) for own in (*packs, *dealt))))
    assert {item.usual.experiment for item in found} == {RING, ASYNC}
    assert len(found) == 4


def test_what_failed_is_not_what_others_are_held_against() -> None:
    others = [replace(SYNC, wire=Wire(in_flight=count)) for count in (1, 2)]
    lost: dict[int, float | None] = {0: None, 1: None}
    case = case_of(runs(SYNC, lost), *(runs(own, rates(1.0)) for own in others))
    assert {item.usual.experiment for item in tuned_points(case)} == {others[0]}


def test_packs_of_collectives_that_have_no_buckets_are_not_compared() -> None:
    auto = [
        experiment(Strategy.ALLREDUCE, 2, collective=Collective.AUTO, bytes_per_pack=size)
        for size in (0, 1_000_000)
    ]
    assert tuned_points(case_of(*(runs(own, rates(1.0)) for own in auto))) == ()


def test_sizes_of_packs_alone_are_no_tuning() -> None:
    packed = replace(RING, bytes_per_pack=0)
    assert not is_tuning(case_of(runs(RING, rates(1.0)), runs(packed, rates(1.0))))
    assert plot_tuning(case_of(runs(RING, rates(1.0)), runs(packed, rates(1.0)))) is None


def test_many_tuned_points_are_left_out_of_other_figures_and_few_are_not() -> None:
    kept = without_tuned(SWEEP)
    assert [point.experiment.strategy for point in kept.points] == [
        Strategy.SINGLE,
        Strategy.PS_ASYNC,
        Strategy.PS_SYNC,
        Strategy.ALLREDUCE,
    ]
    few = case_of(*(runs(replace(SYNC, wire=wire), rates(1.0)) for wire in (Wire(), STOCK)))
    assert without_tuned(few) is few


def test_packs_of_several_sizes_and_workers_keep_their_own_figure() -> None:
    case = case_of(
        *(
            runs(replace(RING, num_workers=workers, bytes_per_pack=size), rates(1.0))
            for workers in (1, 2, 4)
            for size in (None, 0, 500_000, 4_000_000)
        )
    )
    assert without_tuned(case) is case
    assert plot_against_packs(case) is not None


def test_settings_are_counted_and_not_their_numbers_of_workers() -> None:
    points = [
        replace(SYNC, num_workers=workers, wire=wire)
        for workers in (2, 3, 4, 5)
        for wire in (Wire(), *WIRES[:3])
    ]
    case = case_of(*(runs(own, rates(1.0)) for own in points))
    assert without_tuned(case) is case
    figure = plot_tuning(case)
    assert [len(rows) for rows in row_labels(figure)] == [3, 3, 3, 3]


def row_labels(figure: Figure | None) -> list[list[str]]:
    assert figure is not None
    return [[text.get_text() for text in axes.get_yticklabels()] for axes in figure.axes]


def test_the_figure_has_a_row_for_each_setting_in_the_order_of_its_values() -> None:
    figure = plot_tuning(SWEEP)
    rows = row_labels(figure)
    assert rows[0] == rows[1] == rows[2]
    assert rows[0] == [
        "ungrouped",
        "stock messages",
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
    assert figure is not None
    assert figure.get_suptitle() == "SmallCNN"
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [
        "ps_async, round_robin, defaults, 2 workers",
        "ps_sync, round_robin, defaults, 2 workers",
        "allreduce, defaults, 2 workers",
    ]
    assert figure.axes[-1].get_xlabel().startswith("images/s over those of the setting")


def test_failures_are_said_beside_their_row() -> None:
    lost = replace(SYNC, wire=STOCK)
    figure = plot_tuning(case_of(runs(SYNC, rates(1.0)), runs(lost, {0: None, 1: None})))
    assert row_labels(figure) == [["stock messages (2 not ok)"]]
    assert figure is not None
    assert "no launch ended well" in figure.axes[0].texts[0].get_text()


def test_an_interval_beyond_the_axes_ends_in_an_arrow() -> None:
    wild: dict[int, float | None] = {0: 50.0, 1: 208.0, 2: 98.0}
    figure = plot_tuning(case_of(runs(SYNC, rates(1.0)), runs(replace(SYNC, wire=STOCK), wild)))
    assert figure is not None
    assert {"<", ">"} <= {line.get_marker() for line in figure.axes[0].get_lines()}


def test_a_mean_that_is_not_one_of_launches_of_the_same_repetition_is_in_the_axes() -> None:
    usual: dict[int, float | None] = {0: 100.0, 1: 100.0, 2: 70.0}
    some: dict[int, float | None] = {0: 100.0, 1: 100.0, 2: None}
    figure = plot_tuning(case_of(runs(SYNC, usual), runs(replace(SYNC, wire=STOCK), some)))
    assert figure is not None
    (axes,) = figure.axes
    means = [float(np.asarray(line.get_xdata())[0]) for line in axes.get_lines()[1:]]
    assert means
    assert all(axes.get_xlim()[0] < mean < axes.get_xlim()[1] for mean in means)


def test_all_figures_of_a_whole_sweep_have_room(tmp_path: Path) -> None:
    # A layout that collapses is a warning of Matplotlib's, which is an error here.
    found = save_figures(SWEEP, tmp_path, alone=True)
    names = [figure.png.stem for figure in found]
    assert "tuning" in names
    assert "packs" not in names
    noted = {figure.png.stem: "of their own" in figure.caption for figure in found}
    assert noted == {name: name not in ("tuning", "breakdown") for name in names}


@pytest.mark.parametrize("wires", [WIRES, WIRES[:2]])
def test_other_figures_tell_settings_apart_by_short_names(wires: tuple[Wire, ...]) -> None:
    case = without_tuned(
        case_of(runs(SYNC, rates(1.0)), *(runs(replace(SYNC, wire=w), rates(1.0)) for w in wires))
    )
    figure = plot_throughput(case)
    assert figure is not None
    shown = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert all(len(text) < 60 for text in shown)


def test_the_report_lists_every_setting_against_the_defaults(tmp_path: Path) -> None:
    for record in [*tuned(SYNC), *runs(RING, rates(1.0))]:
        save(tmp_path, record)
    result = CliRunner().invoke(cli, ["report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "report.html").read_text()
    assert "<h3>Settings of the exchange</h3>" in page
    assert page.count("<td>1.50 [1.50, 1.50]</td><td>3</td>") == len(WIRES)
    assert "Pairs below are without the settings" in page
    # Of the defaults alone: ps_sync against all-reduce.
    assert "All pairs of synchronous settings on the same transport (1)" in page


def test_what_all_points_share_is_in_the_report_and_not_in_their_labels(tmp_path: Path) -> None:
    wire = Wire(gradients=WireType.BFLOAT16, in_flight=1)
    save(tmp_path, run(replace(ASYNC, wire=wire, staleness=7), 1.0))
    save(tmp_path, run(replace(ASYNC, wire=wire, staleness=9), 1.0))
    CliRunner().invoke(cli, ["report", str(tmp_path)])
    page = (tmp_path / "report.html").read_text()
    assert "in_flight 1, gradients bfloat16" in page
    assert "staleness as labelled, steps_per_dispatch 1, layout colocated" in page


def test_each_strategy_tells_what_its_own_points_share(tmp_path: Path) -> None:
    for own in (SYNC, replace(ASYNC, staleness=4), RING):
        save(tmp_path, run(own, 1.0))
    CliRunner().invoke(cli, ["report", str(tmp_path)])
    page = (tmp_path / "report.html").read_text()
    assert "as labelled" not in page
    assert page.count("staleness") == 1
    assert "staleness 4, steps_per_dispatch 1" in page
    assert page.count("bytes_per_pack none") == 1


def test_a_report_without_tuning_says_nothing_of_it(tmp_path: Path) -> None:
    save(tmp_path, run(RING, 1.0))
    CliRunner().invoke(cli, ["report", str(tmp_path)])
    assert "Settings of the exchange" not in (tmp_path / "report.html").read_text()
