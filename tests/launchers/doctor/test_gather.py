"""Hosts, here fork servers on this machine, are asked everything, and none holds up the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.doctor import benchmarks, sharing
from launchers.doctor.benchmarks import Pair, measure_all_links, num_rounds, rounds_of_pairs
from launchers.doctor.checks import examine
from launchers.doctor.findings import Level
from launchers.doctor.gather import NUM_STEPS, gather
from launchers.doctor.questions import ask_hosts
from launchers.doctor.site_facts import SiteFacts
from launchers.fork_servers.host_servers import HostServers, measure_links
from ps_allreduce.errors import UserError
from ps_allreduce.inspection.questions import CountGpus
from ps_allreduce.record.records import LinkRecord
from tests.cluster import ADDRESSES, Cluster
from tests.examples import fast
from tests.launchers.doctor.doctor_facts import link
from tests.pretend import FAKE_SERVER, fake_server

HOSTS = tuple(ADDRESSES)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    # A fork server that is killed leaves its folder to the next one.
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
    monkeypatch.setattr(benchmarks, "SECONDS", 0.05)
    monkeypatch.setattr(benchmarks, "measure_links", partial(measure_links, seconds=0.05))
    monkeypatch.setattr(sharing, "WITHIN_S", 2.0)


def examined(cluster: Cluster, results: Path, interface: str | None = None) -> SiteFacts:
    return gather(cluster, results, interface, mixed_hosts=False, tell=lambda _: None)


def troubled(facts: SiteFacts) -> dict[str, str]:
    """What the checks say that is no compliment, but for what depends on this machine's mood."""
    moody = ("load", "memory", "compute", "links")
    return {
        title: finding.text
        for title, findings in examine(facts).items()
        for finding in findings
        if finding.level is Level.FAILURE and title not in moody
    }


def test_everything_is_found_out_about_hosts_that_are_well(tmp_path: Path) -> None:
    told: list[str] = []
    cluster = Cluster(dict.fromkeys(HOSTS, FAKE_SERVER))
    facts = gather(cluster, tmp_path / "a" / "b", None, mixed_hosts=False, tell=told.append)
    assert (facts.hosts, tuple(facts.checked), tuple(facts.states)) == (HOSTS, HOSTS, HOSTS)
    assert cluster.asked == [dict.fromkeys(HOSTS, 2)]
    assert (facts.troubles, facts.not_started, facts.links_trouble) == ({}, "", "")
    assert {h: c.address for h, c in facts.checked.items()} == ADDRESSES
    assert all(isinstance(c.clock_offset_s, float) for c in facts.checked.values())
    assert {(c.gpus_of_worker, c.gpus_of_server) for c in facts.checked.values()} == {(0, 0)}
    for host, state in facts.states.items():
        assert list(state.peers) == [other for other in HOSTS if other != host]
        assert {peer.unreached for peer in state.peers.values()} == {""}
    assert facts.sharing is not None
    assert {(r, w) for r, by in facts.sharing.delays_s.items() for w in by} == pairs()
    assert facts.sharing.unseen_here == ()
    assert set(facts.flops) == set(HOSTS)
    assert {(one.source, one.target) for one in facts.links} == pairs()
    assert troubled(facts) == {}
    assert len({text for text in told if "again" not in text}) == NUM_STEPS + num_rounds(len(HOSTS))
    assert list(tmp_path.iterdir()) == []


def pairs() -> set[Pair]:
    return {(a, b) for a in HOSTS for b in HOSTS if a != b}


def test_hosts_of_one_machine_compute_one_at_a_time(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    facts = examined(Cluster({"n1": FAKE_SERVER, "n9": FAKE_SERVER}, one_machine=True), results)
    assert list(facts.flops) == ["n1"]
    assert {c.clock_offset_s for c in facts.checked.values()} == {None}
    assert list(results.iterdir()) == []
    assert troubled(facts) == {}


@pytest.mark.parametrize(
    ("request_kind", "job", "reason"),
    [
        ("CheckHost", "die", "the fork server on n1, from which its tasks are forked, ended"),
        ("ShareFile", "die", ""),
        ("CheckHost", "complain", "out of luck."),
        ("CountGpus", "complain", "out of luck."),
    ],
)
def test_a_host_that_falls_ill_is_named_and_the_others_are_examined(
    tmp_path: Path, request_kind: str, job: str, reason: str
) -> None:
    words = dict.fromkeys(HOSTS, FAKE_SERVER) | {"n1": fake_server("--job", request_kind, job)}
    facts = examined(Cluster(words), tmp_path)
    told = [finding.text for finding in examine(facts)["fork servers"]]
    assert any(text.startswith(f"n1: {reason}") for text in told) or request_kind == "ShareFile"
    assert "n1" in " ".join(troubled(facts).values())
    assert {"n10", "n9"} <= set(facts.states)
    assert {("n10", "n9"), ("n9", "n10")} <= {(one.source, one.target) for one in facts.links}
    assert facts.links_trouble == ""


def test_an_address_that_a_host_does_not_have_is_told(tmp_path: Path) -> None:
    cluster = Cluster(dict.fromkeys(HOSTS, FAKE_SERVER), addresses=ADDRESSES | {"n1": "192.0.2.77"})
    facts = examined(cluster, tmp_path)
    assert facts.troubles["n1"].startswith("cannot listen at 192.0.2.77 (")
    assert len(facts.links) == 2


def test_hosts_that_do_not_come_up_are_told(tmp_path: Path) -> None:
    facts = examined(Cluster({"n1": FAKE_SERVER}, broken="no fork server came up on n1."), tmp_path)
    assert facts.not_started == "no fork server came up on n1."
    assert troubled(facts) == {"fork servers": "no fork server came up on n1."}


def test_a_network_that_a_host_does_not_have_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no interface ib7"):
        examined(Cluster({"n1": FAKE_SERVER}), tmp_path, "ib7")


def test_a_results_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    facts = examined(Cluster({"n1": FAKE_SERVER}), tmp_path / "file" / "results")
    assert "cannot be written here (" in troubled(facts)["RESULTS"]


def test_a_host_that_leaves_no_file_is_missed_by_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "WITHIN_S", 0.5)
    words = {"n10": FAKE_SERVER, "n1": fake_server("--job", "ShareFile", "do_nothing")}
    facts = examined(Cluster(words), tmp_path)
    assert "n10 does not see the file of n1" in troubled(facts)["RESULTS"]


@pytest.fixture
def hanging() -> Iterator[HostServers]:
    cluster = Cluster({"n10": FAKE_SERVER, "n1": fake_server("--job", "CountGpus", "hang")})
    with cluster, cluster.servers(dict.fromkeys(cluster.hosts, 1), None) as servers:
        yield servers


def test_who_does_not_answer_in_time_is_left_behind(hanging: HostServers) -> None:
    requests = {
        host: CountGpus(visible="", log=f"{client.ready.scratch}/log")
        for host, client in hanging.clients.items()
    }
    answers = ask_hosts(hanging, requests, 2.0)
    assert list(answers.of("gpus")) == ["n10"]
    assert answers.troubles == {"n1": "no answer within 2 s"}
    # What hung was ended, and is not mistaken for the next one.
    answers = ask_hosts(hanging, requests, 1.0)
    assert list(answers.of("gpus")) == ["n10"]


@fast
@given(st.integers(0, 40))
def test_every_pair_meets_once(number: int) -> None:
    hosts = [f"n{index}" for index in range(number)]
    rounds = rounds_of_pairs(hosts)
    met = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(met) == len(set(met))
    assert set(met) == {frozenset(pair) for pair in combinations(hosts, 2)}
    for pairs in rounds:
        busy = [host for pair in pairs for host in pair]
        assert len(busy) == len(set(busy))
    fewest = number - 1 + number % 2 if number > 1 else 0
    assert len(rounds) == fewest


class Network:
    """Links whose rates are made up: the first rate of a link, then the next."""

    def __init__(self, rates: dict[Pair, list[float]]) -> None:
        self._rates = rates
        self.measured: list[list[Pair]] = []

    def measure(
        self, servers: HostServers, links: Sequence[Pair], address_of: object
    ) -> tuple[LinkRecord, ...]:
        self.measured.append(list(links))
        return tuple(link(a, b, self._rates.get((a, b), [1e9]).pop(0)) for a, b in links)


@pytest.mark.parametrize(
    ("rates", "expected"),
    [([0.2e9, 0.9e9], 0.9e9), ([0.2e9, 0.1e9, 0.9e9], 0.9e9), ([0.2e9, 0.3e9, 0.1e9], 0.3e9)],
)
def test_a_slow_link_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, rates: list[float], expected: float
) -> None:
    network = Network({("n10", "n1"): list(rates)})
    monkeypatch.setattr(benchmarks, "measure_links", network.measure)
    servers = HostServers(dict.fromkeys(HOSTS))  # type: ignore[arg-type]
    every = [("n10", "n1"), ("n10", "n9"), ("n1", "n9")]
    links, trouble = measure_all_links(servers, every, str, lambda _: None)
    assert trouble == ""
    found = {(one.source, one.target): one.bits_per_s for one in links}
    assert found == dict.fromkeys(pairs(), 1e9) | {("n10", "n1"): expected}
    assert network.measured[3:] == [[("n10", "n1")]] * (len(rates) - 1)


def test_pairs_that_cannot_reach_each_other_are_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = Network({})
    monkeypatch.setattr(benchmarks, "measure_links", network.measure)
    servers = HostServers(dict.fromkeys(HOSTS))  # type: ignore[arg-type]
    measure_all_links(servers, [("n1", "n9")], str, lambda _: None)
    assert [sorted(links) for links in network.measured] == [[("n1", "n9"), ("n9", "n1")]]


def test_a_slow_host_computes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    once, twice = {"n10": 1e9, "n1": 0.1e9}, {"n10": 0.9e9, "n1": 0.2e9}
    rates = iter([once, twice, {"n10": 0.9e9, "n1": 0.95e9}])
    monkeypatch.setattr(benchmarks, "_multiply", lambda *_: next(rates))
    found = benchmarks.measure_computing(HostServers({}), ["n10", "n1"])
    assert found == {"n10": 1e9, "n1": 0.95e9}
