"""What the embeddings of a model look up in a step, and gradients of those rows alone.

Keras' `Embedding` reads the whole table wherever that is kept.  Here the model is traced twice.
The first trace finds which ids each layer is called with; TensorFlow leaves out the rest of it.
Then the unique rows of all tables are fetched at once, and the second trace computes with them.
The loss is differentiated with respect to these rows, so what a row was looked up for several times
is summed up on the worker.

Layers of a class derived from `Embedding` may use their table in other ways: these tables are
exchanged whole, and so are those that are not trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from .private_api import all_layers
from .pure_model import PureModel
from .stacking import NO_ROW, Stack

T = TypeVar("T")

Array = npt.NDArray[Any]

#: Rows [k, width] by their numbers in the stack [k], int64 and unique.
Fetch = Callable[[tf.Tensor], tf.Tensor]

#: What a layer gives for ids.
Answer = Callable[[int, tf.Tensor], tf.Tensor]


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Rows that a step has fetched.

    Attributes:
        numbers: in the stack, unique, int64 [k].
        rows: float32 [k, width].
        places: for each call of a layer, in order, where its ids stand among the numbers.
    """

    numbers: tf.Tensor
    rows: tf.Tensor
    places: list[tf.Tensor]


class TableLookups:
    """The embedding layers of a model.

    Attributes:
        layers: in the order in which their tables were created.
        positions: of the tables among the trainable variables of the whole model.
        dense: the model without its tables.
        rows: of each table.
        width: of the widest table; rows of others are filled up with zeros.
    """

    def __init__(self, model: PureModel) -> None:
        """Find the layers; there may be none."""
        found = {id(layer.embeddings): layer for layer in table_layers(model.keras_model)}
        self.positions = [i for i, each in enumerate(model.trainable) if id(each) in found]
        self.layers = [found[id(model.trainable[position])] for position in self.positions]
        self.rows = tuple(int(layer.embeddings.shape[0]) for layer in self.layers)
        self._widths = [int(layer.embeddings.shape[1]) for layer in self.layers]
        self.width = max(self._widths, default=0)
        kept = tuple(each for each in model.trainable if id(each) not in found)
        self.dense = replace(model, trainable=kept)

    def filled_up(self, tables: Sequence[Array]) -> list[Array]:
        """Tables [rows, width] of equal width, from those of the model."""
        missing = [self.width - width for width in self._widths]
        return [np.pad(table, [(0, 0), (0, n)]) for table, n in zip(tables, missing, strict=True)]

    def cut(self, tables: Sequence[Array]) -> list[Array]:
        """Tables of the model, from those of equal width."""
        return [table[:, :width] for table, width in zip(tables, self._widths, strict=True)]

    def apart(self, of_all: Sequence[T]) -> tuple[list[T], list[T]]:
        """Something of each trainable variable: that of those exchanged whole, that of tables."""
        tables = set(self.positions)
        whole = [each for position, each in enumerate(of_all) if position not in tables]
        return whole, [of_all[position] for position in self.positions]

    def merged(self, whole: Sequence[T], tables: Sequence[T]) -> list[T]:
        """Something of each trainable variable, from what `apart` gives."""
        both = list(whole)
        for position, table in zip(self.positions, tables, strict=True):
            both.insert(position, table)
        return both

    def calls(
        self, trace: Callable[[], object], filling: tf.Tensor | float = 0.0
    ) -> list[tuple[int, tf.Tensor]]:
        """The layer and the ids of every call in a trace, where rows hold nothing but `filling`."""
        found: list[tuple[int, tf.Tensor]] = []

        def note(table: int, ids: tf.Tensor) -> tf.Tensor:
            found.append((table, ids))
            return tf.fill([*_sizes(ids), self._widths[table]], filling)

        with self._answering(note):
            trace()
        return found

    def look_up(self, stack: Stack, trace: Callable[[], object], fetch: Fetch) -> LookedUp:
        """Find the ids of the layers' calls in a trace, and fetch their rows."""
        found = self.calls(trace)
        flat = [_numbers(stack, table, ids) for table, ids in found]
        numbers, places = tf.unique(tf.concat(flat, 0))
        lengths = [tf.size(each) for each in flat]
        parts = [
            tf.reshape(part, tf.shape(ids))
            for part, (_, ids) in zip(tf.split(places, lengths, num=len(flat)), found, strict=True)
        ]
        return LookedUp(numbers, fetch(numbers), parts)

    @contextmanager
    def serving(self, looked_up: LookedUp) -> Iterator[None]:
        """Have the layers, called in the same order, give the rows that were fetched."""
        places = iter(looked_up.places)

        def row(table: int, _: tf.Tensor) -> tf.Tensor:
            width = self._widths[table]
            rows = looked_up.rows if width == self.width else looked_up.rows[:, :width]
            return tf.gather(rows, next(places))

        with self._answering(row):
            yield

    @contextmanager
    def _answering(self, answer: Answer) -> Iterator[None]:
        for table, layer in enumerate(self.layers):
            layer.call = partial(_call, layer, table, answer)
        try:
            yield
        finally:
            for layer in self.layers:
                del layer.call


def _call(layer: keras.layers.Embedding, table: int, answer: Answer, inputs: Any) -> tf.Tensor:
    ids = tf.convert_to_tensor(inputs)
    return tf.cast(answer(table, ids), layer.compute_dtype)


def table_layers(model: keras.Model) -> list[keras.layers.Embedding]:
    """Layers that do nothing with their table but look rows up, and train it.

    By the very class: others may do more.
    """
    plain = [each for each in all_layers(model) if type(each) is keras.layers.Embedding]
    return [each for each in plain if not (each.lora_enabled or each.quantization_mode)]


def _numbers(stack: Stack, table: int, ids: tf.Tensor) -> tf.Tensor:
    """In the stack; of an id that the table does not have, none that any row has.

    As in Keras, ids below zero count from the end.
    """
    rows = stack.rows[table]
    given = tf.cast(tf.reshape(ids, [-1]), tf.int64)
    counted = tf.where(given < 0, given + rows, given)
    is_there = (counted >= 0) & (counted < rows)
    return tf.where(is_there, stack.number(table, counted), NO_ROW)


def _sizes(ids: tf.Tensor) -> list[Any]:
    return list(ids.shape) if ids.shape.is_fully_defined() else list(tf.unstack(tf.shape(ids)))


def summed(slices: tf.IndexedSlices) -> tf.IndexedSlices:
    """The same with every row once: the sum of what was there for it."""
    numbers, places = tf.unique(slices.indices)
    values = tf.math.unsorted_segment_sum(slices.values, places, tf.size(numbers))
    return tf.IndexedSlices(values, numbers)
