"""What is faster over another transport may be so because of the transport."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from analysis.data.cases import Case
from analysis.report.pages.case_pages import pair_rows
from analysis.report.tables.table import render_table, report_table
from analysis.stats.comparisons import pairs_of
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Device, Resources
from ps_allreduce.point.strategies import (
    AllReduce,
    AsynchronousServers,
    Horovod,
    SynchronousServers,
)
from ps_allreduce.point.wire import Collective, Wire, WireType
from tests.analysis.builders import case_of, reported, runs, said, times, with_wire
from tests.fakes import make_experiment

GPU = Resources(device=Device.GPU)
RING = make_experiment(AllReduce, 2, resources=GPU)
NCCL = make_experiment(AllReduce, 2, resources=GPU, collective=Collective.NCCL)
AUTO = make_experiment(AllReduce, 2, resources=GPU, collective=Collective.AUTO)
SYNC = make_experiment(SynchronousServers, 2, resources=GPU)
EVEN = make_experiment(SynchronousServers, 2, resources=GPU, placement=Policy.PARTITIONED)
ASYNC = make_experiment(AsynchronousServers, 2, resources=GPU)


def case(points: Mapping[Experiment, Mapping[int, float | None]]) -> Case:
    return case_of(*(runs(own, rates) for own, rates in points.items()))


def test_the_verdict_is_about_the_same_transport_and_the_other_is_labelled() -> None:
    found = said({RING: times(1.5), NCCL: times(9.0), SYNC: times(1.0)})
    assert found.headline.startswith("All-reduce is 1.50x [1.50, 1.50] faster")
    (line,) = [line for line in found.details if "transports" in line]
    assert line == (
        "Different transports (nccl, tcp), so this does not compare the strategies alone: "
        "All-reduce is 9.00x [9.00, 9.00] faster than the parameter-server setting "
        "(ps_sync, round_robin) at 2 workers (1 host), 3 launches each."
    )


def test_the_best_all_reduce_stands_in_the_headline_by_its_own_name() -> None:
    horovod = {make_experiment(Horovod, 2, resources=GPU): times(3.0)}
    found = said({RING: times(1.5), **horovod, SYNC: times(1.0)})
    assert found.headline.startswith(
        "The best all-reduce setting (horovod) is 3.00x [3.00, 3.00] faster than the "
        "parameter-server setting (ps_sync, round_robin) at 2 workers (1 host, tcp)"
    )
    alone = said({**horovod, SYNC: times(1.0)})
    assert alone.headline.startswith("The all-reduce setting (horovod) is 3.00x [3.00, 3.00]")


def test_gradients_in_16_bits_are_compared_with_their_like() -> None:
    half = Wire(gradients=WireType.FLOAT16)
    halved = with_wire(RING, half), with_wire(SYNC, half)
    found = said({RING: times(1.5), halved[0]: times(9.0), SYNC: times(1.0), halved[1]: times(4.0)})
    assert found.headline.startswith("All-reduce is 1.50x [1.50, 1.50] faster")
    (line,) = [line for line in found.details if "float16" in line]
    assert line.startswith("All-reduce is 2.25x")
    assert "(1 host, tcp in float16), 3 launches each" in line
    bucket = with_wire(RING, Wire(in_flight=2))
    halves = with_wire(RING, Wire(gradients=WireType.FLOAT16, group_bytes=0))
    mixed = said({halves: times(9.0), bucket: times(1.5), SYNC: times(1.0), halved[1]: times(4.0)})
    assert mixed.headline.startswith("All-reduce is 1.50x")
    only = said({halves: times(9.0), halved[1]: times(4.0)})
    assert only.headline.startswith("All-reduce is 2.25x")
    assert "at 2 workers (1 host, tcp in float16)," in only.headline
    alone = said({RING: times(1.5), halved[0]: times(9.0), SYNC: times(1.0)})
    (line,) = [line for line in alone.details if "float16" in line]
    assert line.startswith("Different transports (tcp in float16, tcp), so this does not compare")
    pairs = pairs_of(case({RING: times(1.5), halved[0]: times(9.0), SYNC: times(1.0)}))
    assert len(pairs) == 1


def test_asynchronous_training_is_compared_on_every_transport_that_both_have() -> None:
    half = Wire(gradients=WireType.FLOAT16)
    points = [RING, with_wire(RING, half), ASYNC, with_wire(ASYNC, half)]
    found = said(dict.fromkeys(points, times(1.0)))
    (line,) = [line for line in found.details if "same tr" in line]
    first, second = line.split("With that said: ")[1].split(". ")
    assert first.startswith("Equal within 3 % are ps_async")
    assert "tcp), 3" in first
    assert second.startswith("Equal within 3 % are ps_async")
    assert "tcp in float16), 3" in second


def test_only_another_transport_gives_no_verdict() -> None:
    for other, label in ((NCCL, "(nccl, tcp)"), (AUTO, "(auto, tcp)")):
        found = said({other: times(9.0), SYNC: times(1.0), ASYNC: times(1.0)})
        assert found.headline == (
            "No verdict: all-reduce and synchronous parameter servers were not measured on the "
            "same transport."
        )
        assert any(f"Different transports {label}" in line for line in found.details)
        assert not any("is not the same training" in line for line in found.details)


def test_a_side_that_failed_on_the_shared_transport_is_named() -> None:
    found = said({RING: {0: None, 1: None}, NCCL: times(9.0), SYNC: times(1.0)})
    assert found.headline == "No verdict: no run of all-reduce ended well."


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
    assert "All pairs of synchronous settings on the same transport (1)" in page
    assert "Pairs on different transports (2), no part of the verdict" in page
    assert ">different transports (nccl, tcp)</td>" in page


def test_a_column_of_transports_where_they_differ() -> None:
    differing = case({RING: times(1.0), NCCL: times(1.0)})
    assert "transport" in report_table(differing, "results")
    same = case({RING: times(1.0), SYNC: times(1.0)})
    assert "transport" not in report_table(same, "results")
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(render_table(differing))
    assert "all-reduce, nccl" in console.export_text()
