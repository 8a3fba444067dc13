"""Threads of a worker are a setting of each side, which may have more of them than the other."""

from __future__ import annotations

import pytest

from analysis.report.table import report_table, text_table
from analysis.report.verdict import verdict
from analysis.report.what_was_run import what_was_run
from analysis.stats.points import point_table
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.resources import Resources
from ps_allreduce.point.strategies import AllReduce, AnyStrategy, Single, SynchronousServers
from tests.analysis.builders import case_of, runs, times
from tests.fakes import make_experiment


def with_threads(strategy: type[AnyStrategy], threads: int, workers: int = 2) -> Experiment:
    resources = Resources(cores_per_worker=2, threads_per_worker=threads)
    return make_experiment(strategy, workers, resources=resources)


RING, SERVED = with_threads(AllReduce, 2), with_threads(SynchronousServers, 1)


def test_sides_with_different_threads_are_compared_and_it_is_said() -> None:
    case = case_of(runs(RING, times(2.0)), runs(SERVED, times(1.0)))
    found = verdict(case)
    assert "All-reduce is 2.00x" in found.headline
    assert (
        "The sides were given different threads for each worker: all-reduce 2, ps_sync, "
        "round_robin 1."
    ) in found.details
    assert list(report_table(case, "results")["threads"]) == ["1", "2"]
    assert "threads ps_sync 1, all-reduce 2" in dict(what_was_run(case))["worker"]


def test_equal_threads_are_told_once() -> None:
    case = case_of(runs(RING, times(2.0)), runs(with_threads(SynchronousServers, 2), times(1.0)))
    assert "threads" not in report_table(case, "results")
    assert not [line for line in verdict(case).details if "threads" in line]
    assert dict(what_was_run(case))["worker"].endswith("threads 2")


def test_rivals_of_one_strategy_are_told_apart_by_their_threads() -> None:
    case = case_of(runs(RING, times(2.0)), runs(with_threads(AllReduce, 1), times(1.0)))
    assert {*text_table(case)["setting"]} == {"all-reduce, 1 thread", "all-reduce, 2 threads"}


@pytest.mark.parametrize("threads", [1, 2])
def test_the_base_is_the_single_worker_with_the_same_threads(threads: int) -> None:
    singles = [runs(with_threads(Single, n, 1), times(n)) for n in (1, 2)]
    case = case_of(*singles, runs(with_threads(AllReduce, threads), times(4.0)))
    table = point_table(case).set_index("num_workers")
    assert table.loc[2, "base_single"] == pytest.approx(100 * threads, rel=0.01)
