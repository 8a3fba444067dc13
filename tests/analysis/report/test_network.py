from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.report.network_items import host_items, leaf_switch, network_parts
from analysis.report.pages.page_parts import PagePart
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import AllReduce
from ps_allreduce.record.hosts import SLOW_IMPORT_S, Gpu, HostRecord, Interface
from ps_allreduce.record.records import LinkRecord, RunRecord
from tests.analysis.builders import links_between, reported, run, table_of
from tests.fakes import make_experiment, make_facts, make_host

NETWORK = EmulatedNetwork(num_hosts=2, bits_per_s=1e9)
OWN = make_experiment(AllReduce, 2, launcher="slurm", spread=Spread())
EMULATED = replace(OWN, launcher="emulated", network=NETWORK)
HOSTS = (make_host("n9"), make_host("n10"))


def link(source: str, target: str, rate: float, trip: float = 1e-4) -> LinkRecord:
    return LinkRecord(source=source, target=target, bits_per_s=rate, round_trip_s=trip)


def measured(*rates: float, own: Experiment = OWN, **changes: Any) -> list[RunRecord]:
    """A run for every rate from n9 to n10; the way back always carries 900 Mbit/s."""
    return [
        run(
            own,
            100.0,
            repetition,
            hosts=HOSTS,
            links=(link("n9", "n10", rate), link("n10", "n9", 9e8, 3e-4)),
            **changes,
        )
        for repetition, rate in enumerate(rates)
    ]


def network_of(*records: RunRecord) -> dict[str, str]:
    (part,) = parts_of(*records)
    return dict(part.items)


def parts_of(*records: RunRecord) -> list[PagePart]:
    table, _ = table_of(records)
    return network_parts(table, records)


def hosts_of(*hosts: HostRecord, **changes: Any) -> dict[str, str]:
    return dict(host_items([run(OWN, 100.0, hosts=hosts, **changes)]))


def test_the_slowest_link_is_so_by_its_median() -> None:
    # One disturbed measurement of the way back does not make it the slowest.
    records = [*measured(5e8, 5e8, 5e8), *measured(5e8, 5e8)]
    disturbed = replace(records[0], links=(link("n9", "n10", 5e8), link("n10", "n9", 1e8, 3e-4)))
    rows = network_of(disturbed, *records[1:])
    assert rows["links measured"] == "medians 500 Mbit/s to 900 Mbit/s (10 measurements)"
    assert rows["slowest link"] == "n9 to n10: median 500 Mbit/s, lowest 500 Mbit/s"
    assert rows["round trip"] == "median 0.2 ms; longest n10 to n9, median 0.3 ms"
    assert list(parts_of(*records)[0].tables[0].rows["from"]) == ["n9", "n10"]


def test_links_are_named_that_stand_out_from_others() -> None:
    hosts = ("n1", "n2", "n3", "n4")
    links = links_between(hosts, 9e8)
    slow = tuple(replace(each, bits_per_s=5e8) for each in links[:2])
    told = "n1 to n2 and n2 to n3: median 500 Mbit/s, lowest 500 Mbit/s"
    assert network_of(run(OWN, 1.0, links=(*slow, *links[2:])))["slowest links"] == told
    alike = network_of(run(OWN, 1.0, links=links))
    assert alike["links measured"] == "median 900 Mbit/s (4 measurements)"
    assert not {"slowest link", "slowest links"} & {*alike}
    assert "longest" not in alike["round trip"]


def test_no_links_are_no_silence() -> None:
    local = make_experiment(AllReduce, 2)
    assert network_of(run(local, 1.0))["links"] == "none: every run was on one host"
    assert network_of(run(OWN, 1.0, hosts=HOSTS))["links"] == "not measured"


def test_the_interface_and_what_it_states() -> None:
    eth = Interface(name="eth0", address="10.0.0.9", prefix_length=24, bits_per_s=1e10)
    on_eth = tuple(replace(host, interface=eth) for host in HOSTS)
    assert network_of(run(OWN, 1.0, hosts=on_eth))["interface"] == "eth0, states 10 Gbit/s"
    assert network_of(run(EMULATED, 1.0, hosts=on_eth))["interface"] == (
        "eth0, states 10 Gbit/s (as virtual ones do, whatever they carry)"
    )
    assert network_of(run(OWN, 1.0, hosts=(on_eth[0], HOSTS[1])))["interface"] == (
        "eth0, states 10 Gbit/s (n9); lo, states no rate (n10)"
    )
    asked = replace(OWN, interface="10.0.0.0/24")
    assert network_of(run(asked, 1.0))["interface asked for"] == "10.0.0.0/24"


def test_how_busy_the_machine_below_emulated_hosts_was() -> None:
    records = measured(9e8, own=EMULATED, machine_busy=0.5)
    records += measured(9e8, own=EMULATED, machine_busy=0.95) + measured(9e8, own=EMULATED)
    rows = network_of(*records)
    assert rows["machine's processors"] == (
        "median 72% busy, highest 95%; 1 of 3 runs at 90% or above, 1 not known"
    )
    assert rows["emulated"] == "2 hosts, 1gbit; all hosts share one machine"
    assert "machine's processors" not in network_of(*measured(9e8))


def test_every_network_of_a_sweep_has_its_part() -> None:
    parts = parts_of(*measured(9e8), *measured(9e8, own=EMULATED))
    assert [part.heading for part in parts] == ["slurm", "emulated, 2 hosts, 1gbit"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "1gbit"),
        ({"bits_per_s": None}, "no limit"),
        ({"delay_s": 5e-5}, "1gbit, delay 0.05ms"),
        ({"slow_host": 1, "slow_bits_per_s": 1e8}, "1gbit, host 1 100mbit"),
        ({"racks": 2, "uplink_bits_per_s": 5e8}, "1gbit, 2 racks, uplink 500mbit"),
    ],
)
def test_networks_as_text(changes: dict[str, float], text: str) -> None:
    assert str(replace(NETWORK, **changes)) == text  # type: ignore[arg-type]


def test_hosts_keep_their_order_and_kinds_are_told() -> None:
    other = make_host("n2", facts=make_facts("n2", cpu_model="Another one"))
    rows = hosts_of(*HOSTS, other, job_id="17")
    assert rows["hosts"] == "3: n9, n10, n2"
    assert rows["numbers of the jobs"] == "17"
    assert rows["kinds of hosts"] == (
        "2: n9, n10 (A processor, 8.0 GB); n2 (alike but for cpu_model: Another one)"
    )
    # Cores that a run was given make no kind.
    few = make_host("n10", facts=make_facts("n10", cores=(0,)))
    assert hosts_of(HOSTS[0], few)["kinds of hosts"] == "one: A processor, 8.0 GB"
    gpus = tuple(Gpu(identity=each, model="A GPU model") for each in "ab")
    rows = hosts_of(make_host("n1", facts=make_facts("n1", gpus=gpus)))
    assert rows["kinds of hosts"].endswith("8.0 GB, 2 GPUs A GPU model")
    assert host_items([run(OWN, None, hosts=())]) == []


@pytest.mark.parametrize(
    ("path", "name", "leaf"),
    [
        ("top.leaf1.n9", "n9", "leaf1"),
        ("s[0-1].leaf.n9.example.org", "n9.example.org", "leaf"),
        ("n9", "n9", ""),
        ("", "n9", ""),
    ],
)
def test_the_leaf_switch_is_the_last_one_above_a_host(path: str, name: str, leaf: str) -> None:
    assert leaf_switch(make_facts("n9", switch=path, scheduler_name=name)) == leaf


def test_leaf_switches_are_reported_where_they_are_told() -> None:
    told = [
        make_host(name, facts=make_facts(name, switch=f"top.{leaf}.{name}"))
        for name, leaf in (("n9", "a"), ("n10", "a"), ("n2", "b"))
    ]
    assert hosts_of(*told)["leaf switches"] == "a: n9, n10; b: n2"
    assert hosts_of(told[0], HOSTS[1])["leaf switches"] == "a: n9; not told: n10"
    assert "leaf switches" not in hosts_of(*HOSTS)


def test_slow_imports_come_with_a_hint() -> None:
    quick = [make_host(name, import_s=seconds) for name, seconds in (("n9", 4.0), ("n10", 5.0))]
    assert hosts_of(*quick)["import of TensorFlow"] == "median 4.5 s, longest 5.0 s (n10)"
    slow = hosts_of(*quick, make_host("n2", import_s=SLOW_IMPORT_S + 1))["import of TensorFlow"]
    assert slow.startswith("median 5.0 s, longest 31.0 s (n2); an environment on a shared file")
    assert "docs/slurm.md" in slow
    assert "import of TensorFlow" not in hosts_of(*HOSTS)


def test_the_report_has_parts_about_the_network_and_warnings(tmp_path: Path) -> None:
    records = measured(5e8, 4e8, 5e8, 5e8)
    doubts = [f"processors were {share}% busy" for share in (97, 98, 97)] + ["something else"]
    page = reported(
        tmp_path,
        [replace(each, warnings=(text,)) for each, text in zip(records, doubts, strict=True)],
    )
    assert "<h2>Network and hosts</h2>" in page
    assert "n9 to n10: median 500 Mbit/s, lowest 400 Mbit/s" in page
    assert "Measured links (2)" in page
    assert "2: n9, n10" in page
    # Warnings that differ in figures only count as one.
    assert "<li>Processors were 97% busy (3 runs like it)</li>" in page
    assert "<li>Something else (1 run)</li>" in page
