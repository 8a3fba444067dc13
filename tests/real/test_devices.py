"""Where operations go if workers compute on another device than their host's processors.

There is no GPU here.  A second device of processors shows that every operation is where it should
be; a GPU that is not there, that the graphs made for GPUs train the same network.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from launchers.protocol import LaunchedRun
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.resources import Device, Resources
from ps_allreduce.point.strategies import AllReduce, AsynchronousServers, Single, SynchronousServers
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import Status
from tests.cluster import LocalLauncher
from tests.real import points
from tests.real.gate import (
    TOLERANCE,
    difference_from_single,
)
from tests.real.points import point

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("need_tensorflow")]

PATCHED = Path(__file__).with_name("patched_devices.py")

DEADLINE_S = 240.0

WORKLOAD = Workload(batch_per_worker=8)

ON_GPU = Resources(device=Device.GPU)

POINTS = {
    "single": point(Single, workload=WORKLOAD),
    "ps_async": point(AsynchronousServers, 1, workload=WORKLOAD),
    "ps_sync": point(SynchronousServers, 2, workload=WORKLOAD),
    "ps_sync, accumulated": point(
        SynchronousServers, 2, workload=replace(WORKLOAD, accumulation=3)
    ),
    "allreduce": point(AllReduce, 2, workload=WORKLOAD),
}


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], LocalLauncher]]:
    """Local launchers whose tasks find other devices, one for each patch."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as monkeypatch:
        # What a scheduler would say that has granted two GPUs.
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
        made: dict[str, LocalLauncher] = {}

        def make(patch: str) -> LocalLauncher:
            if patch not in made:
                words = (sys.executable, str(PATCHED), patch)
                local = LocalLauncher(tmp_path_factory.mktemp(patch), fork_server=words)
                made[patch] = stack.enter_context(local)
            return made[patch]

        yield make


def launch(launcher: LocalLauncher, experiment: Experiment) -> LaunchedRun:
    return points.launch(launcher, experiment, deadline_s=DEADLINE_S)


def placements(log: str) -> Counter[tuple[str, str, str]]:
    """How often a log says that the operation was put on the device, by task."""
    found: Counter[tuple[str, str, str]] = Counter()
    task = ""
    for line in log.splitlines():
        if line.startswith("==> "):
            task = line.split()[1]
        if said := re.search(r"\((\w+)\): /job:(\w+)/replica:0/task:(\d+)/device:(\w+:\d)", line):
            place = f"{said[2]}:{said[3]} {said[4]}".replace(f"{task} ", "own ")
            found[task, said[1], place.replace("localhost:0 ", "own ")] += 1
    return found


HOST, SECOND = "own CPU:0", "own CPU:1"

SERVERS = {"ps:0 CPU:0", "ps:1 CPU:0"}

WHERE = {
    "Conv2D": {SECOND},
    "Conv2DBackpropFilter": {SECOND},
    "MatMul": {SECOND},
    "IteratorV2": {HOST},
    "IteratorGetNext": {HOST},
    "MakeIterator": {HOST},
}


@pytest.mark.parametrize("name", ["single", "ps_sync, accumulated", "ps_async"])
def test_workers_compute_on_their_own_device_and_keep_input_on_their_host(
    name: str, patched: Callable[[str], LocalLauncher]
) -> None:
    run = launch(patched("second_device"), POINTS[name])
    assert run.status is Status.OK, f"{run.reason}\n{run.log[-3000:]}"
    found = placements(run.log)
    experiment = POINTS[name]
    for index in range(experiment.num_workers):
        for operation, expected in WHERE.items():
            places = {d for task, op, d in found if (task, op) == (f"worker:{index}", operation)}
            assert places == expected, (index, operation)
        if experiment.strategy.uses_servers:
            places = {d for task, op, d in found if (task, op) == (f"worker:{index}", "_Arg")}
            assert places >= SERVERS


@pytest.mark.parametrize("name", ["ps_async", "ps_sync, accumulated", "allreduce"])
def test_graphs_for_gpus_train_the_same_network(
    name: str,
    patched: Callable[[str], LocalLauncher],
    launcher: LocalLauncher,
    tmp_path: Path,
) -> None:
    experiment = replace(POINTS[name], resources=ON_GPU)
    assert difference_from_single(patched("absent_gpu"), experiment, tmp_path, launcher) < TOLERANCE


def test_every_worker_sees_one_gpu_and_nobody_else_any(
    patched: Callable[[str], LocalLauncher],
) -> None:
    local = patched("absent_gpu")
    run = launch(local, replace(POINTS["ps_sync"], resources=ON_GPU))
    seen = {task.task: task.gpus for task in run.tasks}
    assert seen == {"ps:0": "", "ps:1": "", "worker:0": "0", "worker:1": "1", "chief:0": ""}
    alone = launch(local, replace(POINTS["single"], resources=ON_GPU))
    assert [task.gpus for task in alone.tasks] == ["0"]


def test_a_worker_does_not_start_without_its_gpu(
    launcher: LocalLauncher, patched: Callable[[str], LocalLauncher]
) -> None:
    run = launch(patched("no_patch"), replace(POINTS["single"], resources=ON_GPU))
    assert run.status is Status.FAILED
    assert re.match(
        "worker:0: (this is a TensorFlow without CUDA|TensorFlow finds 0 GPUs)", run.reason
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("single", r"worker:0: out of memory on the host \(no room for a tensor float\[1000000,"),
        ("ps_sync", r"chief:0: out of memory on the host of worker:[01] \(no room for a tensor "),
        ("allreduce", r"worker:[01]: out of memory on the host \(no room for a tensor "),
    ],
)
def test_want_of_memory_is_a_reason_of_its_own(
    name: str, expected: str, patched: Callable[[str], LocalLauncher]
) -> None:
    run = launch(patched("out_of_memory"), POINTS[name])
    assert run.status is Status.FAILED
    assert re.match(expected, run.reason), run.reason
    assert run.reason.endswith("use a smaller --batch-per-worker")
