"""How gradients travel is chosen once per sweep from links and cores, unless somebody states it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from launchers.run.conclude import LaunchedRun
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.strategies import AllReduce, NoCommunication
from ps_allreduce.point.strategies.all_reduce import Packs
from ps_allreduce.point.wire import UNBUCKETED, Wire
from ps_allreduce.record.records import LinkRecord, Status
from tests.experiments.conftest import run
from tests.fakes import FakeLauncher, bad_run, ok_run

LOCAL = ("compare", "--launcher", "local", "--workers", "2", "--repetitions", "1")
EMULATED = ("compare", "--launcher", "emulated", "--hosts", "2", *LOCAL[3:])

#: Two tensors, which are more messages in buckets.
TWO = tuple(
    VariableSpec(name=name, shape=(75_000,), dtype="float32", trainable=True) for name in "ab"
)

BUCKETS = {Wire()}
WHOLE = {UNBUCKETED, Packs()}


def ways(launcher: FakeLauncher) -> set[Wire | Packs]:
    """How gradients travelled in the launches since the last call."""
    strategies = [point.strategy for point in launcher.launched]
    launcher.launched.clear()
    sent = [s.sending if isinstance(s, AllReduce) else s.wire for s in strategies]
    return {each for each in sent if each is not None}


@pytest.fixture(autouse=True)
def few_cores(launcher: FakeLauncher) -> None:
    """Two hosts with two cores each, and a model that fast links take whole."""
    launcher.variables, launcher.cores_per_host, launcher.num_hosts = TWO, 2, 2


def link(bits_per_s: float) -> LinkRecord:
    return LinkRecord(source="a", target="b", bits_per_s=bits_per_s, round_trip_s=1e-4)


def test_on_one_host_gradients_travel_whole_and_a_sweep_that_goes_on_keeps_that(
    launcher: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*LOCAL, "--dry-run") == 0
    assert "unbucketed" in capsys.readouterr().out
    assert run(*LOCAL) == 0
    assert ways(launcher) == WHOLE
    said = "Gradients travel in one pack (allreduce) and unbucketed (ps_async, ps_sync) (auto: no"
    assert capsys.readouterr().err.count(said) == 1
    path = tmp_path / "results" / "compare" / "sweep.json"
    content = json.loads(path.read_text())
    for choice in content["choices"]["how gradients travel"]:
        choice["mode"] = "buckets"
    path.write_text(json.dumps(content))
    assert run(*LOCAL) == 0
    assert ways(launcher) == BUCKETS


def test_studies_with_other_numbers_of_servers_choose_alike(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    # Of 2 servers fewer messages in buckets than tensors, of 4 more.
    launcher.variables = [replace(TWO[0], name=str(each), shape=(15_000,)) for each in range(10)]
    for study in ("ps-sweep", "placement-sweep", "compare"):
        assert run(study, *LOCAL[1:], "--exchange", "auto") == 0
        assert ways(launcher) - {Packs()} == BUCKETS, study
        assert "no links that limit, 2 cores, 2 workers, 2 servers)." in capsys.readouterr().err
    assert run("placement-sweep", *LOCAL[1:], "--num-ps", "4") == 0
    assert ways(launcher) == {UNBUCKETED}
    assert "no links that limit, 2 cores, 2 workers, 4 servers)." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--bandwidth", "1mbit"], BUCKETS),
        (["--bandwidth", "unlimited"], WHOLE),
        (["--bandwidth", "1mbit", "--exchange", "whole"], WHOLE),
        (["--bandwidth", "unlimited", "--exchange", "buckets"], BUCKETS),
        (["--bandwidth", "unlimited", "--in-flight", "2"], {Wire(in_flight=2)}),
    ],
)
def test_links_choose_unless_it_is_stated(
    words: list[str], wanted: set[Wire | Packs], launcher: FakeLauncher
) -> None:
    assert run(*EMULATED, *words) == 0
    looked = 2 if words[1] == "1mbit" else 0
    del launcher.launched[:looked]
    assert ways(launcher) == wanted


def test_on_links_without_a_stated_rate_the_first_look_comes_first(launcher: FakeLauncher) -> None:
    launcher.script = [ok_run(), ok_run(machine_busy=0.6)]
    assert run(*EMULATED) == 0
    assert [point.strategy for point in launcher.launched[:2]] == [NoCommunication(), AllReduce()]
    del launcher.launched[:2]
    assert ways(launcher) == BUCKETS


@pytest.mark.parametrize(
    ("looked", "wanted"),
    [
        (ok_run(links=(link(1e12), link(2e12))), WHOLE),
        (ok_run(links=(link(1e5), link(1e12))), BUCKETS),
        (bad_run(Status.FAILED), BUCKETS),
    ],
)
def test_links_of_a_cluster_are_measured_first(
    looked: LaunchedRun, wanted: set[Wire | Packs], launcher: FakeLauncher, tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("one\ntwo\n")
    words = ("compare", "--launcher", "ssh", "--host-file", str(hosts), *LOCAL[3:])
    launcher.script = [looked]
    assert run(*words, "--dry-run") == 0
    assert launcher.launched == []
    assert run(*words) == 0
    del launcher.launched[:1]
    assert ways(launcher) == wanted
    assert run(*words) == 0
    assert launcher.launched == []


def test_studies_of_the_exchange_itself_begin_with_buckets(launcher: FakeLauncher) -> None:
    for study in ("allreduce-sweep", "tuning-sweep"):
        assert run(study, "--launcher", "local", "--workers", "2", "--repetitions", "1") == 0
        assert Wire() in ways(launcher)
