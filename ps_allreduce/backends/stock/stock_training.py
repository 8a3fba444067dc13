"""A model, an optimizer and a step of a replica, as TensorFlow's tutorials write them.

Decides what one replica does between two clocks: Keras' model, loss and optimizer, called by their
public names.  Where variables live and how gradients travel, the distribution strategy decides that
is in scope.  Of the suite there are the model's builder, the input pipeline and the emulated
accelerator, which are the same under all strategies.

Sources: tensorflow.org/tutorials/distribute/parameter_server_training and
.../multi_worker_with_ctl (TensorFlow 2.21).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.backends.contract import sparse_gradient
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.optimizers import Optimizer
from ps_allreduce.record.variables import SparseGradient
from ps_allreduce.workloads.emulated_accelerator import EmulatedProgram
from ps_allreduce.workloads.inputs import WorkerIndex, batch_structure, make_dataset
from ps_allreduce.workloads.keras_models import build_model, embedding_layers
from ps_allreduce.workloads.keras_program import rehearse
from ps_allreduce.workloads.own_dataset import DatasetExamples
from ps_allreduce.workloads.program import now_after, run_program


class Updates(Protocol):
    """Applies the gradients of all replicas."""

    def apply(self, gradients: Sequence[tf.Tensor | None]) -> None:
        """Add up what the replicas computed, one for each variable, and change the variables."""


class KerasUpdates:
    """Keras' optimizer."""

    def __init__(self, optimizer: Optimizer, trainable: Sequence[keras.Variable]) -> None:
        """Create its variables."""
        self._trainable = trainable
        keras_class = getattr(keras.optimizers, optimizer.keras_class)
        self._optimizer = keras_class(**asdict(optimizer))
        self._optimizer.build(list(trainable))

    def apply(self, gradients: Sequence[tf.Tensor | None]) -> None:
        """Have Keras do it."""
        self._optimizer.apply_gradients(zip(gradients, self._trainable, strict=True))


#: Made of an optimizer and the variables that are trained, in the scope of a strategy.
MakeUpdates = Callable[[Optimizer, Sequence[keras.Variable]], Updates]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStep:
    """What a replica's step yields.

    Attributes:
        loss: scalar float32, as the optimizer saw it.
        pulled, moments: as in `worker_step.RowLayout`; unknown and none of a real model.
    """

    loss: tf.Tensor
    pulled: tf.Tensor
    moments: Sequence[tf.Tensor] = ()


class StockTraining:
    """A replica's part, made in the scope of a distribution strategy.

    Attributes:
        variables: specifications of all variables of the model, in creation order.
        trainable: variables of Keras, in that order.
        sparse: gradients that were sparse when a step was traced, by the variable's path.
    """

    def __init__(
        self, experiment: Experiment, data_dir: Path, make_updates: MakeUpdates = KerasUpdates
    ) -> None:
        """Create the variables of model and optimizer."""
        self._load, self._num_workers = experiment.of_each, experiment.num_workers
        self._reads_from_servers = experiment.strategy.uses_servers
        self._data_dir = data_dir
        self.sparse: dict[str, SparseGradient] = {}
        self._built = build_model(self._load, data_dir)
        self._examples = self._built.examples
        self.variables, self.trainable = self._built.variables, self._built.pure.trainable
        self._model = self._built.pure.keras_model
        if experiment.strategy.is_sparse:
            _look_rows_up(self._model)
        self._updates = make_updates(self._load.optimizer, self.trainable)

    def complete(self) -> None:
        """Find out what the model is trained on, and whatever else belongs to no scope."""
        self._structure = batch_structure(self._load, self._examples)
        if isinstance(self._load.model, OwnModel):
            folder = self._load.model.folder(self._data_dir)
            bounds = rehearse(self._built.pure, self._structure, folder)
            if not isinstance(self._examples, DatasetExamples):
                self._examples = self._examples.bounded(bounds)

    def dataset(self, worker: WorkerIndex) -> tf.data.Dataset:
        """Endless batches of one worker, the same as under every other strategy."""
        if isinstance(worker, int) or not isinstance(self._examples, DatasetExamples):
            return self._dataset_of(worker)
        # The user's function takes integers, and one function makes the input of all workers.
        each = [self._dataset_of(index) for index in range(self._num_workers)]
        choice = tf.data.Dataset.from_tensors(tf.cast(worker, tf.int64)).repeat()
        return tf.data.Dataset.choose_from_datasets(each, choice)

    def _dataset_of(self, worker: WorkerIndex) -> tf.data.Dataset:
        return make_dataset(self._load, self._num_workers, worker, self._data_dir, self._examples)

    def initialise(self, worker: WorkerIndex) -> list[tf.Operation]:
        """Create what a worker needs besides its input, on the worker that executes this."""
        return []

    def step(self, batch: Any) -> ReplicaStep:
        """One step of Keras' model, loss and optimizer."""
        batch = tf.nest.pack_sequence_as(self._structure, tf.nest.flatten(batch))
        inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(batch)
        with tf.GradientTape() as tape:
            outputs = self._model(inputs, **_training(self._model.call))
            loss = self._model.compute_loss(
                inputs, targets, outputs, weights, **_training(self._model.compute_loss)
            )
        gradients = tape.gradient(loss, [variable.value for variable in self.trainable])
        for variable, gradient in zip(self.trainable, gradients, strict=True):
            if isinstance(gradient, tf.IndexedSlices):
                self.see(variable, gradient)
        self._updates.apply(gradients)
        return ReplicaStep(loss=loss, pulled=tf.constant(np.nan, tf.float64))

    def see(self, variable: keras.Variable, gradient: tf.IndexedSlices) -> None:
        """Keep what a record holds of a sparse gradient."""
        looked_up = gradient.indices.shape.num_elements()
        self.sparse[variable.path] = sparse_gradient(variable, looked_up)

    def weights(self) -> list[npt.NDArray[np.float32]]:
        """The trainable variables, in creation order."""
        return [variable.numpy() for variable in self.trainable]


class EmulatedStockTraining(StockTraining):
    """The same with an emulated accelerator, which brings its own input."""

    def complete(self) -> None:
        """Build the accelerator; replicas without servers have all values already."""
        self._accelerator = EmulatedProgram(self._load, self._num_workers, self._data_dir)

    def dataset(self, worker: WorkerIndex) -> tf.data.Dataset:
        """Nothing to look at."""
        return tf.data.Dataset.from_tensors(0).repeat()

    def initialise(self, worker: WorkerIndex) -> list[tf.Operation]:
        """Create the worker's timer and its input."""
        return self._accelerator.initialise(worker)

    def step(self, batch: Any) -> ReplicaStep:
        """One step of the accelerator, and of Keras' optimizer."""
        values = [tf.convert_to_tensor(variable.value) for variable in self.trainable]
        if self._reads_from_servers:
            values = self._accelerator.fetch(values)
        pulled = now_after(values)
        out = run_program(self._accelerator, values)
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        self._updates.apply([gradient / replicas for gradient in out.gradients])
        return ReplicaStep(
            loss=out.loss / replicas, pulled=pulled, moments=[*out.moments, *out.releases]
        )


def _look_rows_up(model: keras.Model) -> None:
    """Have a model's embedding layers fetch rows, and not their tables."""
    for layer in embedding_layers(model):
        layer.call = partial(_rows_of, layer)


def _rows_of(layer: keras.layers.Embedding, inputs: Any) -> tf.Tensor:
    rows = tf.nn.embedding_lookup(layer.embeddings.value, tf.convert_to_tensor(inputs))
    return tf.cast(rows, layer.compute_dtype)


def _training(function: Callable[..., Any]) -> dict[str, bool]:
    """Told to functions that want to know."""
    return {"training": True} if "training" in inspect.signature(function).parameters else {}


def timed(worker: tf.Tensor, train: Callable[[], ReplicaStep]) -> tf.Tensor:
    """The row of a step: `worker_step.RowLayout` lays it out.

    What changes a variable yields nothing, so an operation without outputs is one that the end of
    the step has to wait for.  One group on each device tells that all of them there have ended.
    """
    graph = tf.compat.v1.get_default_graph()
    start = tf.timestamp()
    before = len(graph.get_operations())
    step = train()
    changes = [each for each in graph.get_operations()[before:] if not each.outputs]
    with tf.control_dependencies([tf.group(*changes)]):
        end = tf.timestamp()
    loss = tf.cast(step.loss, tf.float64) * tf.distribute.get_strategy().num_replicas_in_sync
    row = [tf.cast(worker, tf.float64), loss, start, step.pulled, end, *step.moments]
    return tf.stack(row)
