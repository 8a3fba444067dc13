"""What a run on one host sends over loopback, counted by the kernel.

The launcher has a network namespace of its own, so nobody else's bytes are counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from launchers.processes import FORK_SERVER
from launchers.run.conclude import LaunchedRun
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.records import Status
from ps_allreduce.record.step_table import Phase
from tests.cluster import LocalLauncher
from tests.real.machines import SEARCH_PATH
from tests.real.points import launch

#: An ordinary user may do so as root of a user namespace.
ALONE = ("unshare", "--net", *(("--user", "--map-root-user") if os.geteuid() else ()))

WITH_LOOPBACK = ("sh", "-c", f'PATH="{SEARCH_PATH}" ip link set lo up && exec "$@"', "sh")


@contextmanager
def private_loopback(data_dir: Path) -> Iterator[LocalLauncher]:
    """A local launcher that shares its loopback with nobody."""
    words = (*ALONE, *WITH_LOOPBACK, *FORK_SERVER)
    with LocalLauncher(data_dir, fork_server=words) as local:
        yield local


def loopback_bytes_per_image(launcher: LocalLauncher, experiment: Experiment) -> float:
    """Bytes that crossed a private loopback between warm-up and end, per image trained."""
    _, per_step = loopback_bytes_per_step(launcher, experiment)
    return per_step / experiment.workload.examples_per_step


def loopback_bytes_per_step(
    launcher: LocalLauncher, experiment: Experiment
) -> tuple[LaunchedRun, float]:
    """A run, and the bytes that crossed in the same time for every step of a worker."""
    marks: dict[str, int] = {}

    def progress(stage: str) -> None:
        if stage in ("measured", "done") and stage not in marks:
            marks[stage] = _bytes_sent()

    run = launch(launcher, experiment, progress=progress)
    assert run.status is Status.OK, run.reason
    assert run.steps is not None
    steps = int((run.steps.phase >= Phase.MEASURED).sum())
    return run, (marks["done"] - marks["measured"]) / steps


def _bytes_sent() -> int:
    """Of the child whose network is not ours, so far; a child that has just ended is none."""
    here = os.readlink("/proc/self/ns/net")
    alone = []
    for child in psutil.Process().children():
        with suppress(OSError):
            if os.readlink(f"/proc/{child.pid}/ns/net") != here:
                alone.append(Path(f"/proc/{child.pid}/net/dev").read_text())
    (devices,) = alone
    (loopback,) = (line for line in devices.splitlines() if "lo:" in line)
    return int(loopback.split(":")[1].split()[8])
