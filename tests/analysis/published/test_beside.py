"""Published numbers beside those of the sweep that repeats the study."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.data.cases import Case
from analysis.published.beside import CURVE, PIZ_DAINT, table_beside
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import Single, SynchronousServers
from tests.analysis.builders import case_of, invoke, reported, runs, save_all, times
from tests.fakes import make_experiment


def served(workers: int, num_ps: int, policy: Policy) -> Experiment:
    return make_experiment(SynchronousServers, workers, num_ps=num_ps, placement=policy)


MEASURED: Mapping[Experiment, float] = {
    make_experiment(Single, 1): 1.0,
    served(2, 1, Policy.ROUND_ROBIN): 1.8,
    served(4, 3, Policy.ROUND_ROBIN): 2.0,
    served(4, 4, Policy.PARTITIONED): 3.6,
}


RECORDS = [
    replace(record, sweep="piz-daint")
    for point, factor in MEASURED.items()
    for record in runs(point, times(factor))
]


def repeated() -> Case:
    return case_of(RECORDS)


def test_the_numbers_are_those_that_the_original_tells() -> None:
    """Its slides: 80.46 % of 64, 52.11 % of 128, synthetic images."""
    rows = CURVE.rows().set_index("workers")
    assert rows.loc[64, "efficiency"] == pytest.approx(0.8046, abs=5e-5)
    assert rows.loc[128, "efficiency"] == pytest.approx(0.5211, abs=5e-5)


def test_a_row_of_the_table_holds_both_at_as_many_workers() -> None:
    rows = {row["workers"]: row for row in table_beside(CURVE, repeated()).to_dict("records")}
    assert [*rows] == ["1", "2", "4", "8", "16", "32", "64", "128"]
    two, four = rows["2"], rows["4"]
    assert four["efficiency there"] == "0.95"
    assert four["servers there"] == "3"
    assert re.fullmatch(r"0\.50 \[.*\], 3 ps", four["here, round robin"])
    assert re.fullmatch(r"0\.90 \[.*\], 4 ps", four["here, partitioned"])
    # One server stands for every placement.
    assert two["here, partitioned"] == two["here, round robin"]
    assert re.fullmatch(r"0\.90 \[.*\], 1 ps", two["here, partitioned"])
    assert rows["8"]["here, partitioned"] == ""


def test_all_curves_are_drawn_from_the_data_of_the_figure() -> None:
    shown = PIZ_DAINT.show([repeated()])
    (figure,) = shown.figures
    assert [*figure.data["curve"].unique()] == [CURVE.system, *CURVE.series]
    own = figure.data[figure.data["curve"] == "here, partitioned"]
    assert [*own["num_workers"]] == [1, 2, 4]
    assert [*own["mean"].round(2)] == [1.0, 0.9, 0.9]
    drawn = [line.get_label() for line in figure.figure.axes[0].get_lines()]
    assert {CURVE.system, *CURVE.series} <= {*drawn}


def test_a_sweep_without_launches_has_a_table_and_no_figure() -> None:
    failed = runs(make_experiment(Single), {0: None})
    shown = PIZ_DAINT.show([case_of(failed)])
    assert shown.figures == []
    assert len(shown.tables) == 1


def test_the_report_of_the_study_begins_with_its_page_and_picture(tmp_path: Path) -> None:
    page = reported(tmp_path, RECORDS)
    assert page.index('id="published"') < page.index('id="results"')
    assert "The original: Bugliarello" in page
    assert page.count("published.svg") == 1
    for kind in ("png", "svg", "pdf", "csv"):
        assert (tmp_path / f"published.{kind}").exists()


def test_the_report_answers_the_question_of_the_study(tmp_path: Path) -> None:
    """It has no all-reduce, so it has no verdict between two sides."""
    save_all(tmp_path, RECORDS)
    told = " ".join(invoke("report", str(tmp_path)).split())
    page = " ".join((tmp_path / "report.html").read_text().split())
    answer = "Efficiency with 4 workers: here, round robin 0.50 ["
    assert answer in told
    assert f"<strong>{answer}" in page
    assert "No verdict" not in told + page
    # The table beside the published numbers stands on the screen as well.
    assert "There is the original, here this sweep." in told
