"""What the doctor says about what hosts are, what they have and how fast they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from launchers.doctor.checks.machine import (
    alike,
    gpus,
    load,
    memory,
    open_files,
    results,
    temporary,
)
from launchers.doctor.checks.speed import (
    computing,
    hosts_with_slow_links,
    links,
    slow_links,
    slower_than_others,
)
from launchers.doctor.findings import Level, Sharing, SiteFacts
from ps_allreduce.record.hosts import Gpu
from ps_allreduce.record.records import LinkRecord
from tests.examples import fast
from tests.launchers.doctor import doctor_facts as made
from tests.launchers.doctor.doctor_facts import (
    GIB,
    HOSTS,
    VERSIONS,
    healthy,
    levels,
    only,
    with_host,
    with_state,
)


def test_hosts_of_several_kinds_are_refused_by_runs() -> None:
    facts = healthy()
    other = replace(facts.checked["n9"].facts, cpu_model="An older processor")
    mixed = with_host(facts, "n9", facts=other)
    finding = only(alike(mixed), Level.FAILURE)
    assert "2 kinds: n10 and n9 differ in cpu_model" in finding.text
    assert finding.remedy == "ask for one kind, or accept it: --mixed-hosts"
    assert levels(alike(replace(mixed, mixed_hosts=True))) == [Level.WARNING]


def test_hosts_named_for_servers_may_be_of_another_kind_with_the_same_software() -> None:
    facts = healthy()
    small = replace(facts.checked["n9"].facts, cpu_model="A small processor", cores=(0,))
    named = replace(with_host(facts, "n9", facts=small), ps_hosts=("n9",))
    assert "; those for servers: 1 cores, A small processor" in only(alike(named), Level.OK).text
    older = replace(small, versions=dict.fromkeys(small.versions, "0.1"))
    finding = only(alike(with_host(named, "n9", facts=older)), Level.FAILURE)
    assert "2 kinds of software: " in finding.text


@pytest.mark.parametrize(
    ("free", "level"),
    [(5 * GIB, Level.OK), (3 * GIB, Level.WARNING), (GIB // 2, Level.FAILURE)],
)
def test_little_memory_is_told(free: int, level: Level) -> None:
    assert levels(memory(with_state(healthy(), "n1", free_bytes=free))) == [level]
    limited = with_state(healthy(), "n1", memory_limit_bytes=free)
    assert levels(memory(limited)) == [level]


def test_hosts_of_one_machine_share_its_memory() -> None:
    facts = replace(healthy(), one_machine=True)
    for host in HOSTS:
        facts = with_state(facts, host, free_bytes=9 * GIB)
    assert only(memory(facts), Level.WARNING).text == "n10, n1, n9: only 3.0 GiB free"


def test_a_load_is_told() -> None:
    facts = with_state(healthy(), "n9", busy_share=0.42)
    finding = only(load(facts), Level.WARNING)
    assert finding.text == "n9: up to 42% of the cores in use before anything began"
    assert levels(load(healthy())) == [Level.OK]


@pytest.mark.parametrize(
    ("number", "level"),
    [(1024, Level.OK), (1000, Level.WARNING), (100, Level.FAILURE)],
)
def test_few_connections_are_told(number: int, level: Level) -> None:
    found = only(open_files(with_state(healthy(), "n9", open_files=number)), level)
    assert str(number) in found.text


@pytest.mark.parametrize(
    ("changes", "level", "told"),
    [
        (
            {"problem": "Read-only file system", "free_bytes": 0},
            Level.FAILURE,
            "n9: /tmp cannot be written (Read",
        ),
        ({"free_bytes": GIB // 2}, Level.WARNING, "n9: only 0.5 GiB free"),
        ({"free_bytes": 0}, Level.FAILURE, "n9: only 0.0 GiB free"),
        ({"file_system": "nfs4"}, Level.WARNING, "/tmp is on a shared file system (nfs4) on n9"),
        ({"file_system": "lustre"}, Level.WARNING, "shared file system (lustre)"),
        ({"asked": "/local/7"}, Level.WARNING, "TMPDIR is /local/7, which cannot be used on n9"),
        ({"asked": "/tmp"}, Level.OK, "GiB free"),
        ({"file_system": "tmpfs"}, Level.OK, "/tmp (tmpfs)"),
    ],
)
def test_a_bad_place_for_files_is_told(changes: dict[str, Any], level: Level, told: str) -> None:
    folder = replace(healthy().states["n9"].temporary, **changes)
    found = list(temporary(with_state(healthy(), "n9", temporary=folder)))
    assert any(told in finding.text for finding in found)
    assert max(levels(found), key=list(Level).index) is level


def with_gpus(facts: SiteFacts, host: str, number: int, **changes: Any) -> SiteFacts:
    cards = tuple(Gpu(identity=str(index), model="A100") for index in range(number))
    seen = replace(facts.checked[host].facts, gpus=cards)
    return with_host(facts, host, facts=seen, **({"gpus_of_worker": number} | changes))


def test_gpus_are_the_workers() -> None:
    facts = healthy()
    assert only(gpus(facts), Level.OK).text == "none; tasks compute on processors"
    for host in HOSTS:
        facts = with_gpus(facts, host, 4)
    finding = only(gpus(facts), Level.OK)
    assert finding.text == "4 on n10, 4 on n1, 4 on n9: workers see them, servers do not"


def test_gpus_that_do_not_show_and_those_that_servers_see_are_told() -> None:
    facts = with_gpus(healthy(), "n9", 4, gpus_of_worker=3)
    assert only(gpus(facts), Level.FAILURE).text == "n9 has 4 and shows 3"
    facts = with_gpus(healthy(), "n9", 4, gpus_of_worker=0, gpu_problem="CUDA ends with error 803")
    assert (
        only(gpus(facts), Level.FAILURE).text == "n9 has 4 and shows 0 (CUDA ends with error 803)"
    )
    facts = with_gpus(healthy(), "n9", 4, gpus_of_server=4)
    assert only(gpus(facts), Level.FAILURE).text == "a server sees GPUs on n9"


def test_gpus_without_a_build_for_them_are_told() -> None:
    facts = with_gpus(healthy(), "n9", 1)
    versions = VERSIONS | {"tensorflow-cpu": "2.21.0"}
    host = replace(facts.checked["n9"].facts, versions=versions)
    finding = only(gpus(with_host(facts, "n9", facts=host)), Level.WARNING)
    assert "TF=cuda" in finding.remedy


def test_a_results_folder_that_nobody_can_write_or_needs_to_share() -> None:
    assert levels(results(healthy(shares_files=False, sharing=Sharing()))) == [Level.OK]
    finding = only(results(healthy(sharing=Sharing(refused="Permission denied"))), Level.FAILURE)
    assert finding.text == "/scratch/results cannot be written here (Permission denied)"


def sharing(**changes: Any) -> Sharing:
    everybody = healthy().sharing
    assert everybody is not None
    return replace(everybody, **changes)


def test_a_host_that_cannot_write_is_told() -> None:
    delays = {"n10": {"n1": 0.02}, "n1": {"n10": 0.02}, "n9": {"n10": 0.02, "n1": 0.02}}
    unwritable = sharing(unwritable={"n9": "No such file or directory"}, delays_s=delays)
    finding = only(results(healthy(sharing=unwritable)), Level.FAILURE)
    assert finding.text == "/scratch/results: n9 cannot write there (No such file or directory)"
    assert "RESULTS=" in finding.remedy


def test_files_that_others_do_not_see_are_told() -> None:
    delays = {"n10": {"n1": 0.02}, "n1": {"n10": 0.02, "n9": 0.02}, "n9": {"n10": 0.0, "n1": 0.0}}
    facts = healthy(sharing=sharing(delays_s=delays, unseen_here=("n9",)))
    finding = only(results(facts), Level.FAILURE)
    assert "n10 does not see the file of n9" in finding.text
    assert "this machine does not see the file of n9" in finding.text


def test_files_that_are_seen_late_are_told() -> None:
    assert "within 0.02 s" in only(results(healthy()), Level.OK).text
    late = sharing(delays_s={"n10": {"n1": 12.0, "n9": 0.1}, "n1": {"n10": 0.1, "n9": 0.1}})
    assert "within 12.00 s" in only(results(healthy(sharing=late)), Level.WARNING).text


def test_a_host_that_computes_slowly_is_named() -> None:
    facts = healthy(flops={"n10": 1.00e12, "n1": 0.70e12, "n9": 0.98e12})
    finding = only(computing(facts), Level.FAILURE)
    assert finding.text == "n1 700.0 GFLOP/s, the others 990.0"
    assert finding.leave_out == ("n1",)
    facts = healthy(("n10", "n1"), flops={"n10": 1e12, "n1": 0.5e12})
    assert only(computing(facts), Level.FAILURE).leave_out == ("n1",)


def test_a_host_that_does_not_compute_is_named() -> None:
    facts = healthy(flops={"n10": 1e12, "n1": 1e12})
    finding = only(computing(facts), Level.FAILURE)
    assert (finding.text, finding.leave_out) == ("n9 did not compute", ("n9",))


def test_hosts_of_one_machine_are_not_compared() -> None:
    facts = healthy(one_machine=True, flops={"n10": 5e10})
    assert only(computing(facts), Level.OK).text.startswith("50.0 GFLOP/s")


def test_equal_hosts_are_well() -> None:
    found = [*computing(healthy()), *links(healthy())]
    assert levels(found) == [Level.OK, Level.OK]
    assert found[1].text == (
        "9.4 Gbit/s to 9.4 Gbit/s per direction, both at once; a round trip takes 50 us"
    )


def with_rates(slower: dict[tuple[str, str], float], hosts: tuple[str, ...] = HOSTS) -> SiteFacts:
    every = made.links(hosts)
    return healthy(
        hosts,
        links=tuple(
            replace(one, bits_per_s=slower.get((one.source, one.target), one.bits_per_s))
            for one in every
        ),
    )


def test_a_host_with_slow_links_is_named() -> None:
    slow = {(a, b): 9.4e8 for a in HOSTS for b in HOSTS if "n1" in (a, b)}
    finding = only(links(with_rates(slow)), Level.FAILURE)
    assert finding.text == (
        "n1 sends 940 Mbit/s at most and receives 940 Mbit/s; the others' median link carries "
        "9.4 Gbit/s"
    )
    assert finding.leave_out == ("n1",)


def test_a_host_that_is_slow_in_one_direction_is_named() -> None:
    slow = {("n10", "n1"): 9.4e8, ("n9", "n1"): 9.4e8}
    assert only(links(with_rates(slow)), Level.FAILURE).leave_out == ("n1",)


def test_a_slow_pair_of_fast_hosts_accuses_neither() -> None:
    hosts = ("n10", "n1", "n9", "n2")
    finding = only(links(with_rates({("n10", "n9"): 9.4e8}, hosts)), Level.WARNING)
    assert finding.text == "1 of 12 links below 0.8 of their median: n10 to n9 940 Mbit/s"
    assert finding.leave_out == ()


def test_of_two_hosts_nobody_can_tell_whose_link_is_slow() -> None:
    facts = with_rates({("n10", "n1"): 1e9}, ("n10", "n1"))
    assert only(links(facts), Level.WARNING).leave_out == ()


def test_a_measurement_that_came_to_nothing_or_was_not_needed_is_told() -> None:
    facts = healthy(links=(), links_trouble="the links of n9 cannot be measured: timed out")
    assert only(links(facts), Level.FAILURE).text.endswith("timed out")
    assert only(links(healthy(("n1",), links=())), Level.OK).text == "one host, no link"


@fast
@given(
    st.dictionaries(st.text(min_size=1), st.floats(0.9, 1.1), min_size=3, max_size=20),
    st.floats(0.001, 0.6),
    st.data(),
)
def test_one_slow_host_never_makes_others_look_slow(
    rates: dict[str, float], factor: float, data: st.DataObject
) -> None:
    victim = data.draw(st.sampled_from(sorted(rates)))
    assert slower_than_others(rates) == ()
    assert slower_than_others(rates | {victim: rates[victim] * factor}) == (victim,)


@fast
@given(
    st.integers(4, 12),
    st.lists(st.floats(0.95, 1.05), min_size=132, max_size=132),
    st.floats(0.01, 0.7),
    st.integers(0, 11),
)
def test_one_host_with_a_slow_network_card_is_the_one_that_is_named(
    num_hosts: int, noise: list[float], factor: float, victim: int
) -> None:
    assume(victim < num_hosts)
    hosts = [f"n{number}" for number in range(num_hosts)]
    pairs = [(a, b) for a in hosts for b in hosts if a != b]
    every = [
        LinkRecord(
            source=a,
            target=b,
            bits_per_s=1e9 * share * (factor if f"n{victim}" in (a, b) else 1.0),
            round_trip_s=1e-4,
        )
        for (a, b), share in zip(pairs, noise, strict=False)
    ]
    assert hosts_with_slow_links(every) == (f"n{victim}",)
    assert all(f"n{victim}" in (one.source, one.target) for one in slow_links(every))
