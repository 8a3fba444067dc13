"""What is said of the user's own model, and of a model of text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from analysis.figures.against_workers import plot_throughput
from analysis.figures.style import render_figure
from analysis.report.what_was_run import what_was_run
from ps_allreduce.point.inputs.data import OwnDataset
from ps_allreduce.point.models.trained import OwnModel, TextModel
from ps_allreduce.point.strategies import AllReduce, AnyStrategy, Single, SynchronousServers
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import (
    RATES,
    case_of,
    cases_of,
    invoke,
    reported,
    runs,
    save_all,
    times,
)
from tests.fakes import OWN, make_experiment


def of(strategy: type[AnyStrategy], model: OwnModel) -> list[RunRecord]:
    """Three launches."""
    workload = Workload(model=model, data=OwnDataset())
    return runs(make_experiment(strategy, workload=workload), RATES)


def of_model(model: OwnModel) -> list[RunRecord]:
    """Both sides."""
    return [*of(AllReduce, model), *of(SynchronousServers, model)]


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


TEXT = Workload(model=TextModel(sequence_length=64), batch_per_worker=4)

RECORDS = [
    *runs(make_experiment(Single, workload=TEXT), RATES),
    *runs(make_experiment(SynchronousServers, 2, workload=TEXT), RATES),
    *runs(make_experiment(AllReduce, 2, workload=TEXT), times(2.0)),
]


def test_no_page_about_text_speaks_of_images(tmp_path: Path) -> None:
    save_all(tmp_path, RECORDS)
    screen = invoke("report", str(tmp_path))
    page = (tmp_path / "report.html").read_text().replace('role="img"', "")
    for said in (screen, page):
        assert "image" not in said.lower()
        assert "examples/s" in said
        assert "tokens/s" in said
    assert "SmallGPT, 64 tokens in an example, vocabulary 8192" in page
    assert ">12800<" in page  # 64 tokens in each of 200 examples a second


def test_figures_count_examples() -> None:
    figure = plot_throughput(case_of(RECORDS))
    assert figure is not None
    assert {axes.get_xlabel() for axes in figure.axes} == {"examples/s"}
