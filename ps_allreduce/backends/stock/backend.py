"""What both of TensorFlow's own strategies share: the model in their scope, and a step.

Decides how a step is driven and observed from outside.  `training` has the step itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.backends.protocol import Backend
from ps_allreduce.backends.stock.training import make_training, timed
from ps_allreduce.errors import UserError
from ps_allreduce.workloads.inputs import WorkerIndex


class StockBackend(Backend):
    """Drives a strategy of TensorFlow's, which `connect` makes."""

    _strategy: tf.distribute.Strategy

    def prepare(self, data_dir: Path) -> None:
        """Create the variables of model and optimizer in the strategy's scope."""
        with self._strategy.scope():
            self._training = make_training(self._experiment, data_dir)
        self._training.see_examples()
        self.variables = self._training.variables
        for variable in self._training.trainable:
            if not self._strategy.extended.variable_created_in_scope(variable.value):
                raise UserError(
                    f"{self._experiment.workload.model.name} made its variables outside of "
                    "TensorFlow's strategy: leave keras.utils.clear_session() out of the function "
                    "that builds it."
                )

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

    def weight_checksums(self) -> list[int]:
        """One exact sum over the bits of every trainable variable."""
        return [int(weight.view(np.int32).sum(dtype=np.int64)) for weight in self.read_weights()]

    def read_weights(self) -> list[npt.NDArray[np.float32]]:
        """The trainable variables, in creation order."""
        return self._training.weights()
