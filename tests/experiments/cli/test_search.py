"""A study from the literature: its small form, its search, and what of it is measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.cli.search import best_settings
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import OwnDataset, RecordFiles
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.models.weights import ScaledModel
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.optimizers import Sgd
from ps_allreduce.point.placement import Policy, VariableSpec
from ps_allreduce.point.strategies import SynchronousServers
from ps_allreduce.point.wire import Wire
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.files import iter_record_paths, read_run
from ps_allreduce.record.records import RunRecord, Status
from tests.analysis.learners import MODEL, trained
from tests.experiments.conftest import run
from tests.fakes import METRICS, FakeLauncher, bad_run, ok_run

MANY_LAYERS = [
    VariableSpec(name=f"layer_{number}", shape=(100,), dtype="float32", trainable=True)
    for number in range(16)
]

#: A study that searches, on hosts that are stated.
WORDS = (
    *("piz-daint", "--profile", "standard", "--launcher", "emulated", "--hosts", "8"),
    *("--workers", "1,2,8", "--model", "InceptionV3/32", "--emulate", "0.1,0.1"),
)

#: 2 workers: one server, and two in three ways.  8 workers: one, and seven numbers in three ways.
SEARCHED = 1 + 3 + 1 + 7 * 3

#: Without communication, and a single worker.
BASES = 4


def rate(point: Experiment) -> float:
    """Seven servers are the best of eight workers, placed round robin; else fewer are better."""
    servers = point.strategy.servers
    if servers is None:
        return 200.0
    best = servers.num_ps == 7 and servers.placement is Policy.ROUND_ROBIN
    return 1000.0 if best else 500.0 - servers.num_ps


def gives(launcher: FakeLauncher, rate: Callable[[Experiment], float]) -> None:
    """Have launches come to those rates."""
    launcher.on_launch = lambda point: launcher.script.append(
        ok_run(metrics=replace(METRICS, examples_per_sec=rate(point)))
    )


@pytest.fixture
def cluster(launcher: FakeLauncher) -> FakeLauncher:
    """As many hosts as the small form wants, and a model with variables enough."""
    launcher.num_hosts, launcher.variables = 8, MANY_LAYERS
    gives(launcher, rate)
    return launcher


def setting(point: Experiment) -> tuple[int, int, Policy] | None:
    """Workers, servers and placement; None of a single worker."""
    servers = point.strategy.servers
    return None if servers is None else (point.num_workers, servers.num_ps, servers.placement)


def test_the_best_of_the_search_are_measured_on_launches_of_their_own(
    cluster: FakeLauncher, tmp_path: Path
) -> None:
    assert run(*WORDS, "--repetitions", "2") == 0
    searched, measured = cluster.launched[:SEARCHED], cluster.launched[SEARCHED:]
    assert set(Counter(searched).values()) == {1}
    assert set(Counter(measured).values()) == {2}
    # A single server is the best where seven are too many: of every placement, once.
    assert {setting(point) for point in measured} == {
        None,
        (2, 1, Policy.ROUND_ROBIN),
        (8, 7, Policy.ROUND_ROBIN),
        (8, 1, Policy.ROUND_ROBIN),
    }
    results = tmp_path / "results"
    assert len([*iter_record_paths(results / "search" / "piz-daint")]) == SEARCHED
    assert len([*iter_record_paths(results / "piz-daint")]) == len(measured)
    assert run(*WORDS, "--repetitions", "2") == 0
    assert len(cluster.launched) == SEARCHED + len(measured)


def test_every_placement_has_its_best_setting_where_one_server_is_slow(
    cluster: FakeLauncher,
) -> None:
    gives(cluster, lambda point: float(point.num_ps or 1))
    assert run(*WORDS, "--repetitions", "1") == 0
    measured = {setting(point) for point in cluster.launched[SEARCHED:]}
    assert measured == {None} | {
        (workers, workers, policy)
        for workers in (2, 8)
        for policy in (Policy.ROUND_ROBIN, Policy.GREEDY, Policy.PARTITIONED)
    }


def test_no_search_is_promised_that_is_refused(
    cluster: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--launcher", "emulated", "--hosts", "4", "--model", "SmallCNN", "--dry-run")
    assert run("learning", *words) == 2
    told = capsys.readouterr().err
    assert "does not say when it has learned enough" in told
    assert "First a search" not in told
    assert run(*WORDS, "--dry-run") == 0
    assert "First a search" in capsys.readouterr().err


def test_an_interrupted_search_is_continued_before_anything_is_measured(
    cluster: FakeLauncher,
) -> None:
    cluster.on_launch = lambda _: None
    cluster.script = [ok_run(), bad_run(Status.INTERRUPTED)]
    assert run(*WORDS) == 130
    assert len(cluster.launched) == 2
    gives(cluster, rate)
    assert run(*WORDS, "--repetitions", "1") == 0
    # Of the interrupted launch nothing is known; the one before it counts.
    assert cluster.launched[: SEARCHED + 1].count(cluster.launched[1]) == 2
    assert sum(setting(point) is None for point in cluster.launched[: SEARCHED + 1]) == 0
    assert sum(setting(point) is None for point in cluster.launched) == BASES


def test_a_setting_that_fails_in_the_search_does_not_keep_the_others_from_being_measured(
    cluster: FakeLauncher, tmp_path: Path
) -> None:
    def fail_eight(point: Experiment) -> None:
        failed = point.num_ps == 8
        cluster.script.append(bad_run(Status.FAILED) if failed else ok_run())

    cluster.on_launch = fail_eight
    assert run(*WORDS, "--repetitions", "1") == 1
    records = [read_run(path) for path in iter_record_paths(tmp_path / "results" / "piz-daint")]
    assert records
    assert all(isinstance(each, RunRecord) and each.status is Status.OK for each in records)


def test_a_setting_of_several_seeds_is_as_good_as_its_worst() -> None:
    def at(rate: float, seconds: list[float | None]) -> list[RunRecord]:
        workload = Workload(model=MODEL, data=OwnDataset(), optimizer=Sgd(learning_rate=rate))
        return trained(SynchronousServers, seconds, 100.0, workload=workload)

    records = [
        *at(0.1, [20.0, 21.0, 22.0]),
        *at(0.2, [12.0, 14.0, 13.0]),
        *at(0.4, [9.0, 9.0, None]),
    ]
    (best,) = best_settings(records, lambda point: [point.num_workers])
    assert best.workload.optimizer == Sgd(learning_rate=0.2)


def test_a_dry_run_tells_of_the_search_only(
    cluster: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*WORDS, "--dry-run") == 0
    assert f"{SEARCHED} points, {SEARCHED} runs" in capsys.readouterr().out
    assert cluster.launched == []


def test_the_small_form_is_what_nothing_else_is_stated_about(
    cluster: FakeLauncher, tmp_path: Path
) -> None:
    assert run("piz-daint") == 0
    launched = Counter(cluster.launched)
    assert set(launched.values()) == {3}
    assert {setting(point) for point in launched} == {None} | {
        (workers, workers, policy)
        for workers in (2, 4, 8)
        for policy in (Policy.ROUND_ROBIN, Policy.PARTITIONED)
        if (workers, policy) != (2, Policy.ROUND_ROBIN)
    }
    reading = [point for point in launched if isinstance(point.workload.data, RecordFiles)]
    assert {setting(point) for point in reading} == {None, (4, 4, Policy.PARTITIONED)}
    point = next(each for each in launched if isinstance(each.strategy, SynchronousServers))
    assert point.workload.model == ScaledModel(base="InceptionV3", divisor=32)
    assert point.workload.batch_per_worker == 64
    assert point.network == EmulatedNetwork(num_hosts=8, bits_per_s=104e6)
    assert point.strategy.wire == Wire(group_bytes=60_000, cut_bytes=60_000)
    assert isinstance(point.measurement, Measurement)
    assert point.measurement.measured_steps == 6
    assert not (tmp_path / "results" / "search").exists()


def test_what_is_stated_takes_the_place_of_the_small_form(cluster: FakeLauncher) -> None:
    words = ["--model", "Tensors-16-1MB", "--emulate", "0.01,0.02", "--workers", "1,2"]
    words += ["--bandwidth", "1gbit", "--launcher", "emulated", "--hosts", "4"]
    assert run("piz-daint", "--repetitions", "1", *words) == 0
    assert {p.workload.model.name for p in cluster.launched} == {"Tensors-16-1MB"}
    assert {p.network for p in cluster.launched} == {EmulatedNetwork(num_hosts=4, bits_per_s=1e9)}
    assert {p.num_workers for p in cluster.launched} == {1, 2}


def test_other_profiles_need_a_cluster(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("piz-daint", "--profile", "standard") == 2
    assert "trains on a cluster: state LAUNCHER=slurm or ssh" in capsys.readouterr().err
    assert launcher.launched == []
