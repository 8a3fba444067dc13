"""Synchronous parameter servers: every update is the mean over all workers' gradients.

TensorFlow 2 has no synchronous parameter servers.  Here each bucket has an accumulator on its
server; a server applies the mean once all workers have contributed, then hands every worker a
token that lets it read the new value.  One token queue per worker and bucket: with a shared queue a
fast worker takes a slow one's token and reads a value too early.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

import numpy as np
import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from ps_allreduce.backends.protocol import Rows
from ps_allreduce.backends.servers import (
    ServerBackend,
    fetch_rows,
    server_device,
    worker_device,
)
from ps_allreduce.backends.worker_step import (
    Exchange,
    momentum_update,
    trace_bare_step,
    trace_recorded_step,
    traced_function,
)
from ps_allreduce.workloads.program import Program

#: Gradients are never refused as stale: tokens already keep workers in step.
ALWAYS_FRESH = 1 << 40


class SynchronousServers(ServerBackend):
    """Drives every worker and every server by a thread of its own."""

    def build(self, program: Program) -> None:
        """Create accumulators, token queues and the functions of workers and servers."""
        super().build(program)
        workers = range(self._experiment.num_workers)
        numbers = range(len(self._served.buckets))
        self._accumulators = [self._make_accumulator(number) for number in numbers]
        self._queues = [
            [self._make_queue(number, worker) for number in numbers] for worker in workers
        ]
        self._steps: dict[tuple[bool, bool], ConcreteFunction] = {}
        self._apply: list[ConcreteFunction] = []
        self._pool = ThreadPoolExecutor(len(workers) + self._experiment.num_ps)

    def _make_accumulator(self, number: int) -> tf.Tensor:
        bucket = self._served.buckets[number]
        with tf.device(server_device(bucket.server)):
            return tf.raw_ops.ResourceConditionalAccumulator(
                dtype=tf.float32,
                shape=[bucket.size],
                shared_name=f"accumulator/{number}",
                reduction_type="MEAN",
            )

    def _make_queue(self, number: int, worker: int) -> tf.Tensor:
        with tf.device(server_device(self._served.buckets[number].server)):
            return tf.raw_ops.FIFOQueueV2(
                component_types=[tf.int64],
                shapes=[[]],
                capacity=4,
                shared_name=f"tokens/{number}/{worker}",
            )

    def _worker_step(self, *, events: bool, recorded: bool) -> Callable[..., tf.Tensor]:
        accumulation = self._experiment.workload.accumulation

        def step(*queues: tf.Tensor) -> tf.Tensor:
            transport = _Transport(self, queues)
            self._traces += 1
            if not recorded:
                return trace_bare_step(self._program, transport, accumulation)
            return trace_recorded_step(self._program, transport, accumulation, events=events)

        return step

    def exchange(self, gradients: list[tf.Tensor], queues: tuple[tf.Tensor, ...]) -> Exchange:
        """Add each bucket to its accumulator, and read it again once the token says so."""

        def add(number: int, gradient: tf.Tensor) -> tuple[tf.Operation, tf.Operation]:
            added = tf.raw_ops.ResourceAccumulatorApplyGradient(
                handle=self._accumulators[number],
                local_step=tf.constant(ALWAYS_FRESH, tf.int64),
                gradient=gradient,
            )
            with tf.control_dependencies([added]):
                (token,) = tf.raw_ops.QueueDequeueV2(
                    handle=queues[number], component_types=[tf.int64]
                )
            return added, token.op

        return self._exchange(gradients, add)

    def _apply_means(self, server: int) -> tf.Tensor:
        """One update of all buckets of a server, each as soon as its gradients are complete."""
        self._traces += 1
        workload, num_workers = self._experiment.workload, self._experiment.num_workers
        done = []
        for number in self._served.on_server(server):
            mean = tf.raw_ops.ResourceAccumulatorTakeGradient(
                handle=self._accumulators[number],
                num_required=tf.constant(num_workers),
                dtype=tf.float32,
            )
            mean = tf.ensure_shape(mean, [self._served.buckets[number].size])
            update = momentum_update(
                self._served.variables[number].handle,
                self._served.slots[number].handle,
                mean,
                workload.learning_rate,
                workload.momentum,
            )
            with tf.control_dependencies([update]):
                done += [
                    tf.raw_ops.QueueEnqueueV2(
                        handle=queues[number], components=[tf.constant(0, tf.int64)]
                    )
                    for queues in self._queues
                ]
        with tf.control_dependencies(done):
            return tf.constant(0)

    def run(self, num_steps: int, *, events: bool = False, recorded: bool = True) -> Rows:
        """Let every worker and every server make that many steps."""
        step = self._traced_step(events=events, recorded=recorded)
        workers = [
            self._pool.submit(self._drive_worker, step, worker, num_steps)
            for worker in range(self._experiment.num_workers)
        ]
        servers = [
            self._pool.submit(self._drive_server, server, num_steps)
            for server in range(self._experiment.num_ps)
        ]
        everyone: list[Future[list[tf.Tensor]]] = [*workers, *servers]
        _raise_first(everyone)
        if not recorded:
            return np.zeros((0, 0))
        return fetch_rows([row for future in workers for row in future.result()])

    def _traced_step(self, *, events: bool, recorded: bool) -> ConcreteFunction:
        """The step for any worker and, at first, the servers' functions.

        Traced outside of any device scope: a function called under `tf.device` would be traced once
        more for every worker.
        """
        if not self._apply:
            self._apply = [
                traced_function(self._apply_means).get_concrete_function(server)
                for server in range(self._experiment.num_ps)
            ]
        if (events, recorded) not in self._steps:
            step = self._worker_step(events=events, recorded=recorded)
            function = traced_function(self._on_device(step))
            self._steps[events, recorded] = function.get_concrete_function(*self._queues[0])
        return self._steps[events, recorded]

    def _drive_worker(self, step: ConcreteFunction, worker: int, num_steps: int) -> list[tf.Tensor]:
        """One worker's steps; rows stay on the worker until all are done."""
        with tf.device(worker_device(worker)):
            return [step(*self._queues[worker]) for _ in range(num_steps)]

    def _drive_server(self, server: int, num_steps: int) -> list[tf.Tensor]:
        with tf.device(server_device(server)):
            return [self._apply[server]() for _ in range(num_steps)]


class _Transport:
    """A worker's way to the servers, with that worker's token queues."""

    def __init__(self, backend: SynchronousServers, queues: tuple[tf.Tensor, ...]) -> None:
        self._backend = backend
        self._queues = queues

    def values(self) -> list[tf.Tensor]:
        return self._backend.values()

    def exchange(self, gradients: list[tf.Tensor]) -> Exchange:
        return self._backend.exchange(gradients, self._queues)


def _raise_first(futures: list[Future[list[tf.Tensor]]]) -> None:
    """Wait for all; if one fails, raise at once, for the others may wait for it forever."""
    done, _ = wait(futures, return_when=FIRST_EXCEPTION)
    for future in done:
        if error := future.exception():
            raise error
