"""A fork server whose tasks are changed on purpose: other strategies, or other devices.

Its driver tells of two small GPUs at work, which are not there.

`python patched_fork_server.py FILE --socket FD`; a task reads in the file which patch it gets.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from ps_allreduce.backends.contract import COMPUTE
from ps_allreduce.backends.local_worker import AllReduceBackend, LocalWorker
from ps_allreduce.exchange import own_tables, served
from ps_allreduce.exchange.asynchronous import AsynchronousExchange
from ps_allreduce.exchange.lookups import summed
from ps_allreduce.exchange.replica import RingMeans
from ps_allreduce.exchange.steps import Exchanged
from ps_allreduce.exchange.synchronous import SynchronousExchange
from ps_allreduce.fork_server import server
from ps_allreduce.fork_server.messages import StartTask
from ps_allreduce.point import placement
from ps_allreduce.point.resources import Device
from ps_allreduce.runner import forked_jobs, task
from ps_allreduce.workloads.keras_program import RealProgram
from tests.fake_nvml import FakeNvml, busy_gpu


def sum_instead_of_mean() -> None:
    """All-reduce applies the sum."""

    mean = RingMeans._mean

    def total(self: RingMeans, bucket: tf.Tensor, instance_key: tf.Tensor) -> tf.Tensor:
        return self._num_workers * mean(self, bucket, instance_key)

    RingMeans._mean = total  # type: ignore[method-assign]


def no_exchange() -> None:
    """All-reduce forgets to reduce: replicas drift apart."""
    AllReduceBackend.exchange = LocalWorker.exchange  # type: ignore[method-assign]


def lost_gradient() -> None:
    """Synchronous servers get zeros for the first variable."""
    exchange = SynchronousExchange._exchange

    def broken(self: SynchronousExchange, gradients: list[tf.Tensor], *where: Any) -> Exchanged:
        return exchange(self, [tf.zeros_like(gradients[0]), *gradients[1:]], *where)

    SynchronousExchange._exchange = broken  # type: ignore[method-assign, assignment]


def early_read() -> None:
    """Workers read without waiting for their token; one is slow, so that this is always early."""
    slow_worker()
    make_queue = SynchronousExchange._make_queue

    def stuffed(self: SynchronousExchange, number: int, worker: int) -> tf.Tensor:
        queue = make_queue(self, number, worker)
        with tf.device(self.served.variables[number].device):
            for _ in range(2):
                tf.raw_ops.QueueEnqueueV2(handle=queue, components=[tf.constant(0, tf.int64)])
        return queue

    SynchronousExchange._make_queue = stuffed  # type: ignore[method-assign]


def slow_worker() -> None:
    """Worker 1 waits between its push and its next pull."""

    def drive(self: SynchronousExchange, step: Any, worker: int, num_steps: int) -> list[tf.Tensor]:
        rows = []
        with tf.device(f"/job:worker/replica:0/task:{worker}/device:CPU:0"):
            for _ in range(num_steps):
                rows.append(step(*self._queues[worker]))
                time.sleep(0.2 if worker == 1 else 0.0)
        return rows

    SynchronousExchange._drive_worker = drive  # type: ignore[method-assign]


def slow_asynchronous_worker() -> None:
    """Worker 1 takes its time for every dispatch, where workers do not wait for each other."""
    make = AsynchronousExchange._make

    def slowly(self: AsynchronousExchange, function: Any, worker: int) -> tf.Tensor:
        time.sleep(0.05 if worker == 1 else 0.0)
        return make(self, function, worker)

    AsynchronousExchange._make = slowly  # type: ignore[method-assign]


def failing_dispatch() -> None:
    """What drives worker 1 fails in its fifth dispatch."""
    make = AsynchronousExchange._make
    begun: list[int] = []

    def failing(self: AsynchronousExchange, function: Any, worker: int) -> tf.Tensor:
        begun.append(worker)
        if begun.count(1) == 5:
            raise RuntimeError("this dispatch was to fail")
        return make(self, function, worker)

    AsynchronousExchange._make = failing  # type: ignore[method-assign]


def forced_axis(axis: int) -> Callable[[], None]:
    """Shards are cut along one axis, where a variable has it."""

    def apply() -> None:
        placement.best_axis = lambda shape, count: axis % len(shape)

    return apply


def absent_gpu() -> None:
    """Graphs are made for GPUs; TensorFlow puts what asks for one on the processors."""
    forked_jobs.require_gpus = lambda kind, visible: None  # type: ignore[attr-defined]


def second_device() -> None:
    """Every task has two devices, of which workers compute on the second; logs tell placements."""
    COMPUTE[Device.CPU] = "/device:CPU:1"
    own_proto = tf.compat.v1.ConfigProto
    tf.compat.v1.ConfigProto = functools.partial(own_proto, device_count={"CPU": 2})
    drive = task.drive

    def drive_with_two(*arguments: Any) -> None:
        (processors,) = tf.config.list_physical_devices("CPU")
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(processors, two)
        tf.debugging.set_log_device_placement(True)
        drive(*arguments)

    task.drive = drive_with_two  # type: ignore[assignment]


def out_of_memory() -> None:
    """A worker's step asks for a tensor that no machine has room for."""
    batch = RealProgram.batch

    def greedy(self: RealProgram, *arguments: Any) -> Any:
        out = batch(self, *arguments)
        huge = tf.reduce_sum(tf.random.uniform([1_000_000, 1_000_000, 1_000]))
        out.gradients[0] += huge
        return out

    RealProgram.batch = greedy  # type: ignore[method-assign, assignment]


def repeated_rows() -> None:
    """What several workers have sent of one row is not summed up before it is applied."""

    def as_it_is(slices: tf.IndexedSlices) -> tf.IndexedSlices:
        return slices

    for module in (served, own_tables):
        setattr(module, summed.__name__, as_it_is)


def order_of_shards() -> None:
    """Rows come back one server after the other, as from `tf.gather` of a ShardedVariable."""

    def by_shard(_: Any, rows: list[tf.Tensor]) -> tf.Tensor:
        return tf.concat(rows, 0)

    setattr(served, "tf", SimpleNamespace(**{**vars(tf), "dynamic_stitch": by_shard}))  # noqa: B010


PATCHES: dict[str, Callable[[], None]] = {
    "sum_instead_of_mean": sum_instead_of_mean,
    "no_exchange": no_exchange,
    "lost_gradient": lost_gradient,
    "early_read": early_read,
    "repeated_rows": repeated_rows,
    "order_of_shards": order_of_shards,
    "slow_worker": slow_worker,
    "slow_asynchronous_worker": slow_asynchronous_worker,
    "failing_dispatch": failing_dispatch,
    "axis_0": forced_axis(0),
    "axis_1": forced_axis(1),
    "axis_last": forced_axis(-1),
    "no_patch": lambda: None,
    "absent_gpu": absent_gpu,
    "second_device": second_device,
    "out_of_memory": out_of_memory,
}


def serve(patch: Callable[[], str]) -> None:
    """Serve a launcher; every task asks for the name of its patch."""
    start_task = forked_jobs.JOBS[StartTask]

    def start_patched(*arguments: Any) -> None:
        PATCHES[patch()]()
        start_task(*arguments)

    memory = {"nvmlDeviceGetMemoryInfo": SimpleNamespace(total=10**8, used=10**7)}
    two = [busy_gpu(f"GPU-{number}", values=memory) for number in range(2)]
    sys.modules["pynvml"] = FakeNvml(*two)  # type: ignore[assignment]
    forked_jobs.JOBS = {**forked_jobs.JOBS, StartTask: start_patched}
    server.main()


if __name__ == "__main__":
    serve(Path(sys.argv.pop(1)).read_text)
