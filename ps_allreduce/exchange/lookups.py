"""What the embeddings of a model look up in a step, and gradients of those rows alone.

Keras' `Embedding` reads the whole table wherever that is kept.  Here the model is traced twice.
The first trace finds which ids each layer is called with; TensorFlow leaves out the rest of it.
Then the unique rows of all tables are fetched at once, and the second trace computes with them.
The loss is differentiated with respect to these rows, so what a row was looked up for several times
is summed up on the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from .private_api import all_layers
from .pure_model import PureModel
from .stacking import Stack

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
        positions: of the tables among the trainable variables of the whole model.
        dense: the model without its tables.
        rows: of each table.
        width: of all tables.
    """

    def __init__(self, model: PureModel) -> None:
        """Find the layers.

        Raises:
            ValueError: there are none, or their tables differ in width; a sentence.
        """
        layers = all_layers(model.keras_model)
        self._layers = [each for each in layers if isinstance(each, keras.layers.Embedding)]
        tables = {id(layer.embeddings): number for number, layer in enumerate(self._layers)}
        widths = {int(layer.embeddings.shape[1]) for layer in self._layers}
        if len(widths) != 1:
            raise ValueError(
                "sparse embeddings need Embedding layers whose rows are equally wide, got widths "
                f"{', '.join(map(str, sorted(widths))) or 'of none'}"
            )
        (self.width,) = widths
        self.positions = [i for i, each in enumerate(model.trainable) if id(each) in tables]
        self._layers.sort(key=lambda layer: _position(model, layer))
        self.rows = tuple(int(layer.embeddings.shape[0]) for layer in self._layers)
        kept = tuple(each for each in model.trainable if id(each) not in tables)
        self.dense = replace(model, trainable=kept)

    def look_up(self, stack: Stack, trace: Callable[[], object], fetch: Fetch) -> LookedUp:
        """Find the ids of the layers' calls in a trace, and fetch their rows."""
        found: list[tuple[int, tf.Tensor]] = []

        def note(table: int, ids: tf.Tensor) -> tf.Tensor:
            found.append((table, ids))
            return tf.zeros([*_sizes(ids), self.width])

        with self._answering(note):
            trace()
        flat = [
            stack.number(table, tf.cast(tf.reshape(ids, [-1]), tf.int64)) for table, ids in found
        ]
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
        with self._answering(lambda _, __: tf.gather(looked_up.rows, next(places))):
            yield

    @contextmanager
    def _answering(self, answer: Answer) -> Iterator[None]:
        for table, layer in enumerate(self._layers):
            layer.call = partial(_call, layer, table, answer)
        try:
            yield
        finally:
            for layer in self._layers:
                del layer.call


def _call(layer: keras.layers.Embedding, table: int, answer: Answer, inputs: Any) -> tf.Tensor:
    ids = tf.convert_to_tensor(inputs)
    return tf.cast(answer(table, ids), layer.compute_dtype)


def _position(model: PureModel, layer: keras.layers.Embedding) -> int:
    return next(i for i, each in enumerate(model.trainable) if each is layer.embeddings)


def _sizes(ids: tf.Tensor) -> list[Any]:
    return list(ids.shape) if ids.shape.is_fully_defined() else list(tf.unstack(tf.shape(ids)))


def summed(slices: tf.IndexedSlices) -> tf.IndexedSlices:
    """The same with every row once: the sum of what was there for it."""
    numbers, places = tf.unique(slices.indices)
    values = tf.math.unsorted_segment_sum(slices.values, places, tf.size(numbers))
    return tf.IndexedSlices(values, numbers)
