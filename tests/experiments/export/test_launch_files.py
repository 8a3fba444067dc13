"""What starts a training on other hosts starts the right tasks, whatever the folder's name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from experiments.export.exported import Start
from experiments.export.training_folder import write_training
from ps_allreduce.point.strategies import AllReduce
from tests.experiments.export.test_launch import TELL
from tests.experiments.export.test_training_folder import HOSTILE, training
from tests.fakes import make_experiment

#: Executes the line for a host here.  It notes the name of the host.
SSH = """#!/bin/bash
while [ "$1" != -- ]; do shift; done
echo "$2" >> "$NOTED"
exec sh -c "$3"
"""

#: Hosts in an order that no sorting gives.
SCONTROL = """#!/bin/sh
printf '%s\\n' n10 n9
"""

SRUN = """#!/bin/bash
while [ "${1:0:2}" = -- ]; do shift; done
for name in n10 n9; do SLURMD_NODENAME=$name "$@" || exit; done
"""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of programs that stand in for those of a cluster."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, text in (("ssh", SSH), ("scontrol", SCONTROL), ("srun", SRUN)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def folder_of(start: Start, tmp_path: Path) -> Path:
    """A training of two workers on two hosts; a task only tells what it was told."""
    target = tmp_path / HOSTILE
    write_training(training(make_experiment(AllReduce, 2), start), target)
    (target / "train.py").write_text(TELL)
    return target


def run(
    words: list[str], tools: Path, folder: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a launch file as its user does."""
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PATH": path, "NOTED": str(tools / "noted"), **more},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_ssh_reaches_every_host_of_the_file_in_its_order(tools: Path, tmp_path: Path) -> None:
    folder = folder_of(Start.SSH, tmp_path)
    (tmp_path / "hosts").write_text("# ours\n\nubuntu@n10 10.0.0.7\nn9\nn8\n")
    words = ["./launch_ssh.sh", str(tmp_path / "hosts"), "--epochs", "it's"]
    done = run(words, tools, folder)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["config"]["cluster"] == {"worker": ["10.0.0.7:23456", "n9:23457"]}
    assert told["words"] == ["--epochs", "it's"]
    other = json.loads((folder / "logs/worker-1.log").read_text())
    assert other["config"]["task"]["index"] == 1
    assert set((tools / "noted").read_text().split()) == {"ubuntu@n10", "n9"}
    (tmp_path / "hosts").write_text("n10\n")
    assert run(words, tools, folder).returncode == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_a_host_that_fails_ends_the_others(tools: Path, tmp_path: Path) -> None:
    folder = folder_of(Start.SSH, tmp_path)
    failing = "if name == 'worker1': sys.exit(3)\ntime.sleep(50)"
    (folder / "train.py").write_text(TELL + failing)
    (tmp_path / "hosts").write_text("n10\nn9\n")
    done = run(["./launch_ssh.sh", str(tmp_path / "hosts")], tools, folder)
    assert done.returncode == 1
    assert "worker-1 ended with status 3" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_a_job_takes_the_nodes_in_the_order_of_slurm(tools: Path, tmp_path: Path) -> None:
    folder = folder_of(Start.SLURM, tmp_path)
    job = {
        "SLURM_SUBMIT_DIR": str(folder),
        "SLURM_JOB_NODELIST": "n[9-10]",
        "SLURM_JOB_ID": "20007",
    }
    done = run(["bash", "job.sbatch", "--epochs", "3"], tools, folder, **job)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["config"]["cluster"] == {"worker": ["n10:20007", "n9:20008"]}
    assert told["words"] == ["--epochs", "3"]
