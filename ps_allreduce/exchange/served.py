"""The trainable variables on parameter servers, one TensorFlow variable per bucket.

The chief creates every bucket on the server that a plan names, with its slots beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from .buckets import Messages, Part, Tensor, fill_buckets, holders
from .packing import pack, unpack
from .steps import server_device
from .updates import UpdateRule

Array = npt.NDArray[np.float32]


class ServedVariables:
    """Buckets, their slots, and what the optimizer does to them.

    Attributes:
        buckets: in the order in which they are sent.
        variables: one per bucket.
        shapes: of the whole variables.
        rule: what changes them.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        messages: Messages,
        rule: UpdateRule,
        values: Sequence[Array],
    ) -> None:
        """Create buckets and slots; `values` are whole variables in creation order."""
        self._parts, self.rule = parts, rule
        self.shapes = [value.shape for value in values]
        order = sorted({part.variable for part in parts})
        #: For every variable, its parts by their positions.
        self._groups = [
            [i for i, part in enumerate(parts) if part.variable == variable] for variable in order
        ]
        whole = dict(zip(order, values, strict=True))
        slices = [_slice(whole[part.variable], part) for part in parts]
        self._part_shapes = [each.shape for each in slices]
        tensors = [Tensor(each.size, part.server) for each, part in zip(slices, parts, strict=True)]
        self.buckets = fill_buckets(tensors, messages.group_size, messages.cut_size)
        self.variables: list[Any] = []
        self._slots: list[list[Any]] = []
        flats = pack(self.buckets, [tf.constant(each) for each in slices])
        for bucket, flat in zip(self.buckets, flats, strict=True):
            with tf.device(server_device(bucket.server)):
                self.variables.append(tf.Variable(flat))
                self._slots.append(
                    [
                        tf.Variable(tf.fill(shape, rule.first_slot_value))
                        for shape in rule.slots((bucket.size,))
                    ]
                )

    def ruled_by(self, rule: UpdateRule) -> ServedVariables:
        """The same buckets and slots, changed by another rule with such slots."""
        other = copy(self)
        other.rule = rule
        return other

    def assemble(self, flats: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Whole variables, in creation order, from one flat tensor per bucket."""
        parts = unpack(self.buckets, flats, self._part_shapes)
        return [
            parts[group[0]]
            if len(group) == 1
            else tf.concat([parts[i] for i in group], self._parts[group[0]].axis)
            for group in self._groups
        ]

    def pack(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """One flat tensor per bucket, from whole gradients in creation order."""
        pieces: list[tf.Tensor] = [None] * len(self._parts)
        for group, gradient in zip(self._groups, gradients, strict=True):
            parts = [self._parts[i] for i in group]
            lengths = [part.length for part in parts]
            cut = [gradient] if len(group) == 1 else tf.split(gradient, lengths, parts[0].axis)
            for index, piece in zip(group, cut, strict=True):
                pieces[index] = piece
        return pack(self.buckets, pieces)

    def update(self, number: int, gradient: tf.Tensor) -> tf.Operation:
        """Apply a gradient to a bucket, on the bucket's server."""
        slots = [slot.handle for slot in self._slots[number]]
        return self.rule.apply(self.variables[number].handle, slots, gradient)

    def read(self) -> list[tf.Tensor]:
        """The present value of every bucket."""
        return [variable.read_value() for variable in self.variables]

    def read_whole(self) -> list[Array]:
        """Whole variables, fetched to the chief."""
        return [value.numpy() for value in self.assemble(self.read())]

    def read_slots(self) -> list[list[Array]]:
        """The slots of every whole variable; a number that a bucket keeps is all its variables'."""
        first = self._first_buckets()
        by_kind: list[list[Array]] = []
        for kind in range(self._kinds):
            flats = [slots[kind].read_value() for slots in self._slots]
            if flats[0].shape.rank:
                by_kind.append([whole.numpy() for whole in self.assemble(flats)])
            else:
                by_kind.append([flats[number].numpy() for number in first])
        return [[values[i] for values in by_kind] for i in range(len(first))]

    def restore(self, values: Sequence[Array], slots: Sequence[Sequence[Array]]) -> None:
        """Give variables and slots the values of whole variables that were read before."""
        first = self._first_buckets()
        whole = self.pack([tf.constant(value) for value in values])
        for variable, flat in zip(self.variables, whole, strict=True):
            variable.assign(flat)
        for kind in range(self._kinds):
            kept = [tf.constant(each[kind]) for each in slots]
            if self._slots[0][kind].shape.rank:
                flats = self.pack(kept)
            else:
                holding = [first.index(n) if n in first else 0 for n in range(len(self.buckets))]
                flats = [kept[i] for i in holding]
            for bucket, flat in zip(self._slots, flats, strict=True):
                bucket[kind].assign(flat)

    @property
    def _kinds(self) -> int:
        """Slots of each bucket."""
        return len(self._slots[0]) if self._slots else 0

    def _first_buckets(self) -> list[int]:
        """For every variable, the number of the bucket with its first element."""
        pieces = holders(self.buckets, len(self._parts))
        return [pieces[group[0]][0][0] for group in self._groups]


def _slice(value: Array, part: Part) -> Array:
    if part.axis is None:
        return value
    taken = np.take(value, range(part.start, part.start + part.length), axis=part.axis)
    return np.ascontiguousarray(taken)
