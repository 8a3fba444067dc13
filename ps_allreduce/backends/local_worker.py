"""Strategies without servers: a worker that keeps its own copy of everything.

Decides how such a worker makes its steps, alone or inside MultiWorkerMirroredStrategy.  `allreduce`
decides how gradients are combined.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.backends.devices import COMPUTE, on_device
from ps_allreduce.backends.protocol import Backend, Rows, Task
from ps_allreduce.backends.updates import update_rule
from ps_allreduce.backends.worker_step import (
    Exchanged,
    checksum,
    initialise_worker,
    trace_step,
    traced_function,
)
from ps_allreduce.workloads.program import Program


class LocalWorker(Backend):
    """Drives one worker's steps in this process; as it is, it is the strategy `single`."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._rule = update_rule(task.experiment.workload.optimizer)
        self._device = task.experiment.resources.device
        self._variables: list[Any] = []
        #: Of every variable, beside it.
        self._slots: list[list[Any]] = []

    def connect(self) -> None:
        """Nothing to connect to."""

    def build(self, program: Program) -> None:
        """Create variables, their slots and the worker's own resources."""
        values = program.initial_values()
        self._variables = [self._make_variable(value) for value in values]
        self._slots = [
            [self._make_variable(np.zeros(shape, np.float32)) for shape in self._rule.slots(v.shape)]
            for v in values
        ]
        worker = 0 if self._task.tf_config is None else self._task.tf_config.task.index
        # In the scope of the step, which looks for the resources there.
        traced_function(self._place(lambda: initialise_worker(program, worker)))()

        def step(events: bool, recorded: bool) -> tf.Tensor:
            self.traces += 1
            return trace_step(program, self.values, self.exchange, events=events, recorded=recorded)

        self._step = traced_function(self._place(step))

    def _make_variable(self, value: npt.NDArray[np.float32]) -> Any:
        with tf.device(COMPUTE[self._device]):
            return tf.Variable(value)

    def _place(self, step: Any) -> Any:
        """Wrap a function of this worker as the strategy needs it."""
        return on_device(self._device, step)

    def values(self) -> list[tf.Tensor]:
        """Read this worker's own copy.

        An identity after each read, as `read_value` adds it, would stay where a clock waits for it.
        """
        return [
            tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
            for variable in self._variables
        ]

    def exchange(self, gradients: list[tf.Tensor]) -> Exchanged:
        """Apply the gradients to this worker's own copy."""
        return self.apply(gradients, gradients, gradients)

    def apply(
        self, units: list[tf.Tensor], ready: list[tf.Tensor], gradients: list[tf.Tensor]
    ) -> Exchanged:
        """Apply gradients that the workers have combined, one per trainable variable.

        Args:
            units: what was sent, one per message.
            ready: for each unit, what came back.
        """
        updates = zip(self._variables, self._slots, gradients, strict=True)
        done = [
            self._rule.apply(variable.handle, [slot.handle for slot in slots], gradient)
            for variable, slots, gradient in updates
        ]
        return Exchanged(units=units, pushed=ready, pulled=ready, done=done)

    def make(
        self, num_steps: int, *, events: bool = False, recorded: bool = True
    ) -> list[tf.Tensor]:
        """Make steps one after the other."""
        return [self._step(events, recorded) for _ in range(num_steps)]

    def fetch(self, made: Sequence[tf.Tensor]) -> Rows:
        """Rows are in this process already."""
        return np.stack([row.numpy() for row in made])

    def weight_checksums(self) -> list[int]:
        """One exact sum per variable."""
        return [int(checksum(variable.read_value())) for variable in self._variables]

    def read_weights(self) -> list[npt.NDArray[np.float32]]:
        """This worker's copy."""
        return [variable.numpy() for variable in self._variables]


class MirroredWorker(LocalWorker):
    """A worker inside MultiWorkerMirroredStrategy; one device per worker process.

    As it is, it is the strategy `no_communication`: the all-reduce step without the all-reduce.
    The workers form a cluster only to start the timed loop together.
    """

    #: How TensorFlow packs what its collectives combine; None where they combine nothing.
    _options: Any = None

    def connect(self) -> None:
        """Return once the strategy has seen all workers."""
        assert self._task.tf_config is not None
        # TensorFlow reads the variable when it makes the strategy object
        # (tensorflow/tensorflow#31154).
        os.environ["TF_CONFIG"] = self._task.tf_config.render()
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=self._options
        )

    def agree(self, value: float) -> float:
        """The largest of all workers' values."""
        replica_value = self._strategy.run(lambda: tf.constant([value], tf.float64))
        return float(np.max(self._strategy.gather(replica_value, axis=0).numpy()))

    def _make_variable(self, value: npt.NDArray[np.float32]) -> Any:
        with self._strategy.scope():
            return self._strategy.experimental_local_results(tf.Variable(value))[0]

    def _place(self, step: Any) -> Any:
        return lambda *arguments: self._strategy.run(step, args=arguments)
