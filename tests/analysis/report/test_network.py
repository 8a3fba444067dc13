"""What is said of the networks of a sweep and of its hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.report.network_items import host_items, leaf_switch, network_parts
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import AllReduce
from ps_allreduce.record.hosts import SLOW_IMPORT_S, Gpu, HostRecord, Interface
from ps_allreduce.record.records import LinkRecord, RunRecord
from tests.analysis.builders import links_between, reported, run, table_of
from tests.fakes import make_experiment, make_facts, make_host
from tests.goldens import golden

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


def on(*hosts: HostRecord, own: Experiment = OWN, **changes: Any) -> list[RunRecord]:
    return [run(own, 1.0, hosts=hosts, **changes)]


def told(name: str, **facts: Any) -> HostRecord:
    return make_host(name, facts=make_facts(name, **facts))


SLOW = measured(*[5e8] * 3, *[5e8] * 2)
DISTURBED = replace(SLOW[0], links=(link("n9", "n10", 5e8), link("n10", "n9", 1e8, 3e-4)))

DISTURBED_HOSTS = tuple(make_host(host.name, foreign_load=0.41) for host in HOSTS)

FOUR = links_between(("n1", "n2", "n3", "n4"), 9e8)
TWO_SLOW = (*(replace(each, bits_per_s=5e8) for each in FOUR[:2]), *FOUR[2:])

ETH = Interface(name="eth0", address="10.0.0.9", prefix_length=24, bits_per_s=1e10)
ON_ETH = tuple(replace(host, interface=ETH) for host in HOSTS)

QUICK = [make_host(name, import_s=seconds) for name, seconds in (("n9", 4.0), ("n10", 5.0))]
LEAVES = [told(n, switch=f"top.{leaf}.{n}") for n, leaf in (("n9", "a"), ("n10", "a"), ("n2", "b"))]

RUNS: Mapping[str, Sequence[RunRecord]] = {
    # The way back was disturbed once, which does not make it the slowest.
    "a slow link by its median": [DISTURBED, *SLOW[1:]],
    "links that stand out from others": [run(OWN, 1.0, links=TWO_SLOW)],
    "links that are alike": [run(OWN, 1.0, links=FOUR)],
    "one host": [run(make_experiment(AllReduce, 2), 1.0)],
    "links that were not measured": on(*HOSTS),
    "an interface that states a rate": on(*ON_ETH),
    "one that does so whatever it carries": on(*ON_ETH, own=EMULATED),
    "interfaces that differ": on(ON_ETH[0], HOSTS[1]),
    "an interface that was asked for": on(*HOSTS, own=replace(OWN, interface="10.0.0.0/24")),
    "a busy machine below emulated hosts": [
        *measured(9e8, own=EMULATED, machine_busy=0.5),
        *measured(9e8, own=EMULATED, machine_busy=0.95),
        *measured(9e8, own=EMULATED),
    ],
    "two networks": [*measured(9e8), *measured(9e8, own=EMULATED)],
    "hosts of two kinds in a job": on(*HOSTS, told("n2", cpu_model="Another one"), job_id="17"),
    "cores that a run was given, which make no kind": on(HOSTS[0], told("n10", cores=(0,))),
    "GPUs": on(told("n1", gpus=tuple(Gpu(identity=each, model="A GPU model") for each in "ab"))),
    "no host": on(),
    "leaf switches": on(*LEAVES),
    "a leaf switch that is not told": on(LEAVES[0], HOSTS[1]),
    "imports": on(*QUICK),
    "slow imports": on(*QUICK, make_host("n2", import_s=SLOW_IMPORT_S + 1)),
}


def lines_of(records: Sequence[RunRecord]) -> Iterator[str]:
    """What is said of networks, then of hosts."""
    for part in network_parts(table_of(records)[0], records):
        yield from filter(None, [part.heading])
        yield from (f"{name}: {text}" for name, text in part.items)
        tables = [each.rows for each in part.tables if len(each.rows)]
        yield from (rows.to_csv(index=False).rstrip() for rows in tables)
    yield from (f"{name}: {text}" for name, text in host_items(records))


def test_what_is_said_of_networks_and_hosts() -> None:
    texts = ["\n".join([f"# {title}", *lines_of(own), ""]) for title, own in RUNS.items()]
    golden.check({"sentences/networks.txt": "\n".join(texts)})


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
def test_networks_as_text(changes: dict[str, Any], text: str) -> None:
    assert str(replace(NETWORK, **changes)) == text


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
    # Warnings that differ in figures only count as one; the largest is told.
    found = re.search("<li>Processors were 98% busy \\(3 runs of .*; figures of one\\)", page)
    assert found is not None
    assert "<li>Something else (1 run of " in page


def test_doubts_of_runs_that_are_told_of_the_case_are_told_once(tmp_path: Path) -> None:
    doubts = (
        "this machine's processors were 97% busy: it may have been the limit, not the emulated "
        "network",
        "other programs took 41% of the processor time of n9 while measuring",
    )
    busy = on(*HOSTS, own=EMULATED, warnings=doubts, machine_busy=0.97)
    page = reported(tmp_path, [replace(each, hosts=DISTURBED_HOSTS) for each in busy])
    assert page.count("processors were 90% busy or more") == 1
    assert page.count("time went to other programs in 1 of 1 run") == 1
    assert "while measuring (" not in page
    assert "97% busy: it" not in page


def test_a_host_of_its_own_that_others_disturbed_is_named(tmp_path: Path) -> None:
    doubt = "other programs took 41% of the processor time of n9 while measuring"
    runs_there = on(*HOSTS, warnings=(doubt,))
    page = reported(tmp_path, [replace(each, hosts=DISTURBED_HOSTS) for each in runs_there])
    assert page.count("processor time of n9 while measuring (") == 1
