"""Random examples for any model: what shape and range its inputs and targets have.

Decides both from the model and its loss.  An example depends on seed and index alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import tensorflow as tf

from .private_api import input_structure, output_structure
from .pure_model import PureModel

#: What to do where examples cannot be drawn.
ADVICE = "write a function dataset(shard, num_shards) in the model's module"

#: Losses, by name in small letters without underscores, that fix the range of their targets.
SPARSE = ("sparsecategoricalcrossentropy",)
ONE_HOT = ("categoricalcrossentropy", "categoricalfocalcrossentropy", "categoricalhinge")
BINARY = ("binarycrossentropy", "binaryfocalcrossentropy", "hinge", "squaredhinge")

#: Keras chooses for these by the shape of the output.
ANY_CROSSENTROPY = ("crossentropy", "ce")


#: Operations that pass on some of the numbers of their inputs, and change none.
PASS_ON = frozenset(
    {"Cast", "ConcatV2", "ExpandDims", "Identity", "IdentityN", "Pack", "Reshape", "Reverse"}
    | {"ReverseV2", "SelectV2", "Slice", "Split", "SplitV", "Squeeze", "StopGradient"}
    | {"StridedSlice", "Tile", "Transpose", "Unpack"}
)


class NotDrawable(ValueError):
    """No examples can be drawn for a model; the text says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One tensor of an example.

    Attributes:
        below: values are whole numbers from 0 to below this; 0 for real numbers from 0 to 1.
        one_hot: such a number is drawn for the last axis, which has a one there.
    """

    shape: tuple[int, ...]
    dtype: tf.DType
    below: int = 0
    one_hot: bool = False

    @property
    def spec(self) -> tf.TensorSpec:
        """Of one example."""
        return tf.TensorSpec(self.shape, self.dtype)

    def draw(self, seed: tf.Tensor) -> tf.Tensor:
        """A value; `seed` is int64 [2]."""
        if self.one_hot:
            chosen = tf.random.stateless_uniform(self.shape[:-1], seed, 0, self.below, tf.int64)
            return tf.one_hot(chosen, self.below, dtype=self.dtype)
        if self.below:
            whole = tf.random.stateless_uniform(self.shape, seed, 0, self.below, tf.int64)
            return tf.cast(whole, self.dtype)
        return tf.cast(tf.random.stateless_uniform(self.shape, seed), self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewedIds(Field):
    """A row of each of several tables, row 0 the most popular: ids follow a power law.

    Attributes:
        rows: of each table.
        exponent: row i is drawn as often as the density x^-exponent on [1, rows + 1) has it between
            i + 1 and i + 2 (the `DataGenerator` of HugeCTR); 0 draws all evenly.
    """

    rows: tuple[int, ...]
    exponent: float

    def draw(self, seed: tf.Tensor) -> tf.Tensor:
        """Whole numbers [tables], by the inverse of the distribution."""
        even = tf.random.stateless_uniform(self.shape, seed, dtype=tf.float64)
        ends = tf.constant(self.rows, tf.float64) + 1.0
        power = 1.0 - self.exponent
        drawn = ends**even if power == 0 else (1.0 + even * (ends**power - 1.0)) ** (1.0 / power)
        ids = tf.cast(drawn, tf.int64) - 1
        return tf.cast(tf.minimum(ids, tf.constant(self.rows, tf.int64) - 1), self.dtype)


def clicks(rows: tuple[int, ...], numbers: int, exponent: float) -> DrawnExamples:
    """Ids of a row of each table, some numbers, and whether something was chosen."""
    ids = SkewedIds(shape=(len(rows),), dtype=tf.int32, rows=rows, exponent=exponent)
    beside = [Field(shape=(numbers,), dtype=tf.float32)] if numbers else []
    chosen = Field(shape=(1,), dtype=tf.float32, below=2)
    return DrawnExamples([ids, *beside] if beside else ids, chosen)


@dataclass(frozen=True, slots=True)
class DrawnExamples:
    """Inputs and targets, nested `Field`s each."""

    inputs: Any
    targets: Any

    @property
    def structure(self) -> Any:
        """`tf.TensorSpec`s of one example."""
        return tf.nest.map_structure(lambda field: field.spec, (self.inputs, self.targets))

    def bounded(self, bounds: Sequence[int]) -> DrawnExamples:
        """Inputs that index rows draw below these; 0 for an input that does not."""
        flat = [
            replace(field, below=bound) if bound else field
            for field, bound in zip(tf.nest.flatten(self.inputs), bounds, strict=True)
        ]
        return replace(self, inputs=tf.nest.pack_sequence_as(self.inputs, flat))

    def draw(self, seed: int, index: tf.Tensor) -> tuple[Any, Any]:
        """Example number `index`, below 2 to the 40th."""
        return _draw_all(self.inputs, seed, index), _draw_all(self.targets, seed, index)


def _draw_all(fields: Any, seed: int, index: tf.Tensor) -> Any:
    """Values for nested fields, of which no two begin at the same place."""
    flat = tf.nest.flatten(fields)
    values = [
        field.draw(tf.stack([tf.constant(seed, tf.int64), index + (number << 40)]))
        for number, field in enumerate(flat)
    ]
    return tf.nest.pack_sequence_as(fields, values)


def classified(shape: tuple[int, ...], num_classes: int) -> DrawnExamples:
    """Examples of a shape with a class each."""
    return DrawnExamples(
        Field(shape=shape, dtype=tf.float32), Field(shape=(), dtype=tf.int64, below=num_classes)
    )


def told(shape: tuple[int, ...], target: str, num_outputs: int) -> DrawnExamples:
    """Examples of a shape with what is told of each: a `class`, `labels`, or a `value`."""
    if target == "class":
        return classified(shape, num_outputs)
    below = 2 if target == "labels" else 0
    targets = Field(shape=(num_outputs,), dtype=tf.float32, below=below)
    return DrawnExamples(Field(shape=shape, dtype=tf.float32), targets)


def examples_for(model: PureModel, batch: int) -> DrawnExamples:
    """Examples of a model, in batches of so many; they index no row that a table does not have."""
    examples = examples_of(model.keras_model)
    structure = tf.nest.map_structure(
        lambda spec: tf.TensorSpec([batch, *spec.shape], spec.dtype), examples.structure
    )
    inputs = tf.nest.flatten(structure[0])
    traced = model.traced_loss(structure).graph.inputs[: len(inputs)]
    return examples.bounded([rows_indexed_by(tensor) for tensor in traced])


def examples_of(model: keras.Model) -> DrawnExamples:
    """Examples that a compiled model of the user's takes.

    Raises:
        NotDrawable: it does not say which these are.
    """
    if not getattr(model, "inputs", None):
        raise NotDrawable(
            f"{type(model).__name__} does not tell which inputs it takes (it has no .inputs): "
            f"{ADVICE}, or build it with keras.Input."
        )
    outputs = output_structure(model)
    losses = iter(_losses(model, len(tf.nest.flatten(outputs))))
    return DrawnExamples(
        tf.nest.map_structure(_input_field, input_structure(model)),
        tf.nest.map_structure(lambda output: _target_field(output, next(losses)), outputs),
    )


def _input_field(tensor: keras.KerasTensor) -> Field:
    dtype = tf.as_dtype(tensor.dtype)
    if dtype == tf.string:
        raise NotDrawable(f"input {tensor.name} is text, which nobody can draw: {ADVICE}.")
    return Field(shape=_shape_of(tensor, "input"), dtype=dtype, below=0 if dtype.is_floating else 2)


def _shape_of(tensor: keras.KerasTensor, role: str) -> tuple[int, ...]:
    """Without the batch."""
    shape = tuple(tensor.shape)[1:]
    if None in shape:
        raise NotDrawable(
            f"{role} {tensor.name} has the open shape {shape}: give keras.Input its sizes, or "
            f"{ADVICE}."
        )
    return shape


def _losses(model: keras.Model, count: int) -> Iterator[str]:
    """The name of the loss of every output, in small letters without underscores."""
    stated = getattr(model, "loss", None)
    if isinstance(stated, dict) and set(stated) == set(model.output_names):
        stated = [stated[name] for name in model.output_names]
    flat = tf.nest.flatten(stated)
    if len(flat) != count:
        flat = [flat[0]] * count
    return (_name_of(loss) for loss in flat)


def _name_of(loss: Any) -> str:
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    return name.replace("_", "").lower()


def _target_field(output: keras.KerasTensor, loss: str) -> Field:
    shape = _shape_of(output, "output")
    if loss in ANY_CROSSENTROPY:
        loss = BINARY[0] if shape[-1:] == (1,) else SPARSE[0]
    if loss in SPARSE:
        return Field(shape=shape[:-1], dtype=tf.int32, below=shape[-1])
    if loss in ONE_HOT:
        return Field(shape=shape, dtype=tf.float32, below=shape[-1], one_hot=True)
    return Field(shape=shape, dtype=tf.float32, below=2 if loss in BINARY else 0)


@dataclass(frozen=True, slots=True)
class NextTokens(DrawnExamples):
    """Sequences of token ids; the targets are the same sequences, one place further."""

    def draw(self, seed: int, index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Example number `index`."""
        (length,) = self.inputs.shape
        longer = replace(self.inputs, shape=(length + 1,))
        tokens = longer.draw(tf.stack([tf.constant(seed, tf.int64), index]))
        return tokens[:-1], tokens[1:]


def next_tokens(length: int, vocabulary: int) -> NextTokens:
    """What a language model is trained on: tokens that are drawn evenly."""
    ids = Field(shape=(length,), dtype=tf.int32, below=vocabulary)
    return NextTokens(ids, ids)


def rows_indexed_by(tensor: tf.Tensor) -> int:
    """Rows of the smallest table that is indexed by this input; 0 for none."""
    rows, seen, waiting = [], set(), [tensor]
    while waiting:
        present = waiting.pop()
        for operation in present.consumers():
            if operation.type == "GatherV2" and operation.inputs[1] is present:
                rows.append(_rows(operation))
            elif operation.type in PASS_ON and operation.name not in seen:
                seen.add(operation.name)
                waiting.extend(operation.outputs)
    return min(rows, default=0)


def _rows(gather: tf.Operation) -> int:
    axis = int(tf.get_static_value(gather.inputs[2]))
    return int(gather.inputs[0].shape[axis] or 0)
