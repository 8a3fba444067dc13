"""Build models and describe their variables in creation order.

Decides what `SmallCNN` is and how a Keras model becomes a list of variables.  TensorFlow's
placement counts variables in creation order, which is not the order of `model.variables`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.errors import HostFault, UserError
from ps_allreduce.point.architectures import SMALL_CNN, ImageModel, OwnModel, TensorSet
from ps_allreduce.point.data import OwnDataset
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.workload import Precision, Workload
from ps_allreduce.tf_internals.private_api import creation_number
from ps_allreduce.workloads.drawn_examples import ADVICE, DrawnExamples, examples_of, image_examples
from ps_allreduce.workloads.own_dataset import DatasetExamples, dataset_examples
from ps_allreduce.workloads.own_model import UserModel, check_weights, load_user_model
from ps_allreduce.workloads.user_code import blaming


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A compiled Keras model with its variables in creation order.

    Attributes:
        keras_model: in the format that the workload's precision computes in.
        trainable: variables of Keras in creation order.
        others: all of its other variables, which stay on the worker.
        variables: specifications of all variables in creation order.
        examples: what it is trained on, unless files are read.
    """

    keras_model: keras.Model
    trainable: tuple[keras.Variable, ...]
    others: tuple[keras.Variable, ...]
    variables: tuple[VariableSpec, ...]
    examples: DrawnExamples | DatasetExamples

    @classmethod
    def of(cls, model: keras.Model, examples: DrawnExamples | DatasetExamples) -> BuiltModel:
        """List the variables of a model that is built."""
        created = sorted(model.variables, key=lambda variable: creation_number(variable.value))
        trained = {id(variable) for variable in model.trainable_variables}
        return cls(
            keras_model=model,
            trainable=tuple(v for v in created if id(v) in trained),
            others=tuple(v for v in created if id(v) not in trained),
            variables=tuple(
                VariableSpec(
                    name=variable.path,
                    shape=tuple(variable.shape),
                    dtype=str(variable.dtype),
                    trainable=id(variable) in trained,
                )
                for variable in created
            ),
            examples=examples,
        )

    def initial_values(self) -> list[npt.NDArray[np.float32]]:
        """Values of the trainable variables, in creation order."""
        return [np.asarray(variable) for variable in self.trainable]


def build_model(workload: Workload, data_dir: Path) -> BuiltModel:
    """Build the workload's model, with weights that depend only on its seed.

    Raises:
        UserError: it is the user's own, and the suite cannot train it.
    """
    keras.utils.set_random_seed(workload.seed)
    model = workload.model
    with _computing_in(workload.precision):
        if isinstance(model, OwnModel):
            return _build_own(workload, model, model.folder(data_dir))
        if isinstance(model, TensorSet):
            return BuiltModel.of(_Tensors(model), image_examples(model))
        made = make_image_model(model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(optimizer=None, loss=loss)
    return BuiltModel.of(made, image_examples(model))


@contextmanager
def _computing_in(precision: Precision) -> Iterator[None]:
    """Layers that are made meanwhile compute in this precision, and keep float32 weights."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision.value)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _build_own(workload: Workload, model: OwnModel, folder: Path) -> BuiltModel:
    if not folder.is_dir():
        raise HostFault(f"the copies of {model.name} in {folder} are gone.")
    user = load_user_model(folder, model.module, model.function, model.arguments)
    examples = _examples_of(workload, user, folder)
    if not _is_built(user.keras_model):
        _call_once(user.keras_model, examples.structure, workload.batch_per_worker, folder)
    check_weights(user.keras_model)
    return BuiltModel.of(user.keras_model, examples)


def _examples_of(
    workload: Workload, user: UserModel, folder: Path
) -> DrawnExamples | DatasetExamples:
    if not isinstance(workload.data, OwnDataset):
        return examples_of(user.keras_model)
    if user.dataset is None:
        raise UserError(f"{workload.model.name} has no function dataset any more: {ADVICE}.")
    return dataset_examples(user.dataset, folder, user.keras_model)


def _is_built(model: keras.Model) -> bool:
    """Layers that are only made when they are called count too."""
    return bool(model.built) and all(layer.built for layer in model.layers)


def _call_once(model: keras.Model, structure: Any, batch: int, folder: Path) -> None:
    """Have a model make its variables."""
    inputs = tf.nest.map_structure(
        lambda spec: tf.zeros([batch, *[size or 1 for size in spec.shape]], spec.dtype),
        structure[0],
    )
    with blaming(f"calling {type(model).__name__} on zeros", folder):
        model(inputs)


def make_image_model(model: ImageModel) -> keras.Model:
    """A classifier that gives logits, not compiled."""
    shape = (model.image_size, model.image_size, 3)
    if model.name == SMALL_CNN:
        return _small_cnn(shape, model.num_classes)
    # The loss takes logits; by default Keras' architectures end in a softmax.
    return getattr(keras.applications, model.name)(
        weights=None,
        input_shape=shape,
        classes=model.num_classes,
        classifier_activation=None,
    )


def _small_cnn(shape: tuple[int, int, int], num_classes: int) -> keras.Model:
    """Three convolutions and two dense layers, for laptops; no batch norm, no dropout."""
    layers = keras.layers
    image = keras.Input(shape)
    tensor = image
    for filters in (16, 32, 64):
        tensor = layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(tensor)
    tensor = layers.Flatten()(tensor)
    tensor = layers.Dense(128, activation="relu")(tensor)
    return keras.Model(image, layers.Dense(num_classes)(tensor), name="small_cnn")


class _Tensors(keras.Model):
    """Weights without a computation; all zero."""

    def __init__(self, tensors: TensorSet) -> None:
        super().__init__(name="tensors")
        for number in range(tensors.count):
            self.add_weight(shape=(tensors.elements,), initializer="zeros", name=f"tensor_{number}")
