"""Asynchronous parameter servers: TensorFlow's own ParameterServerStrategy with its coordinator.

Each worker pulls, computes and applies its gradients without waiting for the others; a gradient
may be computed from parameters that others have changed since.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ps_allreduce.backends.protocol import Rows
from ps_allreduce.backends.servers import ServerBackend, fetch_rows
from ps_allreduce.backends.worker_step import (
    Exchange,
    momentum_update,
    trace_bare_step,
    trace_recorded_step,
    traced_function,
)
from ps_allreduce.workloads.program import Program


class AsynchronousServers(ServerBackend):
    """Schedules steps on whichever worker is free."""

    def build(self, program: Program) -> None:
        """Create the step functions; the coordinator traces each when it is first scheduled."""
        super().build(program)
        accumulation = self._experiment.workload.accumulation

        def recorded(events: bool) -> tf.Tensor:
            self._traces += 1
            return trace_recorded_step(program, self, accumulation, events=events)

        def bare() -> tf.Tensor:
            self._traces += 1
            return trace_bare_step(program, self, accumulation)

        self._recorded = traced_function(self._on_device(lambda: recorded(False)))
        self._traced = traced_function(self._on_device(lambda: recorded(True)))
        self._bare = traced_function(self._on_device(bare))

    def exchange(self, gradients: list[tf.Tensor]) -> Exchange:
        """Apply each bucket's gradient on its server, and read the new value at once."""
        return self._exchange(gradients, self._apply)

    def _apply(self, number: int, gradient: tf.Tensor) -> tuple[tf.Operation, tf.Operation]:
        workload = self._experiment.workload
        done = momentum_update(
            self._served.variables[number].handle,
            self._served.slots[number].handle,
            gradient,
            workload.learning_rate,
            workload.momentum,
        )
        return done, done

    def run(self, num_steps: int, *, events: bool = False, recorded: bool = True) -> Rows:
        """Schedule workers x steps and fetch the rows when all are done."""
        function = self._bare if not recorded else self._traced if events else self._recorded
        total = num_steps * self._experiment.num_workers
        results = [self._coordinator.schedule(function) for _ in range(total)]
        self._coordinator.join()
        if not recorded:
            return np.zeros((0, 0))
        # Its public `get` and `fetch` copy each row to the chief on its own.
        return fetch_rows([result._values for result in results])
