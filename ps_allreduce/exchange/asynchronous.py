"""Asynchronous parameter servers: each worker computes and applies without waiting for the others.

Without a bound, TensorFlow's coordinator deals steps to whichever worker is free.  Others may have
changed the parameters since a gradient was computed from them.  With a bound on the staleness,
every worker makes its own steps, driven by a thread that waits where the bound says so: stale-
synchronous parallel (Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel
Parameter Server", NIPS 2013).  A worker's clock counts the steps that it has ended.  With a bound
s, a worker at clock c may begin its next step only if no clock is below c - s.  It then computes
with all gradients of all workers' first c - s steps, perhaps with more: values that came with its
last step may lack some of them, and then it reads again what servers hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum, auto
from threading import Condition
from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from .buckets import Messages
from .private_api import leave_on_worker, value_on_worker
from .served import ServedTables, ServedVariables
from .servers import ServerExchange, raise_first
from .steps import Exchanged, Step, traced_function, worker_device
from .worker_local import HOST


class Beginning(Enum):
    """How a worker begins its next steps; never if the others were abandoned."""

    NEVER = auto()
    AT_ONCE = auto()
    WITH_NEW_VALUES = auto()


class StalenessClock:
    """The clocks of all workers, from 0; every worker is driven by a thread of its own."""

    def __init__(self, num_workers: int, bound: int) -> None:
        """`bound` is in steps, 1 or more."""
        self._clocks = [0] * num_workers
        self._bound = bound
        #: Of each worker: steps that all others had ended before its values came.
        self._seen = [-bound - 1] * num_workers
        self._abandoned = False
        self._changed = Condition()

    def begin(self, worker: int, num_steps: int) -> Beginning:
        """Wait until the worker may begin its next `num_steps` steps, the last of them included.

        The slowest worker may always begin if `num_steps` is not above the bound.  Others get ahead
        of it by whole dispatches; for one dispatch, the bound must be at least 2 x `num_steps` - 1.
        """
        first = self._clocks[worker]
        with self._changed:
            self._changed.wait_for(
                lambda: self._abandoned or min(self._clocks) >= first + num_steps - 1 - self._bound
            )
            is_old = self._seen[worker] < first - self._bound
            # Whether it reads them now or they come with this step.
            self._seen[worker] = min(self._clocks)
        if self._abandoned:
            return Beginning.NEVER
        return Beginning.WITH_NEW_VALUES if is_old else Beginning.AT_ONCE

    def end(self, worker: int, num_steps: int) -> None:
        """Note that the worker has ended `num_steps` more steps."""
        with self._changed:
            self._clocks[worker] += num_steps
            self._changed.notify_all()

    def abandon(self) -> None:
        """Let no worker begin or wait any more, because one has failed."""
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()


class AsynchronousExchange(ServerExchange):
    """Lets every worker make several steps in one dispatch of the chief."""

    def __init__(
        self,
        served: ServedVariables,
        messages: Messages,
        num_workers: int,
        device: str,
        coordinator: Any,
        staleness: int | None = None,
        steps_per_dispatch: int = 1,
        tables: ServedTables | None = None,
    ) -> None:
        """`coordinator` is TensorFlow's; a `staleness` of None is no bound."""
        super().__init__(served, messages, num_workers, device, tables)
        self._coordinator = coordinator
        self._staleness, self._steps_per_dispatch = staleness, steps_per_dispatch
        self._pool = ThreadPoolExecutor(num_workers)

    def _exchange_each(
        self, gradients: list[tf.Tensor], table_gradient: tf.IndexedSlices | None = None
    ) -> Exchanged:
        """Apply each bucket's gradient on its server, and read the new value at once."""
        exchanged = self._exchange(gradients, lambda units: self._send(units, self._apply))
        if self._tables is None or table_gradient is None:
            return exchanged
        parts = enumerate(self._tables.slices(table_gradient))
        return exchanged.also([self._tables.apply(server, part) for server, part in parts])

    def _apply(self, number: int, gradient: tf.Tensor) -> tuple[tf.Operation, tf.Operation]:
        done = self.served.update(number, gradient)
        return done, done

    def trace(self, step: Step) -> Mapping[int, ConcreteFunction]:
        """Functions that make steps on any worker, by the number of steps in a dispatch.

        All are traced before the first step, so that nothing is traced while steps are made.
        """
        if self._staleness is not None:
            self._read = traced_function(self.on_device(self._prepared)).get_concrete_function()
        single = traced_function(
            self.on_device(lambda: step(self.values, self._exchange_each))
        ).get_concrete_function()
        return {
            count: traced_function(_in_a_row(single, count)).get_concrete_function()
            for count in {1, self._steps_per_dispatch}
        }

    def _prepared(self) -> tf.Tensor:
        """Bring what servers hold to the worker that executes this."""
        with tf.control_dependencies(self.prepare()):
            return tf.constant(0)

    def make(self, traced: Mapping[int, ConcreteFunction], num_steps: int) -> list[tf.Tensor]:
        """Have workers x steps made."""
        several = self._steps_per_dispatch
        sizes = [several] * (num_steps // several) + [1] * (num_steps % several)
        if self._staleness is None:
            return self._deal(traced, sizes)
        return self._drive(traced, sizes, self._staleness)

    def _deal(
        self, functions: Mapping[int, ConcreteFunction], sizes: Sequence[int]
    ) -> list[tf.Tensor]:
        """Have every dispatch made once per worker, by whichever worker is free."""
        results = [
            self._schedule(functions[size]) for size in sizes for _ in range(self._num_workers)
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
        clock = StalenessClock(self._num_workers, staleness)

        def drive(worker: int) -> list[tf.Tensor]:
            try:
                return self._drive_worker(functions, sizes, worker, clock)
            except BaseException:
                clock.abandon()
                raise

        futures = [self._pool.submit(drive, worker) for worker in range(self._num_workers)]
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
            beginning = clock.begin(worker, size)
            if beginning is Beginning.NEVER:
                break
            if beginning is Beginning.WITH_NEW_VALUES:
                self._make(self._read, worker)
            made.append(self._make(functions[size], worker))
            clock.end(worker, size)
        return made

    def _make(self, function: ConcreteFunction, worker: int) -> tf.Tensor:
        """Make steps on a worker; returns when they have ended there."""
        with tf.device(worker_device(worker)):
            return function()


def _in_a_row(step: ConcreteFunction, count: int) -> Callable[[], tf.Tensor]:
    """Several steps, each with the values that the one before has left on the worker.

    A call of a function ends when all its operations with side effects have ended.
    """

    def steps() -> tf.Tensor:
        rows: list[tf.Tensor] = []
        for _ in range(count):
            with tf.control_dependencies([tf.identity(row) for row in rows[-1:]]):
                rows.append(step())
        with tf.device(HOST):
            return tf.stack(rows)

    return steps
