"""What is said of the user's own model: its name as it was typed, and what is done otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from analysis.figures.against_workers import plot_throughput
from analysis.figures.style import render_figure
from analysis.report.sentences.verdict import verdict
from analysis.report.tables.what_was_run import what_was_run
from ps_allreduce.point.inputs.data import OwnDataset
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.strategies import AllReduce, AnyStrategy, SynchronousServers
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import RATES, case_of, cases_of, reported, runs
from tests.fakes import OWN, make_experiment


def of(strategy: type[AnyStrategy], model: OwnModel) -> list[RunRecord]:
    """Three launches."""
    workload = Workload(model=model, data=OwnDataset())
    return runs(make_experiment(strategy, workload=workload), RATES)


def of_model(model: OwnModel) -> list[RunRecord]:
    """Both sides."""
    return [*of(AllReduce, model), *of(SynchronousServers, model)]


def test_the_headline_says_what_is_not_done_as_the_model_asks() -> None:
    assert verdict(case_of(of_model(OWN))).headline.endswith(" Trained with SGD, not your Lion.")
    assert "your" not in verdict(case_of(of_model(replace(OWN, notes=())))).headline
    many = replace(OWN, notes=("trained with SGD, not your Lion", "b", "c", "d"))
    told = verdict(case_of(of_model(many))).headline
    assert told.endswith(" Trained with SGD, not your Lion; b; 2 more in the report.")


def test_what_was_run_states_files_arguments_and_all_notes() -> None:
    items = dict(what_was_run(case_of(of_model(replace(OWN, arguments=("width=64", "depth=2"))))))
    assert items["model"] == "mine.py:build"
    assert items["its files"] == OWN.digest
    assert items["its arguments"] == "width=64, depth=2"
    assert items["not as it asks"] == "trained with SGD, not your Lion"
    assert items["input"] == "dataset"
    assert "its arguments" not in dict(what_was_run(case_of(of_model(OWN))))


def test_a_file_that_was_called_by_two_names_is_one_model() -> None:
    case = case_of(of(AllReduce, OWN), of(SynchronousServers, replace(OWN, name="./mine.py:build")))
    assert case.name in ("mine.py:build", "./mine.py:build")
    assert len(case.points) == 2


def test_another_function_argument_or_file_is_another_model() -> None:
    others = (
        replace(OWN, name="mine.py:other", function="other"),
        replace(OWN, arguments=("width=64",)),
        replace(OWN, digest="fedcba9876543210"),
    )
    assert len(cases_of(*(of_model(model) for model in (OWN, *others)))) == 4


def test_a_name_is_text_whatever_its_characters(tmp_path: Path) -> None:
    named = replace(OWN, name="<b>$x^$.py:build", notes=("without your <script>",))
    page = reported(tmp_path, of_model(named))
    assert "&lt;b&gt;$x^$.py:build" in page
    assert "ithout your &lt;script&gt;" in page
    assert "<b>$x" not in page
    assert "<script>" not in page
    figure = plot_throughput(case_of(of_model(named)))
    assert figure is not None
    assert render_figure(figure, "svg")
