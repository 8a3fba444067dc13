"""What strategies without servers share: a worker that keeps its own copy of everything.

Subclasses decide how gradients are combined and how workers agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.backends.devices import COMPUTE, on_device
from ps_allreduce.backends.protocol import Rows, Task
from ps_allreduce.backends.worker_step import (
    Exchange,
    checksum,
    initialise_worker,
    momentum_update,
    trace_step,
    traced_function,
)
from ps_allreduce.point.placement import Plan
from ps_allreduce.workloads.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """Gradients before and after the workers have combined them.

    Attributes:
        units: what is sent, one per message.
        ready: for each unit, what came back.
        gradients: to be applied, one per trainable variable.
    """

    units: list[tf.Tensor]
    ready: list[tf.Tensor]
    gradients: list[tf.Tensor]


class LocalWorker:
    """Drives one worker's steps in this process; also its own `Transport`."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._workload = task.experiment.workload
        self._device = task.experiment.resources.device
        self._variables: list[Any] = []
        self._slots: list[Any] = []
        self._traces = 0

    def connect(self) -> None:
        """Nothing to connect to."""

    def agree(self, value: float) -> float:
        """This worker decides alone."""
        return value

    def combine(self, gradients: list[tf.Tensor]) -> Combined:
        """The gradients that this worker applies."""
        return Combined(units=gradients, ready=gradients, gradients=gradients)

    def build(self, program: Program) -> None:
        """Create variables, momentum slots and the worker's own resources."""
        values = program.initial_values()
        self._variables = [self._make_variable(value) for value in values]
        self._slots = [self._make_variable(np.zeros_like(value)) for value in values]
        worker = self._task.worker
        # Where the step will look for them: in the scope that the strategy traces a step in.
        traced_function(self._place(lambda: initialise_worker(program, tf.constant(worker))))()
        accumulation = self._workload.accumulation

        def step(events: bool, recorded: bool) -> tf.Tensor:
            self._traces += 1
            return trace_step(program, self, accumulation, events=events, recorded=recorded)

        self._step = traced_function(self._place(step))

    def _make_variable(self, value: npt.NDArray[np.float32]) -> Any:
        with tf.device(COMPUTE[self._device]):
            return tf.Variable(value)

    def _place(self, step: Any) -> Any:
        """Wrap a function of this worker as the strategy needs it."""
        return on_device(self._device, step)

    def values(self) -> list[tf.Tensor]:
        """Read this worker's own copy."""
        return [tf.identity(variable.read_value()) for variable in self._variables]

    def exchange(self, gradients: list[tf.Tensor]) -> Exchange:
        """Combine the gradients and apply them to this worker's own copy."""
        settings = (self._workload.learning_rate, self._workload.momentum)
        combined = self.combine(gradients)
        mine = zip(self._variables, self._slots, combined.gradients, strict=True)
        done = [
            momentum_update(variable.handle, slot.handle, gradient, *settings)
            for variable, slot, gradient in mine
        ]
        ready = combined.ready
        return Exchange(units=combined.units, pushed=ready, pulled=ready, done=done)

    def run(self, num_steps: int, *, events: bool = False, recorded: bool = True) -> Rows:
        """Run steps one after the other; rows are fetched at the end."""
        rows = [self._step(events, recorded) for _ in range(num_steps)]
        if not recorded:
            return np.zeros((0, 0))
        return np.stack([row.numpy() for row in rows])

    def weight_checksums(self) -> list[int]:
        """One exact sum per variable."""
        return [int(checksum(variable.read_value())) for variable in self._variables]

    def read_weights(self) -> list[npt.NDArray[np.float32]]:
        """This worker's copy."""
        return [variable.numpy() for variable in self._variables]

    def trace_count(self) -> int:
        """How often the step was traced."""
        return self._traces

    def placement(self) -> tuple[Plan, Mapping[int, str]] | None:
        """There are no servers."""
        return None

    def num_messages(self) -> int:
        """Nothing is communicated."""
        return 0
