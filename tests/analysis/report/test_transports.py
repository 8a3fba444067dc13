"""What is faster over another transport may be so because of the transport."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from analysis.data.cases import Case
from analysis.report.pages.case_pages import pair_rows
from analysis.report.table import render_table, report_table
from analysis.stats.comparisons import pairs_of
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Device, Resources
from ps_allreduce.point.strategies import AllReduce, SynchronousServers
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
    assert "synchronous settings at the most workers, on the same transport (1)" in page
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
