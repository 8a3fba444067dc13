"""Build models and describe their variables in creation order.

Decides what `SmallCNN` is and how a Keras model becomes a list of variables.  TensorFlow's
placement counts variables in creation order, which is not the order of `model.variables`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.point.architectures import SMALL_CNN, Model, TensorSet
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.workload import Precision, Workload
from ps_allreduce.workloads.randomness import name_seeds, switch_off_randomness


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A Keras model with its variables in creation order.

    Attributes:
        keras_model: logits of `num_classes` from float32 images [batch, size, size, 3]; in the
            format that the workload's precision computes in.
        variables: specifications in creation order.
        trainable_order: for each trainable variable in creation order, its position in
            `model.trainable_variables`.
    """

    keras_model: keras.Model
    variables: tuple[VariableSpec, ...]
    trainable_order: tuple[int, ...]

    def initial_values(self) -> list[npt.NDArray[np.float32]]:
        """Values of the trainable variables, in creation order."""
        values = self.keras_model.trainable_variables
        return [np.asarray(values[position]) for position in self.trainable_order]


def build_model(workload: Workload) -> BuiltModel:
    """Build the workload's model, with weights that depend only on its seed.

    Raises:
        UserError: the workload is to be deterministic, and the model cannot be.
    """
    keras.utils.set_random_seed(workload.seed)
    created: list[tf.Variable] = []

    def capture(next_creator: Callable[..., tf.Variable], **arguments: object) -> tf.Variable:
        created.append(next_creator(**arguments))
        return created[-1]

    with tf.variable_creator_scope(capture), _computing_in(workload.precision):
        model = _build(workload.model)
    if workload.deterministic:
        switch_off_randomness(model)
    position = {id(variable.value): i for i, variable in enumerate(model.trainable_variables)}
    names = {id(variable.value): variable.path for variable in model.variables}
    names |= name_seeds(model)
    specs = tuple(
        VariableSpec(
            name=names.get(id(variable), variable.name),
            shape=tuple(variable.shape),
            dtype=variable.dtype.name,
            trainable=id(variable) in position,
        )
        for variable in created
    )
    order = tuple(position[id(variable)] for variable in created if id(variable) in position)
    return BuiltModel(model, specs, order)


@contextmanager
def _computing_in(precision: Precision) -> Iterator[None]:
    """Layers that are made meanwhile compute in this precision, and keep float32 weights."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision.value)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _build(model: Model) -> keras.Model:
    if isinstance(model, TensorSet):
        return _Tensors(model)
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
