"""What may be compared on clusters, and how settings are told apart there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from analysis.data.cases import make_cases
from analysis.figures.against_workers import plot_against_servers
from analysis.figures.bars import plot_placement
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import RecordFiles
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Coordinator, LayoutKind, Spread
from ps_allreduce.point.strategies import AllReduce, AnyStrategy, Single, SynchronousServers
from tests.analysis.builders import RATES, case_of, cases_of, placement_used, run, runs, table_of
from tests.fakes import make_experiment

FAST = EmulatedNetwork(num_hosts=4, bits_per_s=1e9)


def on_slurm(strategy: type[AnyStrategy], workers: int = 2, **changes: Any) -> Experiment:
    return make_experiment(strategy, workers, **{"launcher": "slurm", "spread": Spread()} | changes)


OWN = on_slurm(Single, 1)
EMULATED = replace(OWN, launcher="emulated", network=FAST)


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        (OWN, replace(OWN, interface="ib0"), ["interface ib0", "interface none"]),
        (
            OWN,
            replace(OWN, spread=Spread(workers_per_host=2)),
            ["workers per host 1", "workers per host 2"],
        ),
        (
            EMULATED,
            replace(EMULATED, network=replace(FAST, bits_per_s=1e8, delay_s=0.001)),
            ["network 100mbit, delay 1ms", "network 1gbit"],
        ),
        (
            EMULATED,
            replace(EMULATED, network=replace(FAST, num_hosts=8)),
            ["network hosts 4", "network hosts 8"],
        ),
    ],
)
def test_other_networks_interfaces_and_workers_per_host_are_another_case(
    one: Experiment, other: Experiment, names: list[str]
) -> None:
    cases = cases_of([run(own, 1.0) for own in (one, other)])
    assert [case.name for case in cases] == [f"SmallCNN, {name}" for name in names]


def test_what_was_asked_for_last_comes_first_and_then_the_newest() -> None:
    kinds = {
        batch: replace(OWN, workload=replace(OWN.workload, batch_per_worker=batch))
        for batch in (8, 16, 32)
    }
    hours = {8: "01", 16: "02", 32: "03"}
    records = [
        run(own, 1.0, started_at=f"2026-01-01T{hours[batch]}:00:00+00:00")
        for batch, own in kinds.items()
    ]

    def batches(*asked_for: int) -> list[int]:
        planned = [f"{kinds[batch].experiment_id}/0" for batch in asked_for]
        cases = make_cases(*table_of(records), planned=planned)
        return [case.conditions["batch_per_worker"] for case in cases]

    assert batches() == [32, 16, 8]
    assert batches(8) == [8, 32, 16]
    assert batches(32, 8) in ([8, 32, 16], [32, 8, 16])  # by their names


def test_what_only_some_inputs_have_is_told_of_none() -> None:
    """Files have a checksum and a pipeline; made-up examples have neither."""
    files = RecordFiles(path="/big/data/faces", num_files=1, num_bytes=9, checksum="ab" * 8)
    read = replace(OWN, workload=replace(OWN.workload, data=files))
    cases = cases_of([run(own, 1.0) for own in (OWN, read)])
    assert [case.name for case in cases] == [
        "SmallCNN, input data/faces",
        "SmallCNN, input synthetic",
    ]
    other = replace(OWN, workload=replace(OWN.workload, data=replace(files, checksum="cd" * 8)))
    names = [case.name for case in cases_of([run(own, 1.0) for own in (read, other)])]
    assert names == [f"SmallCNN, input checksum {pair * 8}" for pair in ("ab", "cd")]


def test_where_files_are_is_told_only_where_nothing_else_tells_cases_apart() -> None:
    here = RecordFiles(path="/a/x", num_files=1, num_bytes=9, checksum="ab" * 8, place="/a/x")
    there, other = replace(here, place="/b/x"), replace(here, path="/a/y", checksum="cd" * 8)

    def names(*inputs: RecordFiles) -> list[str]:
        own = [replace(OWN, workload=replace(OWN.workload, data=data)) for data in inputs]
        return [case.name for case in cases_of([run(each, 1.0) for each in own])]

    assert names(here, replace(other, place="/b/y")) == [
        "SmallCNN, input a/x",
        "SmallCNN, input a/y",
    ]
    assert names(here, there, other) == [
        "SmallCNN, input a/x, input place /a/x",
        "SmallCNN, input a/x, input place /b/x",
        "SmallCNN, input a/y, input place /a/x",
    ]


DEDICATED: dict[str, Any] = {"layout": LayoutKind.DEDICATED}


@pytest.mark.parametrize(
    ("servers", "labels"),
    [
        ([{}], [""]),
        ([{}, DEDICATED], [", colocated", ", dedicated"]),
        (
            [DEDICATED, DEDICATED | {"spread": Spread(ps_per_host=2)}],
            [", 2 ps per host", ", default ps per host"],
        ),
        (
            [{}, {"spread": Spread(coordinator=Coordinator.OWN_HOST)}],
            [", coordinator first_worker", ", coordinator own_host"],
        ),
    ],
)
def test_layouts_and_spreads_are_settings_with_labels_of_their_own(
    servers: list[dict[str, Any]], labels: list[str]
) -> None:
    points = [on_slurm(SynchronousServers, **each) for each in servers]
    case = case_of(*(runs(own, RATES) for own in (on_slurm(AllReduce), *points)))
    shown = [setting.label for setting in case.settings]
    assert shown == [*(f"ps_sync, round_robin{label}" for label in labels), "all-reduce"]


def test_figures_keep_layouts_apart() -> None:
    points = [
        on_slurm(SynchronousServers, layout=layout, placement=policy, num_ps=count)
        for layout in LayoutKind
        for policy in (Policy.ROUND_ROBIN, Policy.PARTITIONED)
        for count in (1, 2, 3)
    ]
    case = case_of(
        *(runs(own, RATES, placement=placement_used(*[1] * own.num_ps)) for own in points)
    )
    placement, servers = plot_placement(case), plot_against_servers(case)
    assert placement is not None
    rows = [text.get_text() for text in placement.axes[0].get_yticklabels()]
    assert rows[0] == "round_robin, colocated, 1 ps"
    assert len(rows) == len(set(rows)) == len(points)
    assert servers is not None
    legend = [text.get_text() for text in servers.legends[0].get_texts()][:-1]  # and launches
    policies = ("round_robin", "partitioned")
    layouts = ("colocated", "dedicated", "ps_hosts")
    assert legend == [f"{policy}, {layout}" for layout in layouts for policy in policies]
