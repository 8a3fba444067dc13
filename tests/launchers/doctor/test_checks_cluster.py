"""What the doctor says about the program that hosts run, and how they find and reach each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launchers.doctor.checks.connections import clocks, listening, names, ports, proxies
from launchers.doctor.checks.software import checkout, fork_servers, imports, packages, versions
from launchers.doctor.findings import Level, SiteFacts
from ps_allreduce.record.hosts import Interface
from tests.launchers.doctor.doctor_facts import (
    HOSTS,
    VERSIONS,
    healthy,
    levels,
    only,
    with_host,
    with_peer,
    with_state,
)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"resolved": ()}, "n10 does not know the name of n1"),
        ({"resolved": ("127.0.1.1",)}, "n10 has a loopback address for n1"),
        ({"reverse": ()}, "n10 finds no name, or another one, for the address of n1"),
        ({"reverse": ("n9.cluster",)}, "n10 finds no name, or another one, for the address of n1"),
        ({"lookup_s": 5.2}, "n10 takes more than 1 s to look up n1"),
    ],
)
def test_a_name_that_leads_nowhere_is_told(changes: dict[str, object], told: str) -> None:
    finding = only(names(with_peer(healthy(), "n10", "n1", **changes)), Level.WARNING)
    assert finding.text == told
    assert "DNS" in finding.remedy


def test_all_that_is_wrong_with_names_is_one_finding() -> None:
    facts = with_peer(healthy(), "n10", "n1", resolved=())
    facts = with_peer(facts, "n9", "n1", reverse=())
    assert only(names(facts), Level.WARNING).text == (
        "n10 does not know the name of n1; n9 finds no name, or another one, for the address of n1"
    )
    # A name for every network is a name.
    facts = with_peer(healthy(), "n10", "n1", reverse=("N1-ib0.cluster",), resolved=("10.9.0.1",))
    assert levels(names(facts)) == [Level.OK]


def test_many_hosts_with_the_same_trouble_are_a_short_text() -> None:
    hosts = [f"n{number}" for number in range(1, 21)]
    facts = healthy(hosts)
    for host in hosts:
        for other in hosts:
            if other != host:
                facts = with_peer(facts, host, other, resolved=())
    text = only(names(facts), Level.WARNING).text
    assert "n1 does not know the name of n2, n3, n4, n5, n6 and 14 more" in text
    assert text.endswith("so do 16 more hosts")


def test_a_port_that_is_closed_is_told_with_who_wants_it_and_every_reason() -> None:
    facts = with_peer(healthy(), "n10", "n9", unreached="timed out")
    facts = with_peer(facts, "n1", "n9", unreached="timed out")
    finding = only(ports(facts), Level.FAILURE)
    assert finding.text == "n10, n1 cannot reach n9 (10.0.0.9: timed out)"
    assert "--interface (there are eth0)" in finding.remedy
    facts = with_peer(facts, "n1", "n9", unreached="n1 answers at 10.0.0.9")
    assert [finding.text for finding in ports(facts)] == [
        "n10 cannot reach n9 (10.0.0.9: timed out)",
        "n1 cannot reach n9 (10.0.0.9: n1 answers at 10.0.0.9)",
    ]


def test_networks_that_only_some_have_are_not_offered() -> None:
    facts = with_peer(healthy(), "n10", "n9", unreached="timed out")
    fast = Interface(name="ib0", address="10.1.0.1", prefix_length=16)
    host = facts.checked["n10"].facts
    more = replace(host, interfaces=(*host.interfaces, fast))
    (finding,) = ports(with_host(facts, "n10", facts=more))
    assert "(there are eth0)" in finding.remedy


@pytest.mark.parametrize(
    ("offset", "level"),
    [
        (0.004, Level.OK),
        (-0.004, Level.OK),
        (0.006, Level.WARNING),
        (-0.9, Level.WARNING),
        (1.1, Level.FAILURE),
        (-7200.0, Level.FAILURE),
    ],
)
def test_clocks_that_disagree_are_told(offset: float, level: Level) -> None:
    facts = with_host(healthy(), "n1", clock_offset_s=offset)
    finding = only(clocks(facts), level)
    assert "n1 is" in finding.text


def test_clocks_that_are_off_to_both_sides_or_here_are_told() -> None:
    facts = with_host(healthy(), "n1", clock_offset_s=-0.6)
    facts = with_host(facts, "n9", clock_offset_s=0.6)
    assert only(clocks(facts), Level.FAILURE).text.startswith("within 1.2 s")
    for host in HOSTS:
        facts = with_host(facts, host, clock_offset_s=2.0)
    assert levels(clocks(facts)) == [Level.FAILURE]


def test_a_proxy_on_a_host_would_be_obeyed() -> None:
    facts = with_state(healthy(), "n9", proxies={"http_proxy": "proxy:3128"})
    finding = only(proxies(facts), Level.FAILURE)
    assert finding.text == "n9 would use a proxy (http_proxy is proxy:3128 on n9)"


def test_a_proxy_here_is_removed_but_told() -> None:
    facts = replace(healthy(), own_proxies={"grpc_proxy": "proxy:1", "http_proxy": "proxy:2"})
    finding = only(proxies(facts), Level.WARNING)
    assert finding.text.startswith("grpc_proxy is proxy:1, http_proxy is proxy:2 here;")
    assert "no_proxy" in finding.remedy


def test_everybody_is_told_where_servers_listen() -> None:
    finding = only(listening(healthy()), Level.OK)
    assert "listen on all addresses" in finding.text
    assert "10.0.0.10, fe80::1" in finding.text


@pytest.mark.parametrize("address", ["141.30.1.1", "2a00:1450:4001:830::200e"])
def test_servers_that_the_world_can_reach_are_told(address: str) -> None:
    facts = with_state(healthy(), "n1", addresses=("10.0.0.1", address))
    finding = only(listening(facts), Level.WARNING)
    assert f"{address} of n1" in finding.text
    assert "10.0.0.1 of" not in finding.text
    assert "firewall" in finding.remedy


def test_hosts_of_one_machine_have_one_clock_and_need_no_names() -> None:
    facts = replace(healthy(), one_machine=True)
    facts = with_host(facts, "n1", clock_offset_s=9.0)
    facts = with_peer(facts, "n10", "n1", resolved=())
    assert levels([*clocks(facts), *names(facts)]) == [Level.OK, Level.OK]


def with_versions(facts: SiteFacts, host: str, **changes: str) -> SiteFacts:
    found = dict(facts.checked[host].facts.versions) | changes
    return with_host(facts, host, facts=replace(facts.checked[host].facts, versions=found))


def test_servers_that_do_not_come_up_are_a_failure() -> None:
    reason = "no fork server came up on n9: TensorFlow could not be imported there."
    finding = only(fork_servers(healthy(checked={}, not_started=reason)), Level.FAILURE)
    assert finding.text == reason


def test_a_host_that_stops_answering_is_named_and_left_out() -> None:
    facts = replace(healthy(), troubles={"n9": "the fork server on n9 ended"})
    up, finding = fork_servers(facts)
    assert up.text == "3 up after 6.0 s"
    assert (finding.level, finding.leave_out) == (Level.FAILURE, ("n9",))
    assert "the fork server on n9 ended" in finding.text


def test_a_slow_import_is_told() -> None:
    facts = with_host(healthy(), "n1", import_s=45.0)
    finding = only(imports(facts), Level.WARNING)
    assert finding.text == "TensorFlow imported in 4.0 to 45.0 s (longest on n1)"
    # Three at the same time on the cores of one machine take three times as long.
    assert levels(imports(replace(facts, one_machine=True))) == [Level.OK]


def test_other_versions_and_missing_packages_are_told_by_package() -> None:
    facts = with_versions(healthy(), "n9", numpy="2.2.0")
    finding = only(versions(facts), Level.FAILURE)
    assert finding.text == "numpy is 2.4.6 on n10, n1, 2.2.0 on n9"
    facts = with_versions(healthy(), "n10", psutil="7.0")
    assert only(versions(facts), Level.FAILURE).text == "psutil is 7.0 on n10, missing on n1, n9"


def test_hosts_that_agree_may_differ_from_here() -> None:
    facts = replace(healthy(), own_versions=VERSIONS | {"numpy": "1.26.4"})
    finding = only(versions(facts), Level.WARNING)
    assert finding.text == "numpy is 2.4.6 on the hosts, 1.26.4 on this machine"


def test_another_kernel_is_no_other_program() -> None:
    assert levels(versions(with_versions(healthy(), "n9", kernel="5.14"))) == [Level.OK]


def test_another_checkout_is_a_failure() -> None:
    finding = only(checkout(with_state(healthy(), "n9", digest="deadbeef")), Level.FAILURE)
    assert finding.text == "the source on n9 is not the one here (0badcafe)"
    assert finding.leave_out == ("n9",)
    # Where all differ from here nobody is left out.
    finding = only(checkout(replace(healthy(), own_digest="deadbeef")), Level.FAILURE)
    assert finding.leave_out == ()


def test_packages_of_the_user_are_a_failure() -> None:
    facts = with_state(
        healthy(), "n9", user_modules=("numpy", "keras"), user_site="/home/u/.local/lib"
    )
    finding = only(packages(facts), Level.FAILURE)
    assert finding.text == (
        "numpy, keras comes from /home/u/.local/lib on n9, not from the environment"
    )
    assert "PYTHONNOUSERSITE=1" in finding.remedy


def test_a_door_to_the_users_packages_is_a_warning() -> None:
    facts = with_state(healthy(), "n9", user_site="/home/u/.local/lib")
    finding = only(packages(facts), Level.WARNING)
    assert "from /home/u/.local/lib on n9; it took none" in finding.text


@pytest.mark.parametrize(("locked", "level"), [(True, Level.WARNING), (False, Level.OK)])
def test_modules_from_elsewhere_are_told(locked: bool, level: Level) -> None:
    facts = with_state(healthy(), "n9", outside_modules=("psutil",), locked=locked)
    assert only(packages(facts), level).text.startswith("psutil on n9 come from neither")


def test_all_is_well() -> None:
    facts = healthy()
    found = [*versions(facts), *checkout(facts), *packages(facts), *imports(facts)]
    assert levels(found) == [Level.OK] * 4
    assert found[0].text == "the same everywhere: python 3.11.2, tensorflow 2.21.0, numpy 2.4.6"
