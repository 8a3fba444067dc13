"""What both of TensorFlow's own strategies share: the model in their scope, and a step.

Decides how a step is driven and observed from outside.  `training` has the step itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.backends.contract import Backend, Rows
from ps_allreduce.backends.stock.training import StockTraining, make_training, timed
from ps_allreduce.errors import UserError
from ps_allreduce.point.evaluation import Evaluation
from ps_allreduce.record.message_records import MessageRecord
from ps_allreduce.record.sparse import SparseGradient
from ps_allreduce.workloads.inputs import WorkerIndex


class StockBackend(Backend):
    """Drives a strategy of TensorFlow's, which `connect` makes."""

    _strategy: tf.distribute.Strategy

    def prepare(self, data_dir: Path) -> None:
        """Create the variables of model and optimizer in the strategy's scope."""
        still_open = True
        try:
            with self._strategy.scope():
                self._training = self._make_training(data_dir)
                still_open = tf.distribute.get_strategy() is self._strategy
        except IndexError:  # a scope that is gone cannot be closed
            if still_open:
                raise
        if not still_open:
            raise UserError(
                f"building {self._experiment.workload.model.name} ends the scope of TensorFlow's "
                "strategy: leave keras.utils.clear_session() out of it."
            )
        self._training.complete()
        self.variables = self._training.variables

    def _make_training(self, data_dir: Path) -> StockTraining:
        return make_training(self._experiment, data_dir)

    def _initialise(self, worker: WorkerIndex) -> None:
        """Create what the worker that executes this needs besides its input."""

        @tf.function(autograph=False)
        def initialise() -> None:
            self._training.initialise(worker)

        initialise()

    def _step(self, iterator: Any, worker: tf.Tensor, recorded: bool) -> tf.Tensor:
        """Trace one step of the replicas: its row, or its loss where nothing is recorded."""
        batch = next(iterator)

        def replica(batch: Any) -> tf.Tensor:
            if recorded:
                return timed(worker, lambda: self._training.step(batch))
            return self._training.step(batch).loss

        return self._strategy.run(replica, args=(batch,))

    def evaluate(self, evaluation: Evaluation) -> Rows:
        """Of plain TensorFlow only training is measured (`point.experiment`)."""
        raise NotImplementedError

    def messages(self) -> list[MessageRecord]:
        """A gradient of each variable, as before any packing."""
        return self.message_per_variable()

    def sparse_gradients(self) -> tuple[SparseGradient, ...]:
        """As Keras' optimizer gets them."""
        return tuple(self._training.sparse.values())

    def weight_checksums(self) -> list[int]:
        """One exact sum over the bits of every trainable variable."""
        return [int(weight.view(np.int32).sum(dtype=np.int64)) for weight in self.read_weights()]

    def read_weights(self) -> list[npt.NDArray[np.float32]]:
        """The trainable variables, in creation order."""
        return self._training.weights()
