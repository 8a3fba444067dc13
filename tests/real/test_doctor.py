"""The doctor on real hosts: nothing is wrong with this machine, and a slow host is named."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launchers.doctor.checks import CHECKS
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.record.provenance import ROOT
from ps_allreduce.scratch import PREFIX
from tests.conftest import skip_or_fail
from tests.real.machines import wait_until
from tests.real.slurm_cluster import NAMES, missing_for_slurm, slurm_cluster

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(400)]

PYTHON = (sys.executable, "-m")

DOCTOR = (*PYTHON, "launchers", "doctor")

PATIENCE_S = 300.0

FOUR_HOSTS = ("--launcher", "emulated", "--hosts", "4", "--bandwidth", "1gbit")


@pytest.fixture
def own_tmp(tmp_path: Path) -> Iterator[Path]:
    """A folder for temporary files, in which nothing may be left."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []


def doctor(
    own_tmp: Path, *words: str, package: str = "launchers", **variables: str
) -> subprocess.CompletedProcess[str]:
    own = ("--allow-login-node", "--results", str(own_tmp / "results"))
    return subprocess.run(
        [*PYTHON, package, "doctor", *own, *words],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(own_tmp)} | variables,
        capture_output=True,
        check=False,
        text=True,
        timeout=PATIENCE_S,
    )


def lines_of(text: str, title: str) -> list[str]:
    """What a check has found, one line as it is shown per line."""
    lines = text.splitlines()
    (first,) = [number for number, line in enumerate(lines) if line.startswith(f"{title:<14}")]
    rest = [line.startswith(" ") for line in lines[first + 1 :]]
    return lines[first : first + 1 + (rest.index(False) if False in rest else len(rest))]


@pytest.mark.timed
def test_this_machine_is_well(own_tmp: Path) -> None:
    done = doctor(own_tmp, http_proxy="http://me:secret@proxy:3128")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "FAILURE" not in done.stdout
    titles = [line[:14].strip() for line in done.stdout.splitlines() if line[:1].strip()]
    assert titles[: len(CHECKS)] == list(CHECKS)
    assert "WARNING  http_proxy is proxy:3128 here" in lines_of(done.stdout, "proxies")[0]
    assert "secret" not in done.stdout
    assert str(own_tmp) in " ".join(lines_of(done.stdout, "TMPDIR"))
    assert done.stderr == ""


@pytest.mark.usefixtures("namespaces")
def test_every_host_builds_a_users_model(tmp_path: Path) -> None:
    model = ("--model", "docs/examples/clicks.py:build", "--model-arg", "width=8")
    hosts = ("--launcher", "emulated", "--hosts", "2", "--bandwidth", "1gbit")
    done = doctor(tmp_path, *model, *hosts, package="experiments")
    # This machine may be busy; then the doctor says so.
    assert done.returncode == ("FAILURE" in done.stdout), f"{done.stdout}\n{done.stderr}"
    assert "17,217 trainable parameters" in done.stderr
    found = " ".join(" ".join(lines_of(done.stdout, "model")).split())
    built = (
        r"ok (\w+): docs/examples/clicks.py:build built in [\d.]+ s, 17,217 trainable parameters"
    )
    assert re.findall(built, found) == ["emulated0", "emulated1"], done.stdout


@pytest.mark.usefixtures("namespaces")
def test_an_interrupted_check_up_leaves_nothing(own_tmp: Path) -> None:
    words = [*DOCTOR, *FOUR_HOSTS, "--allow-login-node", "--results", str(own_tmp / "results")]
    with subprocess.Popen(
        words, cwd=ROOT, env=os.environ | {"TMPDIR": str(own_tmp)}, start_new_session=True
    ) as process:
        try:
            # Before it has its folder, a fork server that is killed may leave what Python itself
            # tries out in TMPDIR.
            wait_until(lambda: len(list(own_tmp.glob(f"{PREFIX}*"))) >= 8, 60.0, lambda: "too few")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60.0) == 130
        finally:
            process.kill()


@pytest.mark.timed
@pytest.mark.slurm
def test_slurm_is_told_which_node_to_leave_out(tmp_path_factory: pytest.TempPathFactory) -> None:
    if reason := missing_for_slurm():
        skip_or_fail(reason)
    network = EmulatedNetwork(
        num_hosts=1 + len(NAMES), bits_per_s=5e8, slow_host=3, slow_bits_per_s=5e7
    )
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), network=network) as cluster:
        results = cluster.work / "results"
        own = ("--launcher", "slurm", "--results", str(results))
        allocate = ("salloc", f"--nodes={len(NAMES)}", "--exclusive", "--time=10")
        words = [*allocate, "env", f"PYTHONPATH={ROOT}", *DOCTOR, *own]
        done = cluster.run(words, timeout_s=PATIENCE_S)
        assert done.returncode == 1, f"{done.stdout}\n{done.stderr}"
        excluded = done.stdout.splitlines()[-1]
        assert excluded.startswith("--exclude=")
        # On a busy machine another node may seem to compute slowly, as all of them share its cores.
        assert NAMES[2] in excluded.removeprefix("--exclude=").split(",")
        assert f"{NAMES[2]} sends " in " ".join(lines_of(done.stdout, "links"))
        assert not results.exists()
