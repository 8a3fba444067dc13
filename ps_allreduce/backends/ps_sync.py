"""Synchronous parameter servers: every update is the mean over all workers' gradients.

TensorFlow 2 has no synchronous parameter servers.  Here each shard has an accumulator on its
server; a server applies the mean once all workers have contributed, then hands every worker a
token that lets it read the new value.  One token queue per worker and shard: with a shared queue a
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
    Pulled,
    Pushed,
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
        positions = range(len(self._served.shards))
        self._accumulators = [self._make_accumulator(position) for position in positions]
        self._queues = [
            [self._make_queue(position, worker) for position in positions] for worker in workers
        ]
        self._steps: dict[tuple[bool, bool], ConcreteFunction] = {}
        self._apply: list[ConcreteFunction] = []
        self._pool = ThreadPoolExecutor(len(workers) + self._experiment.num_ps)
        self._hand_out_tokens()

    def _make_accumulator(self, position: int) -> tf.Tensor:
        shard = self._served.shards[position]
        with tf.device(shard.device):
            return tf.raw_ops.ResourceConditionalAccumulator(
                dtype=tf.float32,
                shape=shard.shape,
                shared_name=f"accumulator/{position}",
                reduction_type="MEAN",
            )

    def _make_queue(self, position: int, worker: int) -> tf.Tensor:
        with tf.device(self._served.shards[position].device):
            return tf.raw_ops.FIFOQueueV2(
                component_types=[tf.int64],
                shapes=[[]],
                capacity=4,
                shared_name=f"tokens/{position}/{worker}",
            )

    def _hand_out_tokens(self) -> None:
        """The initial values may be read at once."""
        for queues in self._queues:
            for position, queue in enumerate(queues):
                with tf.device(self._served.shards[position].device):
                    tf.raw_ops.QueueEnqueueV2(handle=queue, components=[tf.constant(0, tf.int64)])

    def _worker_step(self, *, events: bool, recorded: bool) -> Callable[..., tf.Tensor]:
        accumulation = self._experiment.workload.accumulation

        def step(*queues: tf.Tensor) -> tf.Tensor:
            transport = _Transport(self, queues)
            self._traces += 1
            if not recorded:
                return trace_bare_step(self._program, transport, accumulation)
            return trace_recorded_step(self._program, transport, accumulation, events=events)

        return step

    def pull(self, queues: tuple[tf.Tensor, ...]) -> Pulled:
        """Read each shard once the token for its newest value is there."""
        parts = []
        for queue, shard in zip(queues, self._served.shards, strict=True):
            with tf.device(shard.device):
                token = tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[tf.int64])
                with tf.control_dependencies(token):
                    parts.append(shard.read_value())
        return self._pulled(parts)

    def push(self, gradients: list[tf.Tensor]) -> Pushed:
        """Add each gradient to its accumulator; done when the server has acknowledged."""
        units = self._served.split(gradients)
        done = []
        for position, (shard, unit) in enumerate(zip(self._served.shards, units, strict=True)):
            with tf.device(shard.device):
                done.append(
                    tf.raw_ops.ResourceAccumulatorApplyGradient(
                        handle=self._accumulators[position],
                        local_step=tf.constant(ALWAYS_FRESH, tf.int64),
                        gradient=unit,
                    )
                )
        return Pushed(units, done)

    def _apply_means(self, server: int) -> tf.Tensor:
        """One update of all shards of a server, each as soon as its gradients are complete."""
        self._traces += 1
        workload, num_workers = self._experiment.workload, self._experiment.num_workers
        done = []
        for position in self._served.on_server(server):
            mean = tf.raw_ops.ResourceAccumulatorTakeGradient(
                handle=self._accumulators[position],
                num_required=tf.constant(num_workers),
                dtype=tf.float32,
            )
            mean = tf.ensure_shape(mean, self._served.shards[position].shape)
            update = momentum_update(
                self._served.shards[position].handle,
                self._served.slots[position].handle,
                mean,
                workload.learning_rate,
                workload.momentum,
            )
            with tf.control_dependencies([update]):
                done += [
                    tf.raw_ops.QueueEnqueueV2(
                        handle=queues[position], components=[tf.constant(0, tf.int64)]
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

    def pull(self) -> Pulled:
        return self._backend.pull(self._queues)

    def push(self, gradients: list[tf.Tensor]) -> Pushed:
        return self._backend.push(gradients)


def _raise_first(futures: list[Future[list[tf.Tensor]]]) -> None:
    """Wait for all; if one fails, raise at once, for the others may wait for it forever."""
    done, _ = wait(futures, return_when=FIRST_EXCEPTION)
    for future in done:
        if error := future.exception():
            raise error
