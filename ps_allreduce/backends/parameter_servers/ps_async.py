"""Asynchronous parameter servers: each worker computes and applies without waiting for the others.

Without a bound, TensorFlow's coordinator deals steps to whichever worker is free.  Others may have
changed the parameters since a gradient was computed from them.  With a bound on the staleness,
every worker makes its own steps, driven by a thread that waits where `staleness` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from ps_allreduce.backends.parameter_servers.servers import (
    ServerBackend,
    raise_first,
    worker_device,
)
from ps_allreduce.backends.parameter_servers.staleness import StalenessClock
from ps_allreduce.backends.worker_step import Exchanged, trace_step, traced_function
from ps_allreduce.point.strategies import AsynchronousServers
from ps_allreduce.tf_internals.private_api import leave_on_worker, value_on_worker
from ps_allreduce.workloads.program import Program
from ps_allreduce.workloads.worker_local import HOST


class AsynchronousBackend(ServerBackend):
    """Lets every worker make several steps in one dispatch of the chief."""

    def build(self, program: Program) -> None:
        """Create variables and workers' resources; steps are traced when they are first run."""
        super().build(program)
        assert isinstance(self._experiment.strategy, AsynchronousServers)
        self._settings = self._experiment.strategy
        self._functions: dict[tuple[bool, bool], dict[int, ConcreteFunction]] = {}
        self._pool = ThreadPoolExecutor(self._experiment.num_workers)

    def exchange(self, gradients: list[tf.Tensor]) -> Exchanged:
        """Apply each bucket's gradient on its server, and read the new value at once."""
        return self._exchange(gradients, lambda units: self._send(units, self._apply))

    def _apply(self, number: int, gradient: tf.Tensor) -> tuple[tf.Operation, tf.Operation]:
        done = self._served.update(number, gradient)
        return done, done

    def make(
        self, num_steps: int, *, events: bool = False, recorded: bool = True
    ) -> list[tf.Tensor]:
        """Have workers x steps made."""
        functions = self._traced(events=events, recorded=recorded)
        several = self._settings.steps_per_dispatch
        sizes = [several] * (num_steps // several) + [1] * (num_steps % several)
        if self._settings.staleness is None:
            return self._deal(functions, sizes)
        return self._drive(functions, sizes, self._settings.staleness)

    def _traced(self, *, events: bool, recorded: bool) -> Mapping[int, ConcreteFunction]:
        """The functions that make steps on any worker, by the number of steps in a dispatch.

        All are traced before the first step, so that nothing is traced while steps are measured.
        """

        def step() -> tf.Tensor:
            self.traces += 1
            return trace_step(
                self._program, self.values, self.exchange, events=events, recorded=recorded
            )

        if (events, recorded) not in self._functions:
            single = traced_function(self._on_device(step)).get_concrete_function()
            self._functions[events, recorded] = {
                count: traced_function(self._in_a_row(single, count)).get_concrete_function()
                for count in {1, self._settings.steps_per_dispatch}
            }
        return self._functions[events, recorded]

    def _in_a_row(self, step: ConcreteFunction, count: int) -> Callable[[], tf.Tensor]:
        """Several steps, each with the values that the one before has left on the worker.

        A call of a function ends when all its operations with side effects have ended.
        """

        def steps() -> tf.Tensor:
            self.traces += 1
            rows: list[tf.Tensor] = []
            for _ in range(count):
                with tf.control_dependencies([tf.identity(row) for row in rows[-1:]]):
                    rows.append(step())
            with tf.device(HOST):
                return tf.stack(rows)

        return steps

    def _deal(
        self, functions: Mapping[int, ConcreteFunction], sizes: Sequence[int]
    ) -> list[tf.Tensor]:
        """Have every dispatch made once per worker, by whichever worker is free."""
        results = [
            self._schedule(functions[size])
            for size in sizes
            for _ in range(self._experiment.num_workers)
        ]
        self._coordinator.join()
        return [value_on_worker(result) for result in results]

    def _schedule(self, function: ConcreteFunction) -> Any:
        result = self._coordinator.schedule(function)
        leave_on_worker(result)
        return result

    def _drive(
        self, functions: Mapping[int, ConcreteFunction], sizes: Sequence[int], staleness: int
    ) -> list[tf.Tensor]:
        """Have every worker make all dispatches, none too far ahead of the others."""
        clock = StalenessClock(self._experiment.num_workers, staleness)

        def drive(worker: int) -> list[tf.Tensor]:
            try:
                return self._drive_worker(functions, sizes, worker, clock)
            except BaseException:
                clock.abandon()
                raise

        workers = range(self._experiment.num_workers)
        futures = [self._pool.submit(drive, worker) for worker in workers]
        raise_first(futures)
        return [rows for future in futures for rows in future.result()]

    def _drive_worker(
        self,
        functions: Mapping[int, ConcreteFunction],
        sizes: Sequence[int],
        worker: int,
        clock: StalenessClock,
    ) -> list[tf.Tensor]:
        """One worker's steps; rows stay on the worker until all are done."""
        made = []
        for size in sizes:
            if not clock.begin(worker, size):
                break
            made.append(self._make(functions[size], worker))
            clock.end(worker, size)
        return made

    def _make(self, function: ConcreteFunction, worker: int) -> tf.Tensor:
        """Make steps on a worker; returns when they have ended there."""
        with tf.device(worker_device(worker)):
            return function()
