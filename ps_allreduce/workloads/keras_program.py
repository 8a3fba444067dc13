"""A real forward and backward pass of a Keras model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import keras
import tensorflow as tf

from ps_allreduce.exchange.batches import BatchOutputs
from ps_allreduce.exchange.drawn_examples import DrawnExamples
from ps_allreduce.exchange.pure_model import PureModel
from ps_allreduce.exchange.worker_local import LocalVariable, assign
from ps_allreduce.point.measurement import Evaluation
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.workload import Precision, Workload
from ps_allreduce.workloads.program import Program, now_after
from ps_allreduce.workloads.rehearsal import rehearse


class RealProgram(Program):
    """Trains a compiled model, the suite's or the user's own, with its own loss.

    Values of variables go in and gradients come out (`exchange.pure_model`), so that the same code
    serves wherever the values are kept.  Variables that are not trained stay on the worker under
    every strategy: batch-norm statistics, seeds of dropout (decision 0003).

    In mixed precision the model computes in 16 bits and the loss in float32; parameters, gradients
    and statistics are float32 wherever they are kept.  Where a layer computes in float16 the loss
    is scaled by a constant.  A scale that adapts itself would leave out steps, and
    strategies would differ by more than how they communicate.

    Attributes:
        keras_model: that is trained.
        precision: what its layers compute in.
        notes: what tracing a step has shown of its gradients, a sentence each.
    """

    def __init__(
        self,
        workload: Workload,
        num_workers: int,
        data_dir: Path,
        evaluation: Evaluation | None = None,
    ) -> None:
        super().__init__(workload, num_workers, data_dir, evaluation)
        self._pure = self._model.pure
        self.keras_model = self._pure.keras_model
        self.precision = _precision_of(self._pure)
        self.notes: dict[str, None] = {}
        if isinstance(workload.model, OwnModel):
            bounds = rehearse(self._pure, self._structure, workload.model.folder(data_dir))
            if isinstance(self._examples, DrawnExamples):
                self._examples = self._examples.bounded(bounds)
        self._state_values = self._pure.state()
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
        batch = tf.nest.pack_sequence_as(self._structure, examples)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            loss, changed = self._pure.loss(batch, values, state)
        gradients = self._pure.gradients(tape, loss, values, self._note, self._see)
        return BatchOutputs(
            loss=loss,
            gradients=gradients,
            state=changed,
            moments=[input_ready, now_after([loss]), now_after(gradients)],
        )

    def evaluate(
        self,
        values: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        iterators: Sequence[tf.Tensor],
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The loss of one batch, with the statistics that the worker has gathered."""
        examples = self.evaluation_iterators[0].next(iterators[0])
        input_ready = now_after([*values[:1], *examples])
        batch = tf.nest.pack_sequence_as(self._structure, examples)
        loss, _ = self._pure.loss(batch, values, state, training=False)
        return loss, input_ready

    def _note(self, sentence: str) -> None:
        self.notes[sentence] = None

    def _see(self, variable: keras.Variable, gradient: tf.IndexedSlices) -> None:
        rows = gradient.indices.shape.num_elements()
        looked_up = None if rows is None else rows * self.accumulation
        self.sparse[variable.path] = variable, looked_up


def _precision_of(model: PureModel) -> Precision:
    """What most of the work is done in: 16 bits wherever a layer computes in 16 bits."""
    if "float16" in model.computes_in:
        return Precision.MIXED_FLOAT16
    return Precision.MIXED_BFLOAT16 if "bfloat16" in model.computes_in else Precision.FLOAT32
