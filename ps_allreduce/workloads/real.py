"""A real forward and backward pass of a Keras network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.workload import Workload
from ps_allreduce.workloads.inputs import batch_specs, make_dataset
from ps_allreduce.workloads.networks import build_network
from ps_allreduce.workloads.program import BatchOutputs, now_after
from ps_allreduce.workloads.worker_local import LocalIterator, LocalVariable, assign


class RealProgram:
    """Trains a network on images.

    Parameter values enter and updated batch-norm statistics leave through Keras' `stateless_call`,
    so that the same code serves wherever the values are kept.  The statistics stay on the worker,
    under every strategy (decision 0003).
    """

    def __init__(self, workload: Workload, num_workers: int, data_dir: Path) -> None:
        self._workload = workload
        self._num_workers = num_workers
        self._data_dir = data_dir
        self._network = build_network(workload)
        self.variables = self._network.variables
        self._state_values = [
            np.asarray(variable) for variable in self._network.model.non_trainable_variables
        ]
        self.state = tuple(
            LocalVariable(f"state/{index}", tf.as_dtype(value.dtype), value.shape)
            for index, value in enumerate(self._state_values)
        )
        self.iterators = (LocalIterator("input", batch_specs(workload)),)

    def initial_values(self) -> list[npt.NDArray[np.float32]]:
        """Initial values of the trainable variables, equal for equal seeds."""
        return self._network.initial_values()

    def initialise(self, worker: tf.Tensor) -> list[tf.Operation]:
        """Create state and input on the worker that executes this."""
        dataset = make_dataset(self._workload, self._num_workers, worker, self._data_dir)
        created = [
            assign(variable.handle(), tf.constant(value, variable.dtype))
            for variable, value in zip(self.state, self._state_values, strict=True)
        ]
        return [*created, self.iterators[0].start(dataset)]

    def batch(
        self,
        values: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        iterators: Sequence[tf.Tensor],
    ) -> BatchOutputs:
        """Gradients of the mean cross-entropy of one batch."""
        images, labels = self.iterators[0].next(iterators[0])
        input_ready = now_after([images])
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            logits, new_state = self._network.model.stateless_call(
                self._in_keras_order(values), list(state), images, training=True
            )
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, list(values))
        moments = [input_ready, now_after([loss]), now_after(gradients)]
        return BatchOutputs(
            loss=loss,
            gradients=gradients,
            state=[tf.convert_to_tensor(value) for value in new_state],
            moments=moments,
            releases=[],
        )

    def _in_keras_order(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        ordered: list[tf.Tensor] = [None] * len(values)
        for value, position in zip(values, self._network.trainable_order, strict=True):
            ordered[position] = value
        return ordered
