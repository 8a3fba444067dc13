"""Where nobody states a launcher or a rate, a study finds ones that tell about a network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments import surroundings
from launchers.run.conclude import LaunchedRun
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.strategies import AllReduce
from ps_allreduce.point.strategies.stated import Embeddings
from ps_allreduce.record.files import iter_record_paths
from ps_allreduce.record.records import Status
from ps_allreduce.record.variables import RowsAsked
from tests.experiments.conftest import run
from tests.fakes import METRICS, TWO_LAYERS, FakeLauncher, bad_run, make_host, ok_run

EMULATED = ("--launcher", "emulated", "--hosts", "2", "--workers", "2", "--repetitions", "1")


def networks(launcher: FakeLauncher) -> list[EmulatedNetwork | None]:
    return [point.network for point in launcher.launched]


def rates(launcher: FakeLauncher) -> list[float | None]:
    return [network.bits_per_s if network else None for network in networks(launcher)]


def at_rate(rate: float, busy: float) -> LaunchedRun:
    return ok_run(metrics=replace(METRICS, examples_per_sec=rate), machine_busy=busy)


#: Without communication, a processor that is too busy, and what is wanted.
LOOKS = (at_rate(32_000, 1.0), at_rate(30_000, 0.99), at_rate(19_200, 0.65))


def batches(launcher: FakeLauncher) -> list[int]:
    return [point.workload.batch_per_worker for point in launcher.launched]


def test_rate_and_batch_are_chosen_by_a_first_look_and_kept(
    launcher: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.num_hosts = 2
    launcher.script = [LOOKS[0], *LOOKS]
    assert run("allreduce-sweep", *EMULATED) == 0
    small, large, first, second, *others = rates(launcher)
    assert (small, large, set(others)) == (None, None, {second})
    assert first is not None
    assert second is not None
    assert second < first
    assert batches(launcher)[0] == 32
    assert set(batches(launcher)[1:]) == {1024}
    assert [point.strategy.kind for point in launcher.launched[:4]] == [
        *["no_communication"] * 2,
        *["allreduce"] * 2,
    ]
    said = capsys.readouterr().err
    assert "A first look at allreduce, SmallCNN, 2 workers" in said
    assert "batch 1024" in said
    assert "kept 60% of the rate without communication, and kept processors 65% busy" in said
    assert len(list(iter_record_paths(tmp_path / "results" / "first-look"))) == 4
    launched = len(launcher.launched)
    assert run("allreduce-sweep", *EMULATED) == 0
    assert len(launcher.launched) == launched
    assert "first look" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "stated",
    [
        ("--batch-per-worker", "64"),
        ("--model", "SmallViT"),
        ("--bandwidth", "10mbit"),
        ("--emulate", "0.02,0.04"),
    ],
    ids=" ".join,
)
def test_the_batch_is_left_alone_where_work_or_rate_is_stated(
    stated: tuple[str, ...], launcher: FakeLauncher
) -> None:
    launcher.num_hosts = 2
    launcher.script = [*LOOKS]
    assert run("allreduce-sweep", *EMULATED, *stated) == 0
    assert len(set(batches(launcher))) == 1


def test_workers_that_mostly_wait_on_stated_links_are_told(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.num_hosts = 2
    launcher.script = [LOOKS[0], at_rate(1_000, 0.1)]
    assert run("allreduce-sweep", *EMULATED, "--bandwidth", "1mbit") == 0
    said = capsys.readouterr().err
    assert "kept 3% of the rate without communication" in said
    assert "a larger --batch-per-worker helps" in said


def test_a_stated_rate_is_kept_and_told_if_processors_are_the_limit(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.num_hosts = 2
    launcher.script = [ok_run(), ok_run(machine_busy=0.99)]
    assert run("allreduce-sweep", *EMULATED, "--bandwidth", "1gbit") == 0
    assert set(rates(launcher)) == {1e9}
    said = capsys.readouterr().err
    assert "A first look at allreduce, SmallCNN, 2 workers" in said
    assert "tells whether links of 1gbit" in said
    assert "kept processors 99% busy" in said
    assert "--emulate 0.02,0.04" in said


def test_a_recommender_is_looked_at_with_the_rows_that_it_looks_up(
    launcher: FakeLauncher,
) -> None:
    launcher.num_hosts = 2
    launcher.variables = [replace(spec, is_table="kernel" in spec.name) for spec in TWO_LAYERS]
    rows = RowsAsked(row_bytes=128, asked=64.0, unique=50.0, longest=64.0, union=80.0)
    found = ok_run(rows_asked=rows, gradient_bytes=6_400)
    launcher.script = [found, at_rate(1_000, 0.5)]
    assert run("compare", "--model", "SmallTwoTower", *EMULATED, "--bandwidth", "1mbit") == 0
    free, look = launcher.launched[:2]
    assert (free.strategy.communicates(), free.strategy.is_sparse) == (False, True)
    assert look.strategy == AllReduce(embeddings=Embeddings.SPARSE)


def test_background_traffic_comes_on_top_of_the_rate_that_is_chosen(launcher: FakeLauncher) -> None:
    chosen = []
    for traffic in ((), ("--traffic", "200mbit")):
        launcher.num_hosts = 2
        launcher.launched.clear()
        launcher.script = [LOOKS[0], *LOOKS]
        results = ("--results", "-".join(["made", *traffic]))
        assert run("allreduce-sweep", *EMULATED, *traffic, *results) == 0
        chosen.append([rate for rate in dict.fromkeys(rates(launcher)) if rate is not None])
    alone, beside = chosen
    assert beside == [rate + 2e8 for rate in alone]


@pytest.mark.parametrize(("foreign", "told"), [(0.25, False), (0.2, True)])
def test_what_others_use_of_the_processors_is_not_held_against_links(
    foreign: float, told: bool, launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.num_hosts = 2
    disturbed = make_host("n9", foreign_load=foreign, stolen_load=0.05)
    launcher.script = [ok_run(), ok_run(machine_busy=0.98, hosts=(disturbed,))]
    assert run("allreduce-sweep", *EMULATED, "--bandwidth", "1gbit") == 0
    said = capsys.readouterr().err
    assert ("kept processors 73% busy" in said) is told
    assert ("Other programs used 25% of the processors besides." in said) is told


@pytest.mark.parametrize("share", [0.04, 0.4])
def test_a_busy_machine_is_told_before_anything_is_launched(
    share: float,
    launcher: FakeLauncher,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(surroundings, "used_by_others", lambda: share)
    launcher.num_hosts = 2
    assert run("allreduce-sweep", *EMULATED, "--bandwidth", "unlimited") == 0
    first = capsys.readouterr().err.splitlines()[0]
    told = "Other programs use 40% of this machine's processors now."
    assert first.startswith(told) is (share > 0.05)


def test_unlimited_links_are_left_alone_and_a_dry_run_looks_at_none(launcher: FakeLauncher) -> None:
    launcher.num_hosts = 2
    assert run("allreduce-sweep", *EMULATED, "--dry-run") == 0
    assert launcher.launched == []
    assert run("allreduce-sweep", *EMULATED, "--bandwidth", "unlimited") == 0
    assert set(rates(launcher)) == {None}


@pytest.mark.parametrize(
    ("ended", "status"), [(Status.FAILED, 1), (Status.TIMED_OUT, 1), (Status.INTERRUPTED, 130)]
)
def test_a_look_that_comes_to_nothing_ends_the_call(
    ended: Status, status: int, launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.num_hosts = 2
    launcher.script = [bad_run(ended)]
    assert run("allreduce-sweep", *EMULATED) == status
    assert len(launcher.launched) == 1
    assert "Traceback" not in capsys.readouterr().err


ONE_WORKER = ("--workers", "1", "--repetitions", "1")


@pytest.mark.parametrize("study", ["compare", "ps-sweep", "allreduce-sweep", "placement-sweep"])
@pytest.mark.parametrize(("cores", "hosts"), [(2, 4), (15, 4), (16, 8)])
def test_hosts_are_emulated_however_many_cores_there_are(
    study: str,
    cores: int,
    hosts: int,
    launcher: FakeLauncher,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(surroundings, "inside_job", lambda: False)
    monkeypatch.setattr(surroundings, "num_cores", lambda: cores)
    monkeypatch.setattr(surroundings, "why_no_emulated_hosts", lambda _: "")
    launcher.num_hosts = hosts
    assert run(study, *ONE_WORKER) == 0
    assert f"On {hosts} emulated hosts" in capsys.readouterr().err
    assert {network and network.num_hosts for network in networks(launcher)} == {hosts}


def test_where_namespaces_are_refused_or_loopback_is_stated_no_hosts_are_emulated(
    launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = "this machine refuses namespaces."
    monkeypatch.setattr(surroundings, "inside_job", lambda: False)
    monkeypatch.setattr(surroundings, "why_no_emulated_hosts", lambda _: refusal)
    assert run("compare", *ONE_WORKER, "--results", "refused") == 0
    assert refusal in capsys.readouterr().err.splitlines()[0]
    assert run("compare", *ONE_WORKER, "--launcher", "local", "--results", "stated") == 0
    assert set(networks(launcher)) == {None}
