"""The launch program starts tasks as planned, and ends them together."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.export.exported import Start
from experiments.export.training_folder import TAKEN, write_training
from ps_allreduce.point.strategies import AllReduce
from tests.experiments.export.test_training_folder import HOSTILE, training
from tests.fakes import make_experiment

#: What every task does here instead of training.
TELL = """
import json, os, sys, time
config = json.loads(os.environ["TF_CONFIG"])
cores = sorted(os.sched_getaffinity(0))
print(json.dumps({"config": config, "cores": cores, "words": sys.argv[1:]}), flush=True)
name = config["task"]["type"] + str(config["task"]["index"])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A training of two workers on hosts of their own; the first one drives."""
    made = tmp_path / "it's $HOME -n"
    made.mkdir()
    shutil.copy(TAKEN / "launch.py", made)
    tasks = [
        {"kind": "worker", "index": i, "host": i, "cores": [0], "gpu": None, "drives": True}
        for i in range(2)
    ]
    write(made, tasks, TELL)
    return made


def write(folder: Path, tasks: Sequence[dict[str, Any]], program: str) -> None:
    """Say which tasks there are and what they do."""
    content = {"tasks": tasks, "environment": {"TOLD": "yes"}}
    (folder / "tasks.json").write_text(json.dumps(content))
    (folder / "train.py").write_text(program)


def on_one_host(folder: Path, program: str) -> None:
    """The same with both workers on one host."""
    tasks = json.loads((folder / "tasks.json").read_text())["tasks"]
    write(folder, [{**task, "host": 0} for task in tasks], TELL + program)


def launch(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the launch program to its end."""
    return subprocess.run(
        [sys.executable, str(folder / "launch.py"), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"http_proxy": "http://proxy"},
    )


def test_a_host_starts_its_tasks_and_tells_them_where_all_are(folder: Path) -> None:
    hosts = ["--hosts", "n10,n9", "--port", "5000", "--here"]
    first, second = (launch(folder, *hosts, here, "--", "--epochs", "3") for here in ("n10", "n9"))
    assert (first.returncode, second.returncode) == (0, 0)
    told = json.loads(first.stdout)
    assert told["config"] == {
        "cluster": {"worker": ["n10:5000", "n9:5001"]},
        "task": {"type": "worker", "index": 0},
    }
    assert told["words"] == ["--epochs", "3"]
    assert len(told["cores"]) == 1
    other = json.loads((folder / "logs/worker-1.log").read_text())
    assert other["config"]["task"]["index"] == 1
    assert second.stdout == ""


def test_two_trainings_that_begin_together_on_a_host_do_not_meet(folder: Path) -> None:
    on_one_host(folder, "time.sleep(1)")
    other = shutil.copytree(folder, folder.with_name("other"))
    running = [
        subprocess.Popen([sys.executable, str(each / "launch.py")], stdout=subprocess.PIPE)
        for each in (folder, other)
    ]
    told = [json.loads(process.communicate(timeout=60)[0]) for process in running]
    addresses = [each for one in told for each in one["config"]["cluster"]["worker"]]
    assert len(set(addresses)) == 4


def test_too_few_hosts_or_a_stranger_are_a_mistake(folder: Path) -> None:
    assert launch(folder).returncode == 2
    assert launch(folder, "--hosts", "a,b", "--here", "c").returncode == 2


def test_a_task_that_fails_ends_all_others_with_its_last_words(folder: Path) -> None:
    on_one_host(folder, "if name == 'worker1': sys.exit('no room')\ntime.sleep(60)")
    begin = time.monotonic()
    done = launch(folder)
    assert done.returncode == 1
    assert "worker-1 ended with status 1. All others end." in done.stdout
    assert "  no room" in done.stdout
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_tasks_that_are_asked_to_end_may_save_first(folder: Path, number: signal.Signals) -> None:
    on_one_host(
        folder,
        "import pathlib, signal\n"
        "def save(*_): pathlib.Path(sys.argv[0]).with_name(name).touch(); sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"  # as TensorFlow, while it starts
        "print('ready', flush=True)\n"
        "time.sleep(1.5)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "time.sleep(60)",
    )
    words = [sys.executable, str(folder / "launch.py")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        while "ready" not in running.stdout.readline():
            pass
        _until_ready(folder / "logs/worker-1.log")
        running.send_signal(number)
        assert running.wait(30) == 143
    assert (folder / "worker0").exists()
    assert (folder / "worker1").exists()


def test_a_second_training_here_is_refused_and_a_second_signal_ends_at_once(folder: Path) -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    on_one_host(folder, f"{deaf}print('ready', flush=True); time.sleep(60)")
    words = [sys.executable, str(folder / "launch.py")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        while "ready" not in running.stdout.readline():
            pass
        _until_ready(folder / "logs/worker-1.log")
        second = launch(folder)
        assert (second.returncode, "runs in" in second.stdout) == (2, True)
        running.send_signal(signal.SIGTERM)
        assert "a checkpoint is saved" in running.stdout.readline()
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 137


def _until_ready(log: Path) -> None:
    end = time.monotonic() + 30
    while not log.exists() or "ready" not in log.read_text():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_tasks_end_when_whoever_started_them_is_gone(folder: Path) -> None:
    on_one_host(folder, "time.sleep(60)")
    words = [sys.executable, str(folder / "launch.py"), "--end-with-input"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        assert running.stdin is not None
        running.stdin.close()
        assert running.wait(30) == 143


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
