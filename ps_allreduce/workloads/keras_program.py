"""A real forward and backward pass of a Keras network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.point.workload import Precision, Workload
from ps_allreduce.workloads.data.inputs import batch_specs, make_dataset
from ps_allreduce.workloads.keras_models import build_network
from ps_allreduce.workloads.program import BatchOutputs, now_after
from ps_allreduce.workloads.worker_local import LocalIterator, LocalVariable, assign

#: By this the loss is multiplied and the gradients, in float32 again, are divided: float16 loses
#: digits below 6e-5 and has no number below 6e-8.  It has none above 65504 either, so a gradient of
#: 64 or more becomes infinite, which makes a run invalid.  A power of two rounds nothing.  bfloat16
#: has the range of float32.
LOSS_SCALE = {Precision.MIXED_FLOAT16: 1024.0}


class RealProgram:
    """Trains a network on images.

    Parameter values enter and updated batch-norm statistics leave through Keras' `stateless_call`,
    so that the same code serves wherever the values are kept.  The statistics stay on the worker,
    under every strategy (decision 0003).

    In mixed precision the network computes in 16 bits and the loss in float32; parameters,
    gradients and statistics are float32 wherever they are kept.  mixed_float16 multiplies the loss
    by a constant, `LOSS_SCALE`, and divides the gradients by it: a scale that adapts itself would
    leave out steps, in which strategies would differ by more than how they communicate.
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
            logits = tf.cast(logits, tf.float32)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        gradients = self._gradients(tape, loss, values)
        moments = [input_ready, now_after([loss]), now_after(gradients)]
        return BatchOutputs(
            loss=loss,
            gradients=gradients,
            state=[tf.convert_to_tensor(value) for value in new_state],
            moments=moments,
            releases=[],
        )

    def _gradients(
        self, tape: tf.GradientTape, loss: tf.Tensor, values: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        scale = LOSS_SCALE.get(self._workload.precision)
        if scale is None:
            return list(tape.gradient(loss, list(values)))
        scaled = tape.gradient(loss, list(values), output_gradients=tf.constant(scale))
        return [gradient / scale for gradient in scaled]

    def _in_keras_order(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        ordered: list[tf.Tensor] = [None] * len(values)
        for value, position in zip(values, self._network.trainable_order, strict=True):
            ordered[position] = value
        return ordered
