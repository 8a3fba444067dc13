"""Build models, describe their variables in creation order, and keep layers from drawing.

Decides what `SmallCNN` is and how a Keras model becomes a list of variables.  TensorFlow's
placement counts variables in creation order, which is not the order of `model.variables`.

Every worker draws random numbers for its own batch, so weights of strategies could not be compared.
Decides which layers draw: those that own a generator of seeds, such as dropout, augmentation, and
cells of recurrent layers.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from ps_allreduce.errors import HostFault, UserError
from ps_allreduce.exchange.drawn_examples import (
    ADVICE,
    DrawnExamples,
    NotDrawable,
    classified,
    clicks,
    examples_of,
    next_tokens,
    told,
)
from ps_allreduce.exchange.lookups import table_layers
from ps_allreduce.exchange.private_api import all_layers
from ps_allreduce.exchange.pure_model import PureModel, call_once, is_built
from ps_allreduce.point.inputs.data import InputFiles, OwnDataset
from ps_allreduce.point.inputs.data_set import Target
from ps_allreduce.point.models import Shipped
from ps_allreduce.point.models.recommenders import (
    SMALL_DLRM,
    RecommenderModel,
)
from ps_allreduce.point.models.trained import (
    SMALL_CNN,
    SMALL_GPT,
    SMALL_VIT,
    ImageModel,
    OwnModel,
)
from ps_allreduce.point.models.weights import Weights
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.workload import Precision, Workload
from ps_allreduce.workloads.own_dataset import DatasetExamples, dataset_examples
from ps_allreduce.workloads.own_model import UserModel, check_weights, load_user_model
from ps_allreduce.workloads.recommender_networks import small_dlrm, small_two_tower
from ps_allreduce.workloads.transformers import small_gpt, small_vit
from ps_allreduce.workloads.user_code import blaming

#: For models that compute nothing: nobody looks at an input, and one is read all the same.
ROWS = classified((1,), 2)


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A compiled Keras model with its variables in creation order.

    Attributes:
        pure: in the format that the workload's precision computes in.
        variables: specifications of all variables in creation order.
        examples: what it is trained on, unless files are read.
    """

    pure: PureModel
    variables: tuple[VariableSpec, ...]
    examples: DrawnExamples | DatasetExamples

    @classmethod
    def of(cls, model: keras.Model, examples: DrawnExamples | DatasetExamples) -> BuiltModel:
        """List the variables of a model that is built."""
        pure = PureModel.of(model)
        trained = {id(variable) for variable in pure.trainable}
        names = name_seeds(model)
        tables = {id(layer.embeddings) for layer in embedding_layers(model)}
        specs = tuple(
            VariableSpec(
                name=names.get(id(variable.value), variable.path),
                shape=tuple(variable.shape),
                dtype=str(variable.dtype),
                trainable=id(variable) in trained,
                is_table=id(variable) in trained & tables,
            )
            for variable in pure.created
        )
        return cls(pure, specs, examples)

    def kept_values(self) -> int:
        """How many numbers of an example the forward pass keeps for the backward pass, at least.

        The outputs of layers with weights: the next layer's gradient needs each of them, or an
        activation in its place.  0 of a model that is no graph of layers.
        """
        layers = [layer for layer in _layers(self.pure.keras_model) if layer.weights]
        return sum(
            math.prod(size or 1 for size in tensor.shape[1:])
            for layer in layers
            for tensor in _outputs(layer)
        )


def _layers(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """Those that compute, of the model and of the models inside it."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _layers(layer)
        else:
            yield layer


def _outputs(layer: keras.layers.Layer) -> list[keras.KerasTensor]:
    try:
        return [tensor for tensor in tf.nest.flatten(layer.output) if tensor is not None]
    except AttributeError:  # it is no layer of a graph
        return []


def build_model(workload: Workload, data_dir: Path) -> BuiltModel:
    """Build the workload's model, with weights that depend only on its seed.

    Raises:
        UserError: it is the user's own, and the suite cannot train it; or it is to be
            deterministic, and cannot be.
    """
    keras.utils.set_random_seed(workload.seed)
    model = workload.model
    # The precision of a user's model is what was found in it: its code says that of each layer.
    stated = Precision.FLOAT32 if isinstance(model, OwnModel) else workload.precision
    with _computing_in(stated):
        if isinstance(model, OwnModel):
            return _build_own(workload, model, model.folder(data_dir))
        if isinstance(model, Weights):
            return BuiltModel.of(_WeightsAlone(model.variables), _looked_at_by_nobody(workload))
        made, examples = _make(model)
    made.compile(optimizer=None, loss=_loss_of(model))
    if workload.deterministic:
        switch_off_randomness(made)
    return BuiltModel.of(made, examples)


def _loss_of(model: Shipped) -> keras.losses.Loss:
    target = model.target if isinstance(model, ImageModel) else Target.CLASS
    if target is Target.LABELS or isinstance(model, RecommenderModel):
        return keras.losses.BinaryCrossentropy(from_logits=True)
    if target is Target.VALUE:
        return keras.losses.MeanSquaredError()
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _looked_at_by_nobody(workload: Workload) -> DrawnExamples:
    """What is read for weights alone: images where there are files of them."""
    if not isinstance(workload.data, InputFiles):
        return ROWS
    form, size = workload.data.form, workload.read_size
    assert size is not None
    return told((size, size, form.channels), form.target.value, form.num_outputs)


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
    if not is_built(user.keras_model):
        _call_once(user.keras_model, examples.structure, workload.batch_per_worker, folder)
    check_weights(user.keras_model)
    if workload.deterministic:
        switch_off_randomness(user.keras_model)
    return BuiltModel.of(user.keras_model, examples)


def _examples_of(
    workload: Workload, user: UserModel, folder: Path
) -> DrawnExamples | DatasetExamples:
    if not isinstance(workload.data, OwnDataset):
        only_sizes = workload.emulated is not None and is_built(user.keras_model)
        return ROWS if only_sizes else _drawn(user.keras_model)
    if user.dataset is None:
        raise UserError(f"{workload.model.name} has no function dataset any more: {ADVICE}.")
    return dataset_examples(user.dataset, folder, user.keras_model, user.validation)


def _drawn(model: keras.Model) -> DrawnExamples:
    try:
        return examples_of(model)
    except NotDrawable as error:
        raise UserError(str(error)) from error


def _call_once(model: keras.Model, structure: Any, batch: int, folder: Path) -> None:
    """Have a model make its variables."""
    inputs = tf.nest.map_structure(
        lambda spec: tf.TensorSpec([batch, *spec.shape], spec.dtype), structure[0]
    )
    with blaming(f"calling {type(model).__name__} on zeros", folder):
        call_once(model, inputs)


def _make(model: Shipped) -> tuple[keras.Model, DrawnExamples]:
    """A model that gives logits, not compiled, and what it is trained on unless files are read."""
    if isinstance(model, ImageModel):
        examples = told(model.example_shape, model.target.value, model.num_classes)
        return make_image_model(model), examples
    if isinstance(model, RecommenderModel):
        tables = model.tables
        examples = clicks(tables.rows, tables.numbers, model.id_exponent)
        return (small_dlrm if model.name == SMALL_DLRM else small_two_tower)(tables), examples
    length, vocabulary = model.sequence_length, model.vocabulary
    made = small_gpt(vocabulary, length, tied=model.name == SMALL_GPT)
    return made, next_tokens(length, vocabulary)


def embedding_layers(model: keras.Model) -> list[keras.layers.Embedding]:
    """Those that look rows up in tables, and do nothing else with these, however deep."""
    return table_layers(model)


def make_image_model(model: ImageModel) -> keras.Model:
    """A model that gives logits, or a value; not compiled."""
    if model.name in _OWN_IMAGE_MODELS:
        return _OWN_IMAGE_MODELS[model.name](model.example_shape, model.num_classes)
    with warnings.catch_warnings():
        # Keras expects one channel or three, and says so.
        warnings.filterwarnings("ignore", "This model usually expects 1 or 3 input channels")
        # The loss takes logits; by default Keras' architectures end in a softmax.
        return getattr(keras.applications, model.name)(
            weights=None,
            input_shape=model.example_shape,
            classes=model.num_classes,
            classifier_activation=None,
        )


def _small_cnn(shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Three convolutions and two dense layers, for laptops; no batch norm, no dropout."""
    layers = keras.layers
    image = keras.Input(shape)
    tensor = image
    for filters in (16, 32, 64):
        tensor = layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(tensor)
    tensor = layers.Flatten()(tensor)
    tensor = layers.Dense(128, activation="relu")(tensor)
    return keras.Model(image, layers.Dense(num_classes)(tensor), name="small_cnn")


#: Image models that Keras does not have: from the shape of images and the number of outputs.
_OWN_IMAGE_MODELS: Mapping[str, Callable[[tuple[int, ...], int], keras.Model]] = {
    SMALL_CNN: _small_cnn,
    SMALL_VIT: small_vit,
}


class _WeightsAlone(keras.Model):
    """Weights without a computation; all zero."""

    def __init__(self, variables: Sequence[VariableSpec]) -> None:
        super().__init__(name="weights")
        for spec in variables:
            # A path has slashes, which a name may not have.
            name = spec.name.replace("/", ".")
            self.add_weight(
                shape=spec.shape, initializer="zeros", name=name, trainable=spec.trainable
            )


def switch_off_randomness(model: keras.Model) -> None:
    """Let layers that draw random numbers compute as in inference, and no others.

    Batch norm goes on to normalise every batch by its own mean and variance.

    Raises:
        UserError: a layer does not let itself be told, or batch norm is inside of it.
    """
    drawing = [layer for layer in all_layers(model) if _generators(layer)]
    stubborn = [layer.name for layer in drawing if not _can_be_told(layer)]
    if stubborn:
        raise UserError(
            f"layer {', '.join(stubborn)} draws random numbers, and its weights cannot be compared "
            "while it does: give its method call an argument `training`, draw only if that is "
            "true, and keep batch norm out of the layer."
        )
    for layer in drawing:
        if hasattr(layer, "recurrent_dropout"):  # of a cell, for which the layer around it draws
            layer.dropout = layer.recurrent_dropout = 0.0
        layer.call = _as_in_inference(layer.call)


def name_seeds(model: keras.Model) -> dict[int, str]:
    """Names of the generators' states, by the identity of the variable, after the layer of each.

    Keras numbers generators, and does not say whose they are.
    """
    return {
        id(generator.state.value): f"{layer.name}/{generator.state.name}"
        for layer in all_layers(model)
        for generator in _generators(layer)
    }


def _generators(layer: keras.Layer) -> list[keras.random.SeedGenerator]:
    held = vars(layer).values()
    return [each for each in held if isinstance(each, keras.random.SeedGenerator)]


def _can_be_told(layer: keras.Layer) -> bool:
    inside = all_layers(layer)
    has_batch_norm = any(isinstance(each, keras.layers.BatchNormalization) for each in inside)
    return "training" in inspect.signature(layer.call).parameters and not has_batch_norm


def _as_in_inference(call: Callable[..., Any]) -> Callable[..., Any]:
    """A layer's method, to which `training` is false."""
    signature = inspect.signature(call)

    @functools.wraps(call)
    def calm(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        bound.arguments["training"] = False
        return call(*bound.args, **bound.kwargs)

    return calm
