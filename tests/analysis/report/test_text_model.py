"""What is said about a model of text: examples and tokens, and nothing of pictures."""

from __future__ import annotations

from pathlib import Path

from analysis.figures.against_workers import plot_throughput
from ps_allreduce.point.models.trained import TextModel
from ps_allreduce.point.strategies import AllReduce, Single, SynchronousServers
from ps_allreduce.point.workload import Workload
from tests.analysis.builders import RATES, case_of, invoke, runs, save_all, times
from tests.fakes import make_experiment

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
