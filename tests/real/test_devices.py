"""Where operations go if workers compute on another device than their host's processors.

There is no GPU here.  A second device of processors shows that every operation is where it should
be; a GPU that is not there, that the graphs made for GPUs train the same network.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.resources import Device, Resources
from ps_allreduce.point.strategies import AllReduce, AsynchronousServers, Single, SynchronousServers
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import Status
from tests.real.gate import TOLERANCE, Patched, Trained, difference, single_for, train
from tests.real.points import launch, point

pytestmark = pytest.mark.tensorflow

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
    name: str, patched_launcher: Patched
) -> None:
    run = launch(patched_launcher("second_device"), POINTS[name])
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


@pytest.mark.parametrize("name", ["single", "ps_async", "ps_sync, accumulated", "allreduce"])
def test_graphs_for_gpus_train_the_same_network_and_every_worker_sees_one_gpu(
    name: str,
    patched_launcher: Patched,
    single_run: Callable[[Experiment], Trained],
    tmp_path: Path,
) -> None:
    experiment = replace(POINTS[name], resources=ON_GPU)
    trained = train(patched_launcher("absent_gpu"), experiment, tmp_path)
    reference = single_run(single_for(experiment))
    assert difference(trained, reference) < TOLERANCE
    seen = {task.task: task.gpus for task in trained.run.tasks}
    workers = {f"worker:{index}": f"GPU-{index}" for index in range(experiment.num_workers)}
    assert seen == dict.fromkeys(seen, "") | workers


def test_a_worker_does_not_start_without_its_gpu(patched_launcher: Patched) -> None:
    run = launch(patched_launcher("no_patch"), replace(POINTS["single"], resources=ON_GPU))
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
    name: str, expected: str, patched_launcher: Patched
) -> None:
    run = launch(patched_launcher("out_of_memory"), POINTS[name])
    assert run.status is Status.FAILED
    assert re.match(expected, run.reason), run.reason
    assert run.reason.endswith("use a smaller --batch-per-worker")
