"""Synchronous parameter servers: every update is the mean over all workers' gradients.

TensorFlow 2 has no synchronous parameter servers.  Here each bucket has an accumulator on its
server.  The server applies the mean once all workers have contributed, then hands every worker a
token that lets it read the new value.  Every worker has a token queue of its own for each bucket:
at a shared queue a fast worker would take a slow one's token and read a value too early.

With host aggregation only the leaders talk to the servers, each for all workers of its host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from .aggregation import HostGroup, add_gradient, make_accumulator, take_mean
from .buckets import Messages
from .served import ServedTables, ServedVariables, SynchronousTables
from .servers import Sent, ServerExchange, raise_first
from .steps import Exchanged, Step, server_device, traced_function, worker_device
from .worker_local import LocalTurn

#: The chief asks for the next step while one is made, so that no step waits for the chief.
CALLS_AHEAD = 2

TURN = LocalTurn("turn")


class SynchronousExchange(ServerExchange):
    """Drives every worker and every server, each by threads of its own."""

    def __init__(
        self,
        served: ServedVariables,
        messages: Messages,
        num_workers: int,
        num_servers: int,
        device: str,
        hosts: Sequence[Sequence[int]] = (),
        tables: ServedTables | None = None,
    ) -> None:
        """Create accumulators and token queues.

        Args:
            device: on which workers compute.
            hosts: the workers of every host, for host aggregation.
        """
        super().__init__(served, messages, num_workers, device, tables)
        self._num_servers = num_servers
        workers, numbers = range(num_workers), range(len(served.buckets))
        self._accumulators = [self._make_accumulator(number) for number in numbers]
        self._groups = self._make_groups(hosts)
        self._senders = [worker for worker in workers if self._is_sender(worker)]
        #: For every worker, a queue per bucket: of tokens, or of values from its leader.
        self._queues = [
            [self._make_queue(number, worker) for number in numbers]
            if worker in self._senders
            else self._groups[worker].values[worker]
            for worker in workers
        ]
        self._rows = None if tables is None else SynchronousTables(tables, num_workers)
        if self._rows is not None:
            for queues, tokens in zip(self._queues, self._rows.tokens, strict=True):
                queues += tokens
        self._apply: list[ConcreteFunction] = []
        self._pool = ThreadPoolExecutor(CALLS_AHEAD * (num_workers + num_servers))

    def prepare(self) -> list[tf.Operation]:
        """Also give the first step its turn."""
        return [*super().prepare(), TURN.give()]

    def _make_groups(self, hosts: Sequence[Sequence[int]]) -> dict[int, HostGroup]:
        """The group of every worker; empty without host aggregation."""
        sizes = [bucket.size for bucket in self.served.buckets]
        groups = [HostGroup(workers, sizes) for workers in hosts]
        return {worker: group for group in groups for worker in group.workers}

    def _is_sender(self, worker: int) -> bool:
        return worker not in self._groups or self._groups[worker].leader == worker

    def _make_accumulator(self, number: int) -> tf.Tensor:
        bucket = self.served.buckets[number]
        with tf.device(server_device(bucket.server)):
            return make_accumulator(bucket.size, f"accumulator/{number}")

    def _make_queue(self, number: int, worker: int) -> tf.Tensor:
        with tf.device(server_device(self.served.buckets[number].server)):
            return tf.raw_ops.FIFOQueueV2(
                component_types=[tf.int64],
                shapes=[[]],
                capacity=4,
                shared_name=f"tokens/{number}/{worker}",
            )

    def trace(self, step: Step) -> list[ConcreteFunction]:
        """The step of every worker; the first call also traces the servers' functions.

        Everything is traced outside of any device scope: under `tf.device` a function would be
        traced once more for every worker.
        """
        if not self._apply:
            self._apply = [
                traced_function(self._apply_means).get_concrete_function(server)
                for server in range(self._num_servers)
            ]
        alike: dict[int, ConcreteFunction] = {}
        for worker in range(self._num_workers):
            if (first := self._first_alike(worker)) not in alike:
                function = traced_function(self.on_device(self._worker_step(worker, step)))
                alike[first] = function.get_concrete_function(*self._queues[worker])
        return [alike[self._first_alike(worker)] for worker in range(self._num_workers)]

    def _first_alike(self, worker: int) -> int:
        """The first worker whose step this worker can execute too.

        Leaders have steps of their own.  Followers of one group share theirs, and without groups
        all workers do.
        """
        if worker not in self._groups:
            return 0
        group = self._groups[worker]
        return worker if self._is_sender(worker) else group.workers[1]

    def _worker_step(self, worker: int, step: Step) -> Callable[..., tf.Tensor]:
        def in_turn(*queues: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([TURN.take()]):
                row = self._step_with(step, worker, queues)
            with tf.control_dependencies([row]), tf.control_dependencies([TURN.give()]):
                return tf.identity(row)

        return in_turn

    def _step_with(self, step: Step, worker: int, queues: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """A worker's step; the queues are those of its buckets, then those of its rows."""
        of_buckets = queues[: len(self.served.buckets)]
        of_rows = queues[len(of_buckets) :]

        def exchange(
            gradients: list[tf.Tensor], table_gradient: tf.IndexedSlices | None = None
        ) -> Exchanged:
            exchanged = self._exchange(
                gradients, lambda units: self._send_as(worker, units, of_buckets)
            )
            if self._rows is None or table_gradient is None:
                return exchanged
            return exchanged.also(self._rows.send(table_gradient, of_rows))

        return step(self.values, exchange)

    def _send_as(
        self, worker: int, units: Sequence[tf.Tensor], queues: tuple[tf.Tensor, ...]
    ) -> Sent:
        """Send the gradients to the servers or to the leader."""
        if not self._is_sender(worker):
            return self._groups[worker].follow(units, queues, self._messages.in_flight)
        if worker in self._groups:
            return self._groups[worker].lead(units, lambda means: self._to_servers(means, queues))
        return self._to_servers(units, queues)

    def _to_servers(self, units: Sequence[tf.Tensor], queues: tuple[tf.Tensor, ...]) -> Sent:
        """Add each bucket to its accumulator, and read it again once the token says so."""

        def add(number: int, gradient: tf.Tensor) -> tuple[tf.Operation, tf.Operation]:
            added = add_gradient(self._accumulators[number], gradient)
            with tf.control_dependencies([added]):
                (token,) = tf.raw_ops.QueueDequeueV2(
                    handle=queues[number], component_types=[tf.int64]
                )
            return added, token.op

        return self._send(units, add)

    def _apply_means(self, server: int) -> tf.Tensor:
        """One update of all buckets of a server, each as soon as its gradients are complete."""
        done = []
        for number, bucket in enumerate(self.served.buckets):
            if bucket.server != server:
                continue
            mean = take_mean(self._accumulators[number], len(self._senders), bucket.size)
            with tf.control_dependencies([self.served.update(number, mean)]):
                done += [
                    tf.raw_ops.QueueEnqueueV2(
                        handle=self._queues[worker][number], components=[tf.constant(0, tf.int64)]
                    )
                    for worker in self._senders
                ]
        if self._rows is not None:
            done += self._rows.apply_mean(server)
        with tf.control_dependencies(done):
            return tf.constant(0)

    def make(self, traced: Sequence[ConcreteFunction], num_steps: int) -> list[tf.Tensor]:
        """Let every worker and every server make that many steps."""
        numbers = range(self._num_workers)
        shares = [num_steps // CALLS_AHEAD, num_steps - num_steps // CALLS_AHEAD]
        workers = [
            self._pool.submit(self._drive_worker, traced[worker], worker, share)
            for share in shares
            for worker in numbers
        ]
        servers = [
            self._pool.submit(self._drive_server, server, share)
            for share in shares
            for server in range(self._num_servers)
        ]
        futures: list[Future[list[tf.Tensor]]] = [*workers, *servers]
        raise_first(futures)
        return [row for future in workers for row in future.result()]

    def _drive_worker(self, step: ConcreteFunction, worker: int, num_steps: int) -> list[tf.Tensor]:
        """One worker's steps; rows stay on the worker until all are done."""
        with tf.device(worker_device(worker)):
            return [step(*self._queues[worker]) for _ in range(num_steps)]

    def _drive_server(self, server: int, num_steps: int) -> list[tf.Tensor]:
        with tf.device(server_device(server)):
            return [self._apply[server]() for _ in range(num_steps)]
