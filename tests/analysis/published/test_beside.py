"""Published numbers beside those of the sweep that repeats the study."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from analysis.data.cases import Case
from analysis.figures.beside_published import beside_published_data, plot_beside_published
from analysis.published.beside import table_beside
from analysis.published.catalogue import PUBLISHED, published_of
from analysis.published.piz_daint import PIZ_DAINT
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import Single, SynchronousServers
from tests.analysis.builders import case_of, runs, times
from tests.fakes import make_experiment


def served(workers: int, num_ps: int, policy: Policy) -> Experiment:
    return make_experiment(SynchronousServers, workers, num_ps=num_ps, placement=policy)


MEASURED: Mapping[Experiment, float] = {
    make_experiment(Single, 1): 1.0,
    served(2, 1, Policy.ROUND_ROBIN): 1.8,
    served(4, 3, Policy.ROUND_ROBIN): 2.0,
    served(4, 4, Policy.PARTITIONED): 3.6,
}


def repeated(sweep: str = "piz-daint") -> Case:
    records = [
        replace(record, sweep=sweep)
        for point, factor in MEASURED.items()
        for record in runs(point, times(factor))
    ]
    return case_of(records)


def test_the_numbers_are_those_that_the_original_tells() -> None:
    """Its slides: 80.46 % of 64, 52.11 % of 128, synthetic images."""
    rows = PIZ_DAINT.rows().set_index("workers")
    assert rows.loc[64, "efficiency"] == pytest.approx(0.8046, abs=5e-5)
    assert rows.loc[128, "efficiency"] == pytest.approx(0.5211, abs=5e-5)


def test_a_row_of_the_table_holds_both_at_as_many_workers() -> None:
    rows = {row["workers"]: row for row in table_beside(PIZ_DAINT, repeated()).to_dict("records")}
    assert [*rows] == ["1", "2", "4", "8", "16", "32", "64", "128"]
    two, four = rows["2"], rows["4"]
    assert four["published efficiency"] == "0.95"
    assert four["there"] == "distributed_replicated, 3 ps"
    assert re.fullmatch(r"0\.50 \[.*\], 3 ps", four["here: round robin"])
    assert re.fullmatch(r"0\.90 \[.*\], 4 ps", four["here: partitioned"])
    # One server stands for every placement.
    assert two["here: partitioned"] == two["here: round robin"]
    assert re.fullmatch(r"0\.90 \[.*\], 1 ps", two["here: partitioned"])
    assert rows["8"]["here: partitioned"] == ""


def test_all_curves_are_drawn_from_the_data_of_the_figure() -> None:
    case = repeated()
    figure = plot_beside_published(case)
    assert figure is not None
    data = beside_published_data(case)
    assert [*data["curve"].unique()] == [PIZ_DAINT.system, *PIZ_DAINT.series]
    own = data[data["curve"] == "here: partitioned"]
    assert [*own["num_workers"]] == [1, 2, 4]
    assert [*own["mean"].round(2)] == [1.0, 0.9, 0.9]


def test_other_sweeps_have_nothing_beside_them() -> None:
    case = repeated("compare")
    assert published_of(case) is None
    assert plot_beside_published(case) is None


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_table_has_one_worker_and_grows(name: str) -> None:
    rows = PUBLISHED[name].rows()
    assert rows["workers"].is_monotonic_increasing
    assert rows["efficiency"].iloc[0] == 1.0
