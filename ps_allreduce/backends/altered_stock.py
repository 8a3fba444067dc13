"""Plain TensorFlow with parts of the suite's: what lies between the two.

Decides what of a replica's step is altered: how gradients are applied, and where statistics of
batch norm live.  Everything else is that of `stock`, which knows nothing of this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ps_allreduce.backends.contract import update_rule
from ps_allreduce.backends.stock.backends import (
    StockAllReduceBackend,
    StockBackend,
    StockServersBackend,
)
from ps_allreduce.backends.stock.stock_training import (
    EmulatedStockTraining,
    ReplicaStep,
    StockTraining,
)
from ps_allreduce.exchange.worker_local import LocalVariable, assign
from ps_allreduce.point.optimizers import Optimizer
from ps_allreduce.point.strategies.stated import Altered
from ps_allreduce.point.strategies.stock import Stock
from ps_allreduce.workloads.inputs import WorkerIndex


class FusedUpdates:
    """The suite's rule: one operation for each variable, where the variable lives."""

    def __init__(self, optimizer: Optimizer, trainable: Sequence[keras.Variable]) -> None:
        """Create slots beside the variables, as Keras does."""
        self._rule = update_rule(optimizer)
        self._variables = [variable.value for variable in trainable]
        self._slots = [self._slots_of(variable) for variable in self._variables]

    def _slots_of(self, variable: Any) -> list[Any]:
        shapes = self._rule.slots(tuple(variable.shape))
        with tf.distribute.get_strategy().extended.colocate_vars_with(variable):
            return [tf.Variable(tf.fill(shape, self._rule.first_slot_value)) for shape in shapes]

    def apply(self, gradients: Sequence[tf.Tensor | None]) -> None:
        """Add up as Keras does; where the loss depends on no variable its gradient is zero."""
        dense = [
            tf.zeros(variable.shape) if gradient is None else tf.convert_to_tensor(gradient)
            for variable, gradient in zip(self._variables, gradients, strict=True)
        ]
        context = tf.distribute.get_replica_context()
        summed = context.all_reduce(tf.distribute.ReduceOp.SUM, dense)
        for variable, slots, gradient in zip(self._variables, self._slots, summed, strict=True):
            with tf.device(variable.device):
                self._rule.apply(variable.handle, [slot.handle for slot in slots], gradient)


class LocalStatistics(StockTraining):
    """What is not trained stays on the worker, as in the suite's own step."""

    def complete(self) -> None:
        """Describe the worker's own variables."""
        super().complete()
        self._first_state = self._built.pure.state()
        self._state = [
            LocalVariable(f"state/{index}", tf.as_dtype(value.dtype), value.shape)
            for index, value in enumerate(self._first_state)
        ]

    def initialise(self, worker: WorkerIndex) -> list[tf.Operation]:
        """Create them on the worker that executes this."""
        return [
            assign(variable.handle(), tf.constant(value, variable.dtype))
            for variable, value in zip(self._state, self._first_state, strict=True)
        ]

    def step(self, batch: Any) -> ReplicaStep:
        """One step of the model as a function of its variables."""
        batch = tf.nest.pack_sequence_as(self._structure, tf.nest.flatten(batch))
        pure, handles = self._built.pure, [variable.handle() for variable in self._state]
        state = [variable.read(h) for variable, h in zip(self._state, handles, strict=True)]
        values = [tf.convert_to_tensor(variable.value) for variable in self.trainable]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            loss, changed = pure.loss(batch, values, state)
        for handle, value in zip(handles, changed, strict=True):
            assign(handle, value)
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        gradients = pure.gradients(tape, loss, values, sparse=self.see)
        self._updates.apply([gradient / replicas for gradient in gradients])
        return ReplicaStep(loss=loss / replicas, pulled=tf.constant(np.nan, tf.float64))


class AlteredBackend(StockBackend):
    """What both kinds share: the training that workload and strategy ask for."""

    def _make_training(self, data_dir: Path) -> StockTraining:
        strategy = self._experiment.strategy
        assert isinstance(strategy, Stock)
        if self._experiment.workload.emulated is not None:
            return EmulatedStockTraining(self._experiment, data_dir, FusedUpdates)
        kind = LocalStatistics if strategy.altered is Altered.STATISTICS else StockTraining
        return kind(self._experiment, data_dir, FusedUpdates)


class AlteredServersBackend(AlteredBackend, StockServersBackend):
    """ParameterServerStrategy with parts of the suite's."""


class AlteredAllReduceBackend(AlteredBackend, StockAllReduceBackend):
    """MultiWorkerMirroredStrategy with parts of the suite's."""
