"""What holds for every launcher: the same command, the same record, the same manners."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from launchers.sites.kinds import SITES
from ps_allreduce.record.files import iter_record_paths, load_record
from ps_allreduce.record.provenance import ROOT
from ps_allreduce.record.records import RunRecord, Status
from tests.conftest import skip_or_fail
from tests.real.slurm_cluster import missing_for_slurm, slurm_cluster
from tests.real.ssh_hosts import PORT, missing_for_ssh, ssh_hosts

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(400)]

RUN_S = 300.0

Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a launcher is used.

    Attributes:
        run: runs words to their end.
        options: that the launcher needs.
        results: a folder that all hosts of the launcher see.
        num_hosts: that two workers are on.
    """

    run: Callable[[list[str]], Done]
    options: tuple[str, ...]
    results: Path
    num_hosts: int


def run_here(words: list[str], search_path: str = os.environ["PATH"]) -> Done:
    environment = os.environ | {"PATH": search_path}
    return subprocess.run(
        words, env=environment, cwd=ROOT, capture_output=True, check=False, text=True, timeout=RUN_S
    )


def local(folder: Path) -> Iterator[Place]:
    yield Place(run_here, ("--allow-login-node",), folder, 1)


def emulated(folder: Path) -> Iterator[Place]:
    options = ("--hosts", "2", "--bandwidth", "500mbit", "--allow-login-node")
    yield Place(run_here, options, folder, 2)


def slurm(folder: Path) -> Iterator[Place]:
    if reason := missing_for_slurm():
        skip_or_fail(reason)
    with slurm_cluster(folder) as cluster:
        allocate = ["salloc", "--quiet", "--nodes=2", "--exclusive"]
        yield Place(
            lambda words: cluster.run([*allocate, *words], timeout_s=RUN_S), (), cluster.work, 2
        )


def ssh(folder: Path) -> Iterator[Place]:
    if reason := missing_for_ssh():
        skip_or_fail(reason)
    with ssh_hosts(folder) as hosts:
        host_file = folder / "hosts.txt"
        west = hosts.address("west")
        host_file.write_text(f"east\nroot@{west}:{PORT} {west}\n")
        options = ("--host-file", str(host_file))
        yield Place(
            lambda words: run_here(words, hosts.search_path), options, folder / "results", 2
        )


PLACES = {"local": local, "emulated": emulated, "slurm": slurm, "ssh": ssh}


@pytest.fixture(scope="module", params=list(SITES))
def launcher(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def place(launcher: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    yield from PLACES[launcher](tmp_path_factory.mktemp(launcher))


def run_one(place: Place, launcher: str, *options: str) -> Done:
    suite = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "experiments", "run-one"]
    where = ["--launcher", launcher, "--results", str(place.results), *place.options]
    return place.run([*suite, *where, *options])


def test_a_run_leaves_one_line_and_one_record(launcher: str, place: Place) -> None:
    done = run_one(place, launcher, "--strategy", "allreduce", "--num-workers", "2")
    assert done.returncode == 0, done.stderr[-3000:]
    line = json.loads(done.stdout)
    assert (line["status"], line["launcher"]) == ("ok", launcher)
    assert line["examples_per_sec"] > 0
    (path,) = iter_record_paths(place.results / "run-one")
    assert Path(line["record_path"]) == path
    check_record(load_record(path), place)
    assert len(list(path.parent.iterdir())) == 3
    assert not list((place.results / "run-one").glob("in_flight*"))


def check_record(record: RunRecord, place: Place) -> None:
    assert record.status is Status.OK
    assert record.metrics is not None
    assert record.metrics.warmup_steps >= 10
    assert record.phases.warmup_s is not None
    assert record.phases.warmup_s >= 1.0
    assert len(record.hosts) == place.num_hosts
    by_name = {host.name: host for host in record.hosts}
    assert [task.task for task in record.tasks] == ["worker:0", "worker:1"]
    for task in record.tasks:
        host = by_name[task.host]
        assert task.address.startswith(f"{host.address}:")
        assert task.cores
        assert set(task.cores) <= set(host.facts.cores)
        assert (task.exit, task.gpus) == (None, "")  # ended when all were done
        assert task.cpu_s
    assert len({task.address for task in record.tasks}) == 2
    assert len(record.links) == (place.num_hosts if place.num_hosts > 1 else 0)
    assert all(host.import_s for host in record.hosts)
    assert {sample.host for sample in record.samples} == {h.name for h in record.hosts}


def test_what_does_not_fit_is_one_sentence(launcher: str, place: Place) -> None:
    done = run_one(place, launcher, "--strategy", "allreduce", "--num-workers", "99")
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("Error:")]
    assert "99" in said
    assert "Traceback" not in done.stderr


def test_every_launcher_has_a_place() -> None:
    assert set(PLACES) == set(SITES)
