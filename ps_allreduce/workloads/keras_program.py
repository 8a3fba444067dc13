"""A real forward and backward pass of a Keras model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from ps_allreduce.point.workload import Precision, Workload
from ps_allreduce.workloads.program import BatchOutputs, Program, now_after
from ps_allreduce.workloads.worker_local import LocalVariable, assign

#: Multiplies the loss and divides the gradients, which are float32 again.  float16 loses digits
#: below 6e-5 and has no number below 6e-8.  It has none above 65504 either: a gradient of 64 or
#: more becomes infinite, which makes a run invalid.  A power of two rounds nothing.  bfloat16 has
#: the range of float32 and needs no scale.
LOSS_SCALE = {Precision.MIXED_FLOAT16: 1024.0}


class RealProgram(Program):
    """Trains a model on images.

    Keras' `stateless_call` takes parameter values and returns updated batch-norm statistics, so
    that the same code serves wherever the values are kept.  Under every strategy the statistics
    stay on the worker (decision 0003).

    In mixed precision the model computes in 16 bits and the loss in float32; parameters, gradients
    and statistics are float32 wherever they are kept.  mixed_float16 scales the loss by a constant,
    `LOSS_SCALE`.  A scale that adapts itself would leave out steps, and strategies would differ by
    more than how they communicate.
    """

    def __init__(self, workload: Workload, num_workers: int, data_dir: Path) -> None:
        super().__init__(workload, num_workers, data_dir)
        self._state_values = [
            np.asarray(variable) for variable in self._model.keras_model.non_trainable_variables
        ]
        self.state = tuple(
            LocalVariable(f"state/{index}", tf.as_dtype(value.dtype), value.shape)
            for index, value in enumerate(self._state_values)
        )

    def _create_state(self) -> list[tf.Operation]:
        return [
            assign(variable.handle(), tf.constant(value, variable.dtype))
            for variable, value in zip(self.state, self._state_values, strict=True)
        ]

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
            logits, new_state = self._model.keras_model.stateless_call(
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
        for value, position in zip(values, self._model.trainable_order, strict=True):
            ordered[position] = value
        return ordered
