"""What was asked for, and what becomes of it."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.cli.plan import plan_sweep
from experiments.cli.requests import SpreadRequest, StudyRequest, SweepRequest
from experiments.models.workload_request import WorkloadRequest
from experiments.studies.catalogue import STUDIES
from experiments.sweep.definition import Choices
from experiments.sweep.sweep import PROFILES, Sweep
from launchers.run.launcher import Capacity
from launchers.settings import LauncherSettings
from ps_allreduce.point.inputs.data import RecordFiles
from ps_allreduce.point.resources import Coordinator, LayoutKind, Spread
from ps_allreduce.point.strategies.stated import StrategySettings
from tests.fakes import TWO_LAYERS

QUICK = SweepRequest(profile=PROFILES["quick"])

NETWORK = LauncherSettings(launcher="emulated", hosts=4, bandwidth=1e9)


def asked(launcher: LauncherSettings | None = None, **changes: Any) -> StudyRequest:
    settings: dict[str, Any] = {"sweep": QUICK} | changes
    return StudyRequest(
        name="compare",
        study=STUDIES["compare"],
        launcher=launcher or LauncherSettings(),
        **settings,
    )


def planned(request: StudyRequest, cores: int = 8, choices: Choices | None = None) -> Sweep:
    capacity = Capacity(
        num_hosts=request.launcher.hosts or 1,
        cores_per_host=cores,
        num_ps_hosts=request.launcher.ps_hosts or 0,
    )
    console = Console(quiet=True)
    return plan_sweep(request, capacity, lambda _: TWO_LAYERS, choices or Choices(), console)


@pytest.mark.parametrize(
    ("workload", "absent", "said"),
    [
        pytest.param({}, "nothing", "", id="nothing is left out"),
        pytest.param(
            {"accumulation": 2},
            "nothing",
            "Left out: stock_ps, stock_allreduce; strategy stock_ps has no accumulation: Keras' ",
            id="accumulation",
        ),
        pytest.param(
            {},
            "horovod",
            "Left out: horovod, one more setting of all-reduce; strategy horovod needs Horovod, "
            "which this environment lacks: make setup HOROVOD=1 builds it (docs/setup.md).",
            id="what is not built",
        ),
    ],
)
def test_what_cannot_be_trained_is_told_in_one_sentence(
    workload: dict[str, Any], absent: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launchers.run.launcher.has_module", lambda name: name != absent)
    screen = io.StringIO()
    request = asked(workload=WorkloadRequest(**workload))
    capacity = Capacity(num_hosts=1, cores_per_host=8)
    console = Console(file=screen, width=1000)
    sweep = plan_sweep(request, capacity, lambda _: TWO_LAYERS, Choices(), console)
    told = screen.getvalue()
    assert told.startswith(said)
    assert told.count("\n") == bool(said)
    assert any(point.strategy.as_shipped for point in sweep.points) is not bool(workload)
    horovod = [point for point in sweep.points if point.strategy.kind == "horovod"]
    assert bool(horovod) is (absent != "horovod")


def reach(sweep: Sweep) -> tuple[list[int], set[int]]:
    """Numbers of workers, and cores of each."""
    cores = {point.resources.cores_per_worker for point in sweep.points}
    return sorted({point.num_workers for point in sweep.points}), cores


def test_one_host_has_nothing_to_spread() -> None:
    assert SpreadRequest().spread("local") is None


@pytest.mark.parametrize("launcher", ["emulated", "slurm", "ssh"])
def test_several_hosts_get_one_worker_each_unless_stated(launcher: str) -> None:
    assert SpreadRequest().spread(launcher) == Spread()
    stated = SpreadRequest(workers_per_host=(4,), ps_per_host=2, coordinator=Coordinator.OWN_HOST)
    assert stated.spread(launcher) == Spread(
        workers_per_host=4, ps_per_host=2, coordinator=Coordinator.OWN_HOST
    )


@pytest.mark.parametrize(
    ("sweep", "workers", "cores"),
    [
        pytest.param({}, [1, 2], 4, id="by default"),
        pytest.param({"workers": (1, 2, 4)}, [1, 2, 4], 2, id="stated workers share the cores"),
        pytest.param({"workers": (1, 4), "cores_per_worker": 1}, [1, 4], 1, id="both stated"),
        pytest.param({"cores_per_worker": 1}, [1, 2], 1, id="fewer cores than there are"),
    ],
)
def test_what_is_stated_about_the_axes_counts(
    sweep: dict[str, Any], workers: list[int], cores: int
) -> None:
    assert reach(planned(asked(sweep=replace(QUICK, **sweep)))) == (workers, {cores})


def test_every_stated_number_of_workers_per_host_is_a_spread_of_its_own() -> None:
    spread, workers = SpreadRequest(workers_per_host=(1, 4)), replace(QUICK, workers=(1, 4))
    sweep = planned(asked(replace(NETWORK, hosts=2), spread=spread, sweep=workers))
    by_host: dict[int, set[int]] = {}
    for point in sweep.points:
        assert point.spread is not None
        by_host.setdefault(point.spread.workers_per_host, set()).add(point.num_workers)
    # Four do not fit on 2 hosts of one; all workers have as many cores as those of the densest.
    assert by_host == {1: {1}, 4: {1, 4}}
    assert reach(sweep)[1] == {2}


def test_every_stated_number_of_threads_makes_points_of_its_own() -> None:
    sweep = planned(asked(sweep=replace(QUICK, allreduce_threads=(1, 2), ps_threads=(1, 3))))
    assert len(set(sweep.points)) == len(sweep.points)
    threads: dict[bool, set[int]] = {}
    for point in sweep.points:
        if not point.strategy.as_shipped:
            own = point.resources.threads_per_worker
            threads.setdefault(point.strategy.uses_servers, set()).add(own)
    assert threads == {False: {1, 2}, True: {1, 3}}


def test_more_launches_in_another_order_are_the_same_request() -> None:
    more = replace(QUICK, repetitions=10, seed=7, dry_run=True)
    assert asked(sweep=more).identity == asked().identity
    later = LauncherSettings(results=Path("elsewhere"), time_limit=60)
    assert asked(later).identity == asked().identity


@pytest.mark.parametrize(
    "changes",
    [
        {"sweep": SweepRequest(profile=PROFILES["standard"])},
        {"sweep": replace(QUICK, workers=(1, 2))},
        {"workload": WorkloadRequest(model="VGG16")},
        {"settings": StrategySettings(split_bytes=1000)},
        {"launcher": NETWORK},
        {"launcher": replace(NETWORK, hosts=5)},
        {"launcher": LauncherSettings(interface="ib0")},
    ],
)
def test_whatever_else_is_stated_makes_another_request(changes: dict[str, Any]) -> None:
    assert asked(**changes).identity != asked().identity


def test_repetitions_replace_those_of_the_profile_and_nothing_else() -> None:
    profile = replace(QUICK, repetitions=10).chosen_profile
    assert profile == replace(PROFILES["quick"], repetitions=10, budget_s=None)
    assert planned(asked(sweep=replace(QUICK, repetitions=10))).points == planned(asked()).points


def test_files_that_were_moved_are_the_same_data(tmp_path: Path) -> None:
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.tfrecord").write_bytes(b"images")
    before, after = (
        WorkloadRequest(inputs=(RecordFiles.found_in(tmp_path / name),))
        for name in ("before", "after")
    )
    assert asked(workload=before).identity == asked(workload=after).identity
    assert planned(asked(workload=before)).points == planned(asked(workload=after)).points


def layouts(sweep: Sweep) -> set[LayoutKind]:
    return {p.strategy.servers.layout for p in sweep.points if p.strategy.servers}


def test_hosts_named_for_servers_get_them_unless_another_layout_is_stated() -> None:
    named = replace(NETWORK, ps_hosts=2)
    sweep = planned(asked(named))
    assert layouts(sweep) == {LayoutKind.PS_HOSTS}
    assert {point.num_ps for point in sweep.points} == {0, 2}
    sizes = {(p.strategy.kind, p.num_workers) for p in sweep.points}
    # Two workers beside two servers, and four workers of all-reduce, take as many hosts.
    assert {("ps_sync", 2), ("ps_sync", 4), ("allreduce", 4)} <= sizes
    stated = StrategySettings(layout=LayoutKind.COLOCATED)
    assert layouts(planned(asked(named, settings=stated))) == {LayoutKind.COLOCATED}
    # A study without servers has no use for them, which is no mistake.
    study = STUDIES["allreduce-sweep"]
    assert layouts(planned(replace(asked(named), name="allreduce-sweep", study=study))) == set()
