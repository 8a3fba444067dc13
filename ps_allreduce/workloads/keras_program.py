"""A real forward and backward pass of a Keras model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from ps_allreduce.point.architectures import OwnModel
from ps_allreduce.point.workload import Precision, Workload
from ps_allreduce.workloads.drawn_examples import DrawnExamples
from ps_allreduce.workloads.program import BatchOutputs, Program, now_after
from ps_allreduce.workloads.rehearsal import rehearse
from ps_allreduce.workloads.training_loss import training_loss
from ps_allreduce.workloads.worker_local import LocalVariable, assign

#: Multiplies the loss and divides the gradients, which are float32 again.  float16 loses digits
#: below 6e-5 and has no number below 6e-8.  It has none above 65504 either: a gradient of 64 or
#: more becomes infinite, which makes a run invalid.  A power of two rounds nothing.  bfloat16 has
#: the range of float32 and needs no scale.
LOSS_SCALE = {Precision.MIXED_FLOAT16: 1024.0}


class RealProgram(Program):
    """Trains a compiled model, the suite's or the user's own, with its own loss.

    Values of variables go in and gradients come out (`training_loss`), so that the same code serves
    wherever the values are kept.  Variables that are not trained stay on the worker under every
    strategy: batch-norm statistics, seeds of dropout (decision 0003).

    In mixed precision the model computes in 16 bits and the loss in float32; parameters, gradients
    and statistics are float32 wherever they are kept.  Where a layer computes in float16 the loss
    is scaled by a constant, `LOSS_SCALE`.  A scale that adapts itself would leave out steps, and
    strategies would differ by more than how they communicate.

    Attributes:
        keras_model: that is trained.
        precision: what its layers compute in.
        notes: what tracing a step has shown of its gradients, a sentence each.
    """

    def __init__(self, workload: Workload, num_workers: int, data_dir: Path) -> None:
        super().__init__(workload, num_workers, data_dir)
        self.keras_model = self._model.keras_model
        self.precision = _precision_of(self.keras_model)
        self.notes: dict[str, None] = {}
        if isinstance(workload.model, OwnModel):
            bounds = rehearse(self._model, self._structure, workload.model.folder(data_dir))
            if isinstance(self._examples, DrawnExamples):
                self._examples = self._examples.bounded(bounds)
        self._state_values = [np.asarray(variable) for variable in self._model.others]
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
        """Gradients of the loss of one batch."""
        examples = self.iterators[0].next(iterators[0])
        input_ready = now_after(examples)
        mapped = [
            *zip(self._model.trainable, values, strict=True),
            *zip(self._model.others, state, strict=True),
        ]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            batch = tf.nest.pack_sequence_as(self._structure, examples)
            loss, scope = training_loss(self.keras_model, batch, mapped)
        gradients = self._gradients(tape, loss, values)
        return BatchOutputs(
            loss=loss,
            gradients=gradients,
            state=[tf.convert_to_tensor(scope.get_current_value(v)) for v in self._model.others],
            moments=[input_ready, now_after([loss]), now_after(gradients)],
            releases=[],
        )

    def _gradients(
        self, tape: tf.GradientTape, loss: tf.Tensor, values: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        scale = LOSS_SCALE.get(self.precision)
        scaled = None if scale is None else tf.constant(scale)
        found = tape.gradient(loss, list(values), output_gradients=scaled)
        dense = [
            self._dense(variable, gradient, value)
            for variable, gradient, value in zip(self._model.trainable, found, values, strict=True)
        ]
        return dense if scale is None else [gradient / scale for gradient in dense]

    def _dense(
        self, variable: keras.Variable, gradient: tf.Tensor | None, value: tf.Tensor
    ) -> tf.Tensor:
        """A gradient of the shape of its variable, and a note where that takes something."""
        if gradient is None:
            self.notes[f"the loss does not depend on {variable.path}: its gradient is zero"] = None
            return tf.zeros_like(value)
        if isinstance(gradient, tf.IndexedSlices):
            self.notes[f"the gradient of {variable.path} is sparse and was made dense"] = None
        return tf.convert_to_tensor(gradient)


def _layers(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """All layers, however deep."""
    for layer in getattr(model, "layers", ()):
        yield layer
        yield from _layers(layer)


def _precision_of(model: keras.Model) -> Precision:
    """What most of the work is done in: 16 bits wherever a layer computes in 16 bits."""
    computed_in = {str(layer.compute_dtype) for layer in (model, *_layers(model))}
    if "float16" in computed_in:
        return Precision.MIXED_FLOAT16
    return Precision.MIXED_BFLOAT16 if "bfloat16" in computed_in else Precision.FLOAT32
