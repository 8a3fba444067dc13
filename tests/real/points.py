"""Short experiments, real runs of them, and what disturbs those."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from experiments.sweep.folder import NOTE
from launchers.run.conclude import LaunchedRun
from launchers.run.launcher import HostsLauncher
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import OwnDataset
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.optimizers import Adam
from ps_allreduce.point.strategies import AnyStrategy
from ps_allreduce.point.wire import Wire
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.provenance import ROOT
from tests.fakes import make_experiment

#: First, warm-up, three that settle, and six measured.
BRIEF = Measurement.of_steps(11)

#: Longer than anybody waits: a run that ends before its deadline has been ended by something else.
LONG = replace(BRIEF, measured_s=600.0)

#: The user's own model of `own_training`, as a sweep would describe it.
OWN = Workload(
    model=OwnModel(
        name="own_training.py:build",
        module="own_training",
        function="build",
        arguments=("width=12",),
        digest="exported",
        has_dataset=True,
    ),
    data=OwnDataset(),
    optimizer=Adam(learning_rate=0.003, epsilon=0.01),
    batch_per_worker=4,
)

#: On a busy machine.
DEADLINE_S = 240.0


def point(strategy: type[AnyStrategy], workers: int = 1, **changes: Any) -> Experiment:
    """A brief experiment with two servers, or with all-reduce in buckets, if nothing is said."""
    settings: dict[str, Any] = {"measurement": BRIEF}
    if "bytes_per_pack" in strategy.understands() and "bytes_per_pack" not in changes:
        settings["wire"] = Wire()
    return make_experiment(strategy, workers, **(settings | changes))


def launch(
    launcher: HostsLauncher,
    experiment: Experiment,
    progress: Callable[[str], None] = lambda _: None,
    weights: Path | None = None,
    deadline_s: float = DEADLINE_S,
) -> LaunchedRun:
    """Run an experiment for real."""
    return launcher.launch(experiment, deadline_s=deadline_s, progress=progress, weights=weights)


def output_of(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """What a program of this folder says; it imports TensorFlow, which tests do not."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.real.{program}", *words],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def pid_of(task: str) -> int:
    """The task's process: the one that writes the log of its name."""
    return pid_of_log(task.replace(":", "-") + ".log")


def pid_of_log(name: str) -> int:
    """The process below this one that writes a log; one that has just ended writes none."""
    for process in psutil.Process().children(recursive=True):
        with suppress(OSError):
            if os.readlink(f"/proc/{process.pid}/fd/1").endswith(f"/{name}"):
                return process.pid
    raise AssertionError(f"nothing writes {name}")


def when_measured(disturb: Callable[[], None]) -> Callable[[str], None]:
    """A progress callback that disturbs a run once, as soon as steps are measured."""
    left = [disturb]

    def progress(stage: str) -> None:
        if stage == "measured" and left:
            left.pop()()

    return progress


def kill_when_measured(task: str) -> Callable[[str], None]:
    """A progress callback that kills a task."""
    return when_measured(lambda: os.kill(pid_of(task), signal.SIGKILL))


def in_flight(sweep_dir: Path) -> dict[str, Any]:
    """The note of the run that a sweep makes right now; empty if it makes none."""
    note: dict[str, Any] = {}
    with suppress(OSError):
        note.update(json.loads((sweep_dir / NOTE).read_text(encoding="utf-8")))
    return note
