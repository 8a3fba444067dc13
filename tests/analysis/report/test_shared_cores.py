"""Where workers share cores, what as many make without communication is the base."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from analysis.data.cases import Case
from analysis.figures.against_workers import plot_throughput
from analysis.figures.marks import marks_of
from analysis.planning.choice import choose
from analysis.report.pages.case_pages import speedup_lines
from analysis.report.table import report_table, short_legend
from analysis.report.verdict import verdict
from analysis.stats.points import point_table
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    NoCommunication,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import case_of, on_shared_cores, runs, save_all, times
from tests.fakes import make_experiment

ON_HOSTS: dict[str, Any] = {
    "launcher": "emulated",
    "network": EmulatedNetwork(num_hosts=4, bits_per_s=1e8),
    "spread": Spread(),
}

#: A single worker is faster than four of any strategy, of which all have half a core.
RATES: dict[tuple[type[AnyStrategy], int], tuple[float, float]] = {
    (Single, 1): (4.0, 0.5),
    (NoCommunication, 4): (5.0, 0.85),
    (AllReduce, 1): (3.5, 0.5),
    (AllReduce, 4): (3.0, 0.6),
    (SynchronousServers, 4): (2.0, 0.65),
    (AsynchronousServers, 4): (2.5, 0.95),
}


def records(workload: Workload | None = None, busy_alone: float = 0.85) -> list[RunRecord]:
    """Four workers that do not communicate keep the processors so busy."""
    rates = RATES | {(NoCommunication, 4): (5.0, busy_alone)}
    return [
        record
        for (strategy, workers), (rate, busy) in rates.items()
        for record in runs(
            make_experiment(strategy, workers, workload=workload or Workload(), **ON_HOSTS),
            times(rate),
            tasks=on_shared_cores(workers),
            machine_busy=busy,
        )
    ]


def column(case: Case, name: str) -> dict[tuple[str, int], object]:
    labels = [(point.setting.strategy, point.num_workers) for point in case.points]
    return dict(zip(labels, point_table(case)[name], strict=True))


def test_efficiency_is_the_share_that_is_kept_of_the_rate_without_communication() -> None:
    case = case_of(records())
    found = column(case, "efficiency_single")
    assert found["single", 1] == found["no_communication", 4] == 1
    assert found["allreduce", 4] == pytest.approx(0.6)
    assert found["allreduce", 1] == pytest.approx(3.5 / 4)
    assert column(case, "speedup_single")["allreduce", 4] == pytest.approx(4 * 0.6)
    assert column(case, "marks_single")["ps_async", 4] == "*"
    marks = marks_of(case, "efficiency_single").set_index("setting")
    four = marks[(marks["num_workers"] == 4) & (marks.index == "all-reduce")].iloc[0]
    assert four["launches"] == pytest.approx([0.6] * 3)


def test_no_efficiency_is_claimed_where_the_processors_may_have_been_the_limit_of_the_base() -> (
    None
):
    rows = report_table(case_of(records(busy_alone=0.95)), "scaling").set_index("setting")
    on_base = rows["efficiency on no_communication"]
    assert on_base["ps_sync, round_robin"] == "not claimed *"
    assert on_base["no_communication"] == "not claimed *"
    assert on_base["single"] == "1.00"


def test_tables_and_figures_name_the_base() -> None:
    case = case_of(records())
    assert "efficiency on no_communication" in report_table(case, "scaling").columns
    assert speedup_lines(case)[0].startswith(
        "Speed-up on no_communication: the rate over that of as many workers that do not "
        "communicate, times their number."
    )
    # Cores that several workers share belong to none of them.
    per_core = column(case, "per_worker_core")
    assert math.isnan(float(str(per_core["allreduce", 4])))
    assert per_core["single", 1] == pytest.approx(400.0)
    figure = plot_throughput(case)
    assert figure is not None
    assert "ideal" not in [line.get_label() for axes in figure.axes for line in axes.lines]


def test_the_screen_says_what_a_speed_up_is_over() -> None:
    told = "Speed-up: the rate over that of as many workers that do not communicate, times"
    assert told in short_legend(case_of(records()))
    apart = records(Workload(emulated=EmulatedCompute(forward_s=0.01, backward_s=0.02)))
    assert "Speed-up: the rate" not in short_legend(case_of(apart))


def test_nobody_is_told_that_a_single_worker_is_faster(tmp_path: Path) -> None:
    told = verdict(case_of(records()))
    assert "single worker" not in " ".join([told.headline, told.network, *told.details])
    save_all(tmp_path / "compare", records())
    assert choose(tmp_path, "best", None).better_alone == ""


def test_workers_with_accelerators_of_their_own_are_held_against_a_single_one() -> None:
    case = case_of(records(Workload(emulated=EmulatedCompute(forward_s=0.01, backward_s=0.02))))
    assert column(case, "efficiency_single")["allreduce", 4] == pytest.approx(3 / 16)
    assert "A single worker is" in verdict(case).network
