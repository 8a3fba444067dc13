"""Tables that a worker keeps whole, and how workers bring together what they changed.

Each worker has summed its rows up before they travel.  They are gathered by all: the lengths first,
because a gather takes equally many rows of everybody.  These are as many as the longest has,
rounded up.  A row and its number travel in one message, the number as the bits of two float32.
Then every worker sums up again what several have sent of one row, divides by the number of workers,
and applies it once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from .lookups import summed
from .replica import GROUP_KEY
from .stacking import GRAIN, NO_ROW, Stack
from .updates import UpdateRule
from .worker_local import LocalCounter

Array = npt.NDArray[Any]

#: float32 elements that an int64 number takes beside its row.
NUMBER_WIDTH = 2


class OwnTables:
    """A worker's own copy of all tables, with their slots.

    Attributes:
        stack: which numbers the rows have.
        variable: all rows [rows, width], as the stack numbers them.
    """

    def __init__(
        self,
        stack: Stack,
        tables: Sequence[Array],
        rule: UpdateRule,
        make_variable: Callable[[Array], Any],
    ) -> None:
        self.stack, self._rule = stack, rule
        value = stacked(stack, tables)
        self.variable = make_variable(value)
        self._slots = [
            make_variable(np.full(shape, rule.first_slot_value, np.float32))
            for shape in rule.slots(value.shape)
        ]

    def fetch(self, numbers: tf.Tensor) -> tf.Tensor:
        """Rows [k, width] by their numbers [k]."""
        return gathered(self.variable, numbers)

    def apply(self, gradient: tf.IndexedSlices) -> tf.Operation:
        """Apply a gradient that has every row once."""
        slots = [slot.handle for slot in self._slots]
        return self._rule.apply_rows(self.variable.handle, slots, gradient)

    def read(self) -> list[Array]:
        """The tables, whole."""
        return unstacked(self.stack, self.variable.numpy())

    def read_slots(self) -> list[list[Array]]:
        """The slots of every table; a number that is kept once is all tables'."""
        return unstacked_slots(self.stack, [slot.numpy() for slot in self._slots])

    def restore(self, tables: Sequence[Array], slots: Sequence[Sequence[Array]]) -> None:
        """Give tables and slots the values that were read before."""
        self.variable.assign(stacked(self.stack, tables))
        for slot, value in zip(self._slots, stacked_slots(self.stack, slots), strict=True):
            slot.assign(value)


class GatheredMeans:
    """Means of row gradients over all workers."""

    def __init__(self, num_workers: int, width: int) -> None:
        self._num_workers, self._width = num_workers, width
        self._steps = LocalCounter("steps_of_gathers")
        self._steps.start()

    def combine(self, gradient: tf.IndexedSlices) -> tf.IndexedSlices:
        """The mean, with every row once, of gradients that each have every row once."""
        # Two sets of keys take turns, as those of `RingMeans` do.
        turn = self._steps.count() % 2
        length = tf.size(gradient.indices)
        longest = tf.reduce_max(self._gather(tf.reshape(length, [1]), turn))
        grains = -(-longest // GRAIN)
        padding = [[0, grains * GRAIN - length]]
        numbers = tf.pad(gradient.indices, padding, constant_values=NO_ROW)
        rows = tf.pad(gradient.values, [*padding, [0, 0]])
        message = tf.concat([tf.bitcast(tf.bitcast(numbers, tf.int32), tf.float32), rows], 1)
        return self._mean(self._gather(message, 2 + 2 * grains + turn))

    def _mean(self, messages: tf.Tensor) -> tf.IndexedSlices:
        bits = tf.bitcast(messages[:, :NUMBER_WIDTH], tf.int32)
        numbers = tf.bitcast(bits, tf.int64)
        is_row = numbers != NO_ROW
        rows = tf.boolean_mask(messages[:, NUMBER_WIDTH:], is_row)
        rows = tf.ensure_shape(rows, [None, self._width])
        total = summed(tf.IndexedSlices(rows, tf.boolean_mask(numbers, is_row)))
        return tf.IndexedSlices(total.values / self._num_workers, total.indices)

    def _gather(self, value: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        """The values of all workers, one behind the other."""
        return tf.raw_ops.CollectiveGatherV2(
            input=value,
            group_size=tf.constant(self._num_workers),
            group_key=tf.constant(GROUP_KEY + 1),
            instance_key=key,
            ordering_token=[],
            communication_hint="ring",
        )


def gathered(variable: Any, numbers: tf.Tensor) -> tf.Tensor:
    """Rows of a variable, which is not read as a whole, in the order of the numbers.

    `tf.gather` of a variable that TensorFlow has sharded gives rows in another order (2.21).
    """
    rows = tf.raw_ops.ResourceGather(
        resource=variable.handle, indices=numbers, dtype=tf.float32, validate_indices=True
    )
    return tf.ensure_shape(rows, [None, variable.shape[1]])


def stacked(stack: Stack, tables: Sequence[Array]) -> Array:
    """All rows [servers x rows per server, width] as the stack numbers them; zeros elsewhere."""
    value = np.zeros((stack.length, tables[0].shape[1]), np.float32)
    for number, table in enumerate(tables):
        value[stack.number(number, np.arange(len(table)))] = table
    return value


def unstacked(stack: Stack, value: Array) -> list[Array]:
    """The tables of such a value."""
    return [value[stack.number(number, np.arange(rows))] for number, rows in enumerate(stack.rows)]


def stacked_slots(stack: Stack, slots: Sequence[Sequence[Array]]) -> list[Array]:
    """Of every kind of slot, that of all tables as the stack has it."""
    kinds = zip(*slots, strict=True)
    return [stacked(stack, kind) if kind[0].ndim else kind[0] for kind in kinds]


def unstacked_slots(stack: Stack, kept: Sequence[Array]) -> list[list[Array]]:
    """The slots of every table, from one value for each kind."""
    tables = range(len(stack.rows))
    kinds = [unstacked(stack, each) if each.ndim else [each for _ in tables] for each in kept]
    return [[kind[table] for kind in kinds] for table in tables]
