"""Hosts, here fork servers on this machine, are asked everything, and none holds up the others.

`python -m launchers doctor` shows a table, and ends with a status that scripts can use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers import __main__ as command_line
from launchers.doctor import command, trials
from launchers.doctor.check_findings import Level, SiteFacts
from launchers.doctor.checks import examine
from launchers.doctor.checks.software import building as judge
from launchers.doctor.gather import NUM_STEPS, gather
from launchers.doctor.trials import (
    Pair,
    build_everywhere,
    measure_all_links,
    rounds_of_pairs,
    try_bursts,
)
from launchers.fork_servers.asking import ask_hosts, measure_links
from launchers.fork_servers.client import ForkServerClient
from launchers.fork_servers.host_servers import HostServers
from launchers.settings import LauncherSettings
from ps_allreduce.errors import HostFault, UserError
from ps_allreduce.inspection.questions import CountGpus, GpusCounted
from ps_allreduce.model_files import copy_files
from ps_allreduce.point.inputs.data import OwnDataset
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import LinkRecord
from tests.cluster import ADDRESSES, Cluster
from tests.examples import fast
from tests.fakes import OWN
from tests.launchers.doctor.doctor_facts import healthy, link
from tests.pretend import FAKE_SERVER, fake_server

HOSTS = tuple(ADDRESSES)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    # A fork server that is killed leaves its folder to the next one.
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
    monkeypatch.setattr(trials, "SECONDS", 0.05)
    monkeypatch.setattr(trials, "measure_links", partial(measure_links, seconds=0.05))
    monkeypatch.setattr(trials, "WITHIN_S", 2.0)


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
    assert facts.bursts is not None
    assert (facts.bursts.target, set(facts.bursts.congestion)) == ("n10", {"n1", "n9"})
    assert facts.bursts.tcp is not None
    assert facts.bursts.tcp.sent > 0
    assert troubled(facts) == {}
    steps = {text for text in told if "again" not in text}
    assert len(steps) == NUM_STEPS + len(rounds_of_pairs(HOSTS))
    assert list(tmp_path.iterdir()) == []


def pairs() -> set[Pair]:
    return {(a, b) for a in HOSTS for b in HOSTS if a != b}


def test_hosts_of_one_machine_compute_one_at_a_time(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    cluster = Cluster({"n1": FAKE_SERVER, "n9": FAKE_SERVER}, one_machine=True)
    cluster.num_ps_hosts = 1
    facts = examined(cluster, results)
    assert list(facts.flops) == ["n1"]
    assert facts.bursts is not None
    assert facts.bursts.target == "n9"  # named for servers
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


@pytest.mark.parametrize(("host", "job"), [("n10", "TakeBursts"), ("n9", "SendBursts")])
def test_bursts_that_a_host_cannot_take_part_in_tell_nothing(host: str, job: str) -> None:
    words = dict.fromkeys(("n10", "n9"), FAKE_SERVER) | {
        host: fake_server("--job", job, "complain")
    }
    with Cluster(words) as cluster, cluster.servers({"n10": 1, "n9": 1}, None) as servers:
        assert try_bursts(servers, "n10", ["n9"], ADDRESSES["n10"]) is None


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
    monkeypatch.setattr(trials, "WITHIN_S", 0.5)
    words = {"n10": FAKE_SERVER, "n1": fake_server("--job", "ShareFile", "do_nothing")}
    facts = examined(Cluster(words), tmp_path)
    assert (
        "n1 cannot write there (the process for it (ShareFile) ended with status 0"
        in troubled(facts)["RESULTS"]
    )


@pytest.fixture
def hanging() -> Iterator[HostServers]:
    cluster = Cluster({"n10": FAKE_SERVER, "n1": fake_server("--job", "CountGpus", "hang")})
    with cluster, cluster.servers(dict.fromkeys(cluster.hosts, 1), None) as servers:
        yield servers


def test_who_does_not_answer_in_time_is_left_behind(hanging: HostServers) -> None:
    def count(client: ForkServerClient) -> CountGpus:
        return CountGpus(visible="")

    answers = ask_hosts(hanging, count, 2.0)
    assert list(answers.of(GpusCounted)) == ["n10"]
    assert answers.troubles == {"n1": "CountGpus took longer than 2 s."}
    # What hung was ended, and is not mistaken for the next one.
    answers = ask_hosts(hanging, count, 1.0)
    assert list(answers.of(GpusCounted)) == ["n10"]


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
    monkeypatch.setattr(trials, "measure_links", network.measure)
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
    monkeypatch.setattr(trials, "measure_links", network.measure)
    servers = HostServers(dict.fromkeys(HOSTS))  # type: ignore[arg-type]
    measure_all_links(servers, [("n1", "n9")], str, lambda _: None)
    assert [sorted(links) for links in network.measured] == [[("n1", "n9"), ("n9", "n1")]]


def test_a_slow_host_computes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    once, twice = {"n10": 1e9, "n1": 0.1e9}, {"n10": 0.9e9, "n1": 0.2e9}
    rates = iter([once, twice, {"n10": 0.9e9, "n1": 0.95e9}])
    monkeypatch.setattr(trials, "_multiply", lambda *_: next(rates))
    found = trials.measure_computing(HostServers({}))
    assert found == {"n10": 1e9, "n1": 0.95e9}


def run(*words: str) -> int:
    return command_line.main(["doctor", *words])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The hosts behind every launcher."""
    cluster = Cluster({"n10": FAKE_SERVER, "n1": FAKE_SERVER})
    monkeypatch.setattr(command, "make_site", lambda _: cluster)
    return cluster


def test_hosts_are_examined_and_shown(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run("--results", str(tmp_path / "results"))
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out  # no colours in a file
    assert status == ("FAILURE" in shown.out)
    lines = shown.out.splitlines()
    assert lines[0].startswith("fork servers  ok       2 up after ")
    assert any(line.startswith("RESULTS       ok       ") for line in lines)
    assert shown.err == ""
    assert list(tmp_path.iterdir()) == []


def test_a_failure_is_a_status(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.broken = "no fork server came up on n1."
    assert run("--results", str(tmp_path)) == 1
    assert "FAILURE  no fork server came up on n1." in capsys.readouterr().out


@pytest.mark.usefixtures("cluster")
def test_results_that_can_never_be_are_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert run("--results", str(tmp_path / "loop")) == 1
    assert "RESULTS       FAILURE  " in capsys.readouterr().out


def test_warnings_are_none(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = healthy(own_proxies={"http_proxy": "proxy:3128"})
    monkeypatch.setattr(command, "gather", lambda *_, **__: facts)
    assert run() == 0
    assert "0 failures, 1 warning; 3 hosts" in capsys.readouterr().out


def test_an_interruption_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, tmp_path: Path
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("launchers.doctor.gather.measure_all_links", interrupt)
    assert run("--results", str(tmp_path / "results")) == 130
    assert list(tmp_path.iterdir()) == []


def test_what_was_typed_reaches_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[LauncherSettings] = []
    monkeypatch.setattr(command, "gather", lambda *_, **__: healthy())

    def make_site(settings: LauncherSettings) -> Cluster:
        asked.append(settings)
        return Cluster({"n1": FAKE_SERVER})

    monkeypatch.setattr(command, "make_site", make_site)
    assert run("--launcher", "slurm", "--hosts", "4", "--container", "apptainer exec x.sif") == 0
    assert asked == [
        LauncherSettings(launcher="slurm", hosts=4, container=("apptainer", "exec", "x.sif"))
    ]


@pytest.fixture
def servers() -> Iterator[HostServers]:
    """Three hosts, of which n1 cannot build any model."""
    ill = {"n1": fake_server("--job", "DescribeModel", "complain")}
    cluster = Cluster(dict.fromkeys(ADDRESSES, FAKE_SERVER) | ill)
    with cluster, cluster.servers(dict.fromkeys(cluster.hosts, 1), None) as servers:
        yield servers


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    """Of a user's own model, whose copies are here; the pretended model has a number per file."""
    (tmp_path / "mine.py").touch()
    digest = copy_files(tmp_path, ["mine.py"], tmp_path / "data")
    model = OwnModel(
        name=OWN.name, module="mine", function="build", digest=digest, has_dataset=True
    )
    return Workload(model=model, data=OwnDataset())


def test_a_host_that_cannot_build_a_model_says_why_and_the_others_build_it(
    servers: HostServers, workload: Workload, tmp_path: Path
) -> None:
    built = build_everywhere(servers, workload, tmp_path / "data", shares_files=True)
    findings = list(judge(healthy(building=built)))
    assert [(finding.level, finding.text) for finding in findings] == [
        (Level.OK, "n10: mine.py:build built in 1.5 s, 1 trainable parameters"),
        (Level.FAILURE, "n1: out of luck."),
        (Level.OK, "n9: mine.py:build built in 1.5 s, 1 trainable parameters"),
    ]
    assert "see what n1 lacks for mine.py:build" in findings[1].remedy


def test_hosts_that_share_no_files_are_sent_the_users_first(
    servers: HostServers, workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bring(client: ForkServerClient, model: OwnModel, data_dir: Path) -> None:
        assert (model, data_dir) == (workload.model, tmp_path / "data")
        if client.host == "n9":
            raise HostFault("no space left on n9.")

    monkeypatch.setattr(trials, "bring_copies", bring)
    built = build_everywhere(servers, workload, tmp_path / "data", shares_files=False)
    assert built.refused == {"n9": "no space left on n9.", "n1": "out of luck."}
    assert (built.built_s, built.parameters) == ({"n10": 1.5}, {"n10": 1})
