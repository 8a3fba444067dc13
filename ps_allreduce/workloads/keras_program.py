"""A real forward and backward pass of a Keras model, and one trace of it before it is trained.

The trace shows what the suite must know of a user's model.  Decides what a step may not use:
resources of the process that traces it, which workers do not have.  It also makes what Keras makes
at the first loss (a tracker for each of several losses), and finds inputs that index the rows of an
embedding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ps_allreduce.errors import UserError
from ps_allreduce.exchange.batches import BatchOutputs
from ps_allreduce.exchange.drawn_examples import DrawnExamples, rows_indexed_by
from ps_allreduce.exchange.lookups import LookedUp, TableLookups
from ps_allreduce.exchange.private_api import metric_variables
from ps_allreduce.exchange.pure_model import PureModel, See, accuracy_of, training_loss
from ps_allreduce.exchange.worker_local import LocalVariable, assign
from ps_allreduce.point.measurement import Evaluation
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.wire import ELEMENT_BYTES
from ps_allreduce.point.workload import Precision, Workload
from ps_allreduce.record.variables import RowsAsked
from ps_allreduce.workloads.inputs import SYNTHETIC_BATCHES, make_dataset
from ps_allreduce.workloads.lookup_check import NotingScope, only_whole
from ps_allreduce.workloads.program import EvaluatedBatch, Program, now_after
from ps_allreduce.workloads.user_code import blaming


def rehearse(model: PureModel, structure: Any, folder: Path) -> tuple[int, ...]:
    """Trace the loss of a batch, nested `tf.TensorSpec`s, once.

    Returns:
        For every input, how many rows the smallest table has that it indexes; 0 for none.

    Raises:
        UserError: it cannot be traced, or uses something that workers do not have.
    """
    strays: list[keras.Variable] = []
    changed = dict[int, keras.Variable]()

    def trace(batch: Any) -> tf.Tensor:
        values = [(v, tf.zeros(v.shape, v.dtype)) for v in (*model.trainable, *model.others)]
        loss, scope = training_loss(model.keras_model, batch, values, NotingScope)
        strays.extend(scope.strays.values())
        changed.update(scope.changed)
        return loss

    with blaming("one training step", folder):
        function = tf.function(trace, autograph=False).get_concrete_function(structure)
    _check_strays(model.keras_model, strays)
    _check_changed(variable for variable in model.trainable if id(variable) in changed)
    _check_captures(function.graph)
    if function.output_shapes.rank != 0:
        raise UserError(
            f"the loss of {type(model.keras_model).__name__} has the shape "
            f"{function.output_shapes}: return one number from compute_loss."
        )
    inputs = function.graph.inputs[: len(tf.nest.flatten(structure[0]))]
    return tuple(rows_indexed_by(tensor) for tensor in inputs)


def _check_strays(model: keras.Model, strays: Sequence[keras.Variable]) -> None:
    """Trackers of losses were made in the scope; all others would change without being kept."""
    counted = {id(variable) for variable in metric_variables(model)}
    for variable in strays:
        if id(variable) not in counted:
            raise UserError(
                f"a step uses the variable {variable.path}, which is none of the model's: the "
                "suite cannot carry it from step to step (a stateful recurrent layer, or keras."
                "random without a SeedGenerator of a layer). Leave it out."
            )


def _check_changed(trained: Iterable[keras.Variable]) -> None:
    """What is trained changes by gradients alone, where it is kept."""
    for variable in trained:
        raise UserError(
            f"a step assigns the trained weight {variable.path} itself, as SpectralNormalization "
            "does: the suite changes trained weights by their gradients only. Leave it out."
        )


def _check_captures(graph: Any) -> None:
    names = {id(variable.handle): variable.name for variable in graph.variables}
    for tensor, inside in graph.captures:
        if tensor.dtype not in (tf.resource, tf.variant):
            continue
        if id(tensor) in names:
            raise UserError(
                f"a step uses the tf.Variable {names[id(tensor)]}, which Keras does not know: make "
                "it with self.add_weight."
            )
        raise UserError(
            f"a step uses a table or another resource of TensorFlow at {_user_of(inside)}, which "
            "workers do not have (such as a StringLookup layer): prepare the data in dataset()."
        )


def _user_of(tensor: tf.Tensor) -> str:
    """The operation that takes a captured resource; its name holds those of the layers."""
    consumers = tensor.consumers()
    return str(consumers[0].name if consumers else tensor.name)


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

    def look_up_rows(self) -> None:
        """From now on compute with rows of tables, and tell their gradients apart."""
        self.lookups = TableLookups(self._pure)
        self._pure = self.lookups.dense

    def only_whole(self) -> str:
        """Why its tables can only be exchanged whole, a phrase; empty where rows alone can."""
        return only_whole(self._pure, self._structure)

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
        found = self._look_up(batch, values, state, training=True)
        rows = [] if found is None else [found.rows]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*values, *rows])
            loss, changed = self._loss(batch, values, state, found, training=True)
        gradients = self._pure.gradients(tape, loss, values, self._note, self._see, rows)
        return BatchOutputs(
            loss=loss,
            gradients=gradients[: len(values)],
            state=changed,
            moments=[input_ready, now_after([loss]), now_after(gradients)],
            table_gradient=found and tf.IndexedSlices(gradients[-1], found.numbers),
            arrived=rows,
        )

    def rows_asked(self, num_servers: int) -> RowsAsked | None:
        """Look up what all workers look up in the batches that they repeat."""
        if self.lookups is None:
            return None
        found = [self._looked_up_by(worker) for worker in range(self._num_workers)]
        asked = [sum(int(tf.size(part)) for part in one.places) for each in found for one in each]
        numbers = [[one.numbers.numpy() for one in each] for each in found]
        row_bytes = ELEMENT_BYTES * self.lookups.width
        return RowsAsked.of(numbers, float(np.mean(asked)), row_bytes, num_servers)

    def _looked_up_by(self, worker: int) -> list[LookedUp]:
        assert self.lookups is not None
        dataset = make_dataset(
            self._workload, self._num_workers, worker, self._data_dir, self._examples
        )
        values = [tf.zeros(variable.shape) for variable in self._pure.trainable]
        state = [tf.constant(value) for value in self._state_values]
        found = []
        for examples in dataset.take(SYNTHETIC_BATCHES):
            batch = tf.nest.pack_sequence_as(self._structure, tf.nest.flatten(examples))
            found.append(
                self.lookups.look_up(
                    self._stack,
                    partial(self._pure.loss, batch, values, state),
                    lambda numbers: tf.zeros([tf.size(numbers), 0]),
                )
            )
        return found

    def _look_up(
        self,
        batch: Any,
        values: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        *,
        training: bool,
    ) -> LookedUp | None:
        """The rows of a batch; None where tables are among the values."""
        if self.lookups is None:
            return None
        return self.lookups.look_up(
            self._stack,
            lambda: self._pure.loss(batch, values, state, training=training),
            self._fetch,
        )

    def _loss(
        self,
        batch: Any,
        values: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        found: LookedUp | None,
        *,
        training: bool,
        see: See = lambda outputs: None,
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Loss and state, as `PureModel.loss` gives them."""
        if self.lookups is None or found is None:
            return self._pure.loss(batch, values, state, training=training, see=see)
        with self.lookups.serving(found):
            return self._pure.loss(batch, values, state, training=training, see=see)

    def evaluate(
        self,
        values: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        iterators: Sequence[tf.Tensor],
    ) -> EvaluatedBatch:
        """One batch, with the statistics that the worker has gathered."""
        examples = self.evaluation_iterators[0].next(iterators[0])
        input_ready = now_after([*values[:1], *examples])
        batch = tf.nest.pack_sequence_as(self._structure, examples)
        found = self._look_up(batch, values, state, training=False)
        rows = [] if found is None else [found.rows]
        told: list[tf.Tensor] = []
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*values, *rows])
            loss, _ = self._loss(batch, values, state, found, training=False, see=told.append)
        norm = tf.constant(math.nan)
        if self._evaluation is not None and self._evaluation.gradient_norm:
            norm = tf.linalg.global_norm(self._pure.gradients(tape, loss, values, rows=rows))
        return EvaluatedBatch(
            loss=loss,
            accuracy=accuracy_of(told[0], batch[1]),
            gradient_norm=norm,
            input_ready=input_ready,
        )

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
