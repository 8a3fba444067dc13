"""A sweep of rungs, as its report shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from analysis.data.cases import Case
from analysis.figures.changes import plot_exchange, plot_ladder
from analysis.figures.save import save_figures
from analysis.report.explanation import explanation_lines
from analysis.report.verdict import verdict
from analysis.stats.comparisons import comparisons
from analysis.stats.decision import Outcome
from analysis.stats.rivals import Kind
from analysis.stats.setting_pairs import ladders
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import Single
from ps_allreduce.point.strategies.stock import LADDERS, Rung
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import case_of, changes_of, reported, runs, times
from tests.fakes import make_experiment


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
SWEEP = case_of(runs(make_experiment(Single), times(1.0)), RECORDS)


def test_every_rung_is_held_against_the_one_before() -> None:
    assert [each.name for each in ladders(SWEEP)] == list(LADDERS)
    for ladder in ladders(SWEEP):
        assert tuple(rung for rung, _ in ladder.rungs) == LADDERS[ladder.name]
    found = changes_of(SWEEP)
    assert [round(each.decision.ratio or 0, 9) for each in found] == [2.0] * 10
    assert {each.decision.outcome for each in found} == {Outcome.FASTER}


def test_where_a_rung_is_left_out_the_next_is_held_against_the_last_that_is_there() -> None:
    left = [r for r in RECORDS if "statistics" not in r.experiment.title]
    found = changes_of(case_of(left))
    assert [round(each.decision.ratio or 0, 9) for each in found] == [2.0, 4.0, 2.0, 2.0] * 2


def test_all_changes_are_told_that_are_decided_to_bring_something() -> None:
    names = [rung.name for rungs in LADDERS.values() for rung in rungs[1:]]
    told = f"Changes of the ladder that are decided to bring something: {', '.join(names)}."
    assert explanation_lines(SWEEP)[-1] == told


def test_without_altered_parts_there_is_no_ladder() -> None:
    plain = case_of([r for r in RECORDS if not r.experiment.strategy.is_altered])
    assert list(ladders(plain)) == []
    assert plot_ladder(plain) is None


@pytest.mark.parametrize("case", [SWEEP, case_of(RECORDS)])
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
    shown = texts(plot_ladder(SWEEP))
    assert set(shown) >= {rung.name for rungs in LADDERS.values() for rung in rungs}
    assert sum(text.startswith("2.00 [") for text in shown) == 10
    assert plot_exchange(SWEEP) is None
    assert "ladder" in [figure.png.stem for figure in save_figures(SWEEP, tmp_path, "")]


def test_a_rung_without_a_good_launch_keeps_its_row() -> None:
    failed = [
        *(r for r in RECORDS if "altered optimizer" not in r.experiment.title),
        *runs(point_on(LADDERS["all-reduce"][1]), {0: None}),
    ]
    assert "fused optimizer (0/1)" in texts(plot_ladder(case_of(failed)))


def test_the_report_says_what_every_rung_brings(tmp_path: Path) -> None:
    headline = verdict(SWEEP).headline
    assert headline.startswith(
        "Ladder of parameter servers, 2 workers, over the rung before: fused optimizer 2.00 ["
    )
    assert "Ladder of all-reduce" in headline
    assert "<h3>Changed settings</h3>" in reported(tmp_path, RECORDS)
