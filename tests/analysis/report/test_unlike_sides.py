"""What is faster may be so because its transport or its threads are others."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from analysis.data.cases import Case
from analysis.report.pages.case_pages import pair_rows
from analysis.report.table import render_table, report_table, text_table
from analysis.report.verdict import verdict
from analysis.report.what_was_run import what_was_run
from analysis.stats.comparisons import pairs_of
from analysis.stats.points import point_table
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Device, Resources
from ps_allreduce.point.strategies import AllReduce, AnyStrategy, Single, SynchronousServers
from ps_allreduce.point.wire import Collective
from tests.analysis.builders import case_of, reported, runs, times
from tests.fakes import make_experiment

GPU = Resources(device=Device.GPU)
RING = make_experiment(AllReduce, 2, resources=GPU)
NCCL = make_experiment(AllReduce, 2, resources=GPU, collective=Collective.NCCL)
SYNC = make_experiment(SynchronousServers, 2, resources=GPU)
EVEN = make_experiment(SynchronousServers, 2, resources=GPU, placement=Policy.PARTITIONED)


def case(points: Mapping[Experiment, Mapping[int, float | None]]) -> Case:
    return case_of(*(runs(own, rates) for own, rates in points.items()))


def test_pairs_on_different_transports_stand_apart() -> None:
    points = {RING: times(2.0), SYNC: times(1.0), EVEN: times(1.5)}
    alone, beside = case(points), case(points | {NCCL: times(9.0)})
    assert {pair.transport for pair in pairs_of(beside)} == {"tcp"}
    rows = pair_rows(beside, same_transport=False).to_numpy()
    assert [tuple(row[[0, 1, -1]]) for row in rows] == [
        ("all-reduce, nccl", "ps_sync, round_robin", "different transports (nccl, tcp)"),
        ("all-reduce, nccl", "ps_sync, partitioned", "different transports (nccl, tcp)"),
        ("all-reduce, nccl", "all-reduce, ring", "different transports (nccl, tcp)"),
    ]
    assert pairs_of(alone, same_transport=False) == []


def test_both_tables_have_their_own_largest_number_of_workers() -> None:
    far = [make_experiment(SynchronousServers, 4, resources=GPU)]
    far += [make_experiment(AllReduce, 4, resources=GPU, collective=Collective.NCCL)]
    found = case({own: times(1.0) for own in (RING, SYNC, *far)})
    assert {pair.first.best.num_workers for pair in pairs_of(found)} == {2}
    assert {pair.first.best.num_workers for pair in pairs_of(found, same_transport=False)} == {4}


def test_the_report_lists_them_apart_and_names_transports(tmp_path: Path) -> None:
    factors = {RING: 1.5, NCCL: 9.0, SYNC: 1.0}
    page = reported(tmp_path, *(runs(own, times(factor)) for own, factor in factors.items()))
    assert "on the same transport, at the most workers that have any (1)" in page
    assert "Pairs with different transports or formats of gradients (2)" in page
    assert ">different transports (nccl, tcp)</td>" in page


def test_a_column_of_transports_where_they_differ() -> None:
    differing = case({RING: times(1.0), NCCL: times(1.0)})
    assert "transport and format" in report_table(differing, "results")
    same = case({RING: times(1.0), SYNC: times(1.0)})
    assert "transport and format" not in report_table(same, "results")
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(render_table(differing))
    assert "all-reduce, nccl" in console.export_text()


def with_threads(strategy: type[AnyStrategy], threads: int, workers: int = 2) -> Experiment:
    resources = Resources(cores_per_worker=2, threads_per_worker=threads)
    return make_experiment(strategy, workers, resources=resources)


THREADED, SERVED = with_threads(AllReduce, 2), with_threads(SynchronousServers, 1)


def test_sides_with_different_threads_are_compared_and_it_is_said() -> None:
    case = case_of(runs(THREADED, times(2.0)), runs(SERVED, times(1.0)))
    found = verdict(case)
    assert "All-reduce is 2.00x" in found.headline
    assert (
        "The sides were given different threads for each worker: all-reduce 2, ps_sync, "
        "round_robin 1."
    ) in found.details
    assert list(report_table(case, "results")["threads"]) == ["1", "2"]
    assert "threads ps_sync 1, all-reduce 2" in dict(what_was_run(case))["worker"]


def test_equal_threads_are_told_once() -> None:
    case = case_of(
        runs(THREADED, times(2.0)), runs(with_threads(SynchronousServers, 2), times(1.0))
    )
    assert "threads" not in report_table(case, "results")
    assert not [line for line in verdict(case).details if "threads" in line]
    assert dict(what_was_run(case))["worker"].endswith("threads 2")


def test_rivals_of_one_strategy_are_told_apart_by_their_threads() -> None:
    case = case_of(runs(THREADED, times(2.0)), runs(with_threads(AllReduce, 1), times(1.0)))
    assert {*text_table(case)["setting"]} == {"all-reduce, 1 thread", "all-reduce, 2 threads"}


@pytest.mark.parametrize("threads", [1, 2])
def test_the_base_is_the_single_worker_with_the_same_threads(threads: int) -> None:
    singles = [runs(with_threads(Single, n, 1), times(n)) for n in (1, 2)]
    case = case_of(*singles, runs(with_threads(AllReduce, threads), times(4.0)))
    table = point_table(case).set_index("num_workers")
    assert table.loc[2, "base_single"] == pytest.approx(100 * threads, rel=0.01)
