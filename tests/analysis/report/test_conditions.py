"""What may be compared on clusters, and how settings are told apart there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analysis.figures.against_settings import plot_against_servers
from analysis.figures.server_loads import plot_placement
from analysis.report.verdict import verdict
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.spread import Coordinator, LayoutKind, Spread
from ps_allreduce.point.strategies import AllReduce, AnyStrategy, Single, SynchronousServers
from tests.analysis.builders import RATES, case_of, cases_of, placement_used, run, runs
from tests.fakes import make_experiment, make_host

FAST = EmulatedNetwork(num_hosts=4, bits_per_s=1e9)
HOSTS = tuple(make_host(f"n{index}") for index in range(4))


def on_slurm(strategy: type[AnyStrategy], workers: int = 2, **changes: Any) -> Experiment:
    return make_experiment(strategy, workers, **{"launcher": "slurm", "spread": Spread()} | changes)


def names_of(*experiments: Experiment) -> list[str]:
    return [case.name for case in cases_of([run(own, 1.0) for own in experiments])]


def labels_of(*experiments: Experiment) -> list[str]:
    return [s.label for s in case_of(*(runs(own, RATES) for own in experiments)).settings]


def test_networks_interfaces_and_workers_per_host_are_never_compared() -> None:
    own = on_slurm(Single, 1)
    emulated = replace(own, launcher="emulated", network=FAST)
    slow = replace(emulated, network=replace(FAST, bits_per_s=1e8, delay_s=0.001))
    assert names_of(own, replace(own, interface="ib0")) == [
        "SmallCNN, interface ib0",
        "SmallCNN, interface none",
    ]
    assert names_of(own, replace(own, spread=Spread(workers_per_host=2))) == [
        "SmallCNN, workers_per_host 1",
        "SmallCNN, workers_per_host 2",
    ]
    assert names_of(emulated, slow) == [
        "SmallCNN, network 100mbit, delay 1ms",
        "SmallCNN, network 1gbit",
    ]
    assert names_of(emulated, replace(emulated, network=replace(FAST, num_hosts=8))) == [
        "SmallCNN, network_hosts 4",
        "SmallCNN, network_hosts 8",
    ]


def test_layouts_are_settings_with_labels_of_their_own() -> None:
    points = [on_slurm(AllReduce), on_slurm(SynchronousServers)]
    assert labels_of(*points) == ["ps_sync, round_robin", "allreduce"]
    points.append(on_slurm(SynchronousServers, layout=LayoutKind.DEDICATED))
    assert labels_of(*points) == [
        "ps_sync, round_robin, colocated",
        "ps_sync, round_robin, dedicated",
        "allreduce",
    ]


def test_servers_per_host_and_the_coordinators_host_are_told_apart() -> None:
    dedicated: dict[str, Any] = {"layout": LayoutKind.DEDICATED}
    assert labels_of(
        on_slurm(SynchronousServers, **dedicated),
        on_slurm(SynchronousServers, **dedicated, spread=Spread(ps_per_host=2)),
    ) == ["ps_sync, round_robin, 2 ps per host", "ps_sync, round_robin, default ps per host"]
    assert labels_of(
        on_slurm(SynchronousServers),
        on_slurm(SynchronousServers, spread=Spread(coordinator=Coordinator.OWN_HOST)),
    ) == [
        "ps_sync, round_robin, coordinator first_worker",
        "ps_sync, round_robin, coordinator own_host",
    ]


def test_figures_keep_layouts_apart() -> None:
    points = [
        on_slurm(SynchronousServers, layout=layout, placement=policy, num_ps=count)
        for layout in LayoutKind
        for policy in (Policy.ROUND_ROBIN, Policy.PARTITIONED)
        for count in (1, 2)
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
    legend = [text.get_text() for text in servers.legends[0].get_texts()]
    assert legend == [
        "round_robin, colocated",
        "partitioned, colocated",
        "round_robin, dedicated",
        "partitioned, dedicated",
    ]


def test_hosts_of_servers_are_paid_for() -> None:
    ring, servers = on_slurm(AllReduce), on_slurm(SynchronousServers)
    case = case_of([*runs(ring, RATES, hosts=HOSTS[:2]), *runs(servers, RATES, hosts=HOSTS)])
    assert (
        "Per host paid for: all-reduce 49.99 images/s (2 hosts), synchronous parameter servers "
        "25 images/s (4 hosts)."
    ) in verdict(case).details
    (one_host,) = cases_of([*runs(ring, RATES), *runs(servers, RATES)])
    assert not any("paid for" in line for line in verdict(one_host).details)


def test_launches_with_different_numbers_of_hosts_have_no_figure_per_host() -> None:
    ring, servers = on_slurm(AllReduce), on_slurm(SynchronousServers)
    uneven = [
        run(ring, rate, key, hosts=HOSTS[: 2 + key % 2]) for key, rate in RATES.items() if rate
    ]
    case = case_of([*uneven, *runs(servers, RATES, hosts=HOSTS)])
    assert any(
        "all-reduce unknown (launches differ in their hosts)" in line
        for line in verdict(case).details
    )
