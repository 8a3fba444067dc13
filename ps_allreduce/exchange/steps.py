"""What a step is made of, where its parts run, and how its gradients are packed.

A step begins with values on the worker and ends when the next values are there.  It is traced by a
function that gets two others: one returns what the worker holds, the other exchanges gradients.

A worker's functions name a part of the device, `/device:GPU:0`.  TensorFlow then takes that of the
worker that executes them.  What stays on the processors says so where it is made.

A bucket holds its flattened pieces, one behind the other.  A tensor that fills a bucket alone is
reshaped and not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import tensorflow as tf
from tensorflow.types.experimental import PolymorphicFunction

from .buckets import Bucket, holders
from .private_api import leave_unordered

#: Something to wait for.
Milestones = Sequence[tf.Tensor | tf.Operation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """What an exchange yields: gradients on their way, and the values that they lead to.

    Attributes:
        units: what is sent, one per message.
        pushed: for each unit, what is ready once the unit was combined or acknowledged.
        pulled: for each unit, what is ready once its new value is on the worker.
        done: everything that the next step needs.
        rows: what is ready once gradients of rows were applied; empty without sparse embeddings.
    """

    units: list[tf.Tensor]
    pushed: Milestones
    pulled: Milestones
    done: Milestones
    rows: Milestones = ()

    def also(self, rows: Milestones) -> Exchanged:
        """The same with gradients of rows, whose end the next step needs too."""
        return replace(self, done=[*self.done, *rows], rows=rows)


#: The trainable variables, whole, in creation order, as the worker holds them.
Values = Callable[[], list[tf.Tensor]]


class Exchange(Protocol):
    """Combines and applies gradients, and brings the new values to the worker."""

    def __call__(
        self, gradients: list[tf.Tensor], table_gradient: tf.IndexedSlices | None = None
    ) -> Exchanged:
        """The last is of the rows that a step has looked up, each once; they are not brought."""


#: Traces a step; what it returns stays on the worker until it is fetched.
Step = Callable[[Values, Exchange], tf.Tensor]


def traced_function(function: Callable[..., tf.Tensor]) -> PolymorphicFunction:
    """A TensorFlow function without AutoGraph, which would take a second to rewrite it."""
    leave_unordered()
    return tf.function(function, autograph=False)


def on_device(device: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its operations on the device of the worker that executes it."""

    def placed(*arguments: Any) -> Any:
        with tf.device(device):
            return function(*arguments)

    return placed


def server_device(server: int) -> str:
    """Device of a parameter server."""
    return f"/job:ps/replica:0/task:{server}/device:CPU:0"


def worker_device(worker: int) -> str:
    """The processors of a worker: its functions begin there, even if they compute on a GPU."""
    return f"/job:worker/replica:0/task:{worker}/device:CPU:0"


def pack(buckets: Sequence[Bucket], tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """One flat tensor per bucket."""
    parts = {
        (number, inside): part
        for tensor, pieces in zip(tensors, holders(buckets, len(tensors)), strict=True)
        for (number, inside), part in zip(pieces, _cut(buckets, tensor, pieces), strict=True)
    }
    return [
        _join([parts[number, inside] for inside in range(len(bucket.pieces))])
        for number, bucket in enumerate(buckets)
    ]


def _cut(
    buckets: Sequence[Bucket], tensor: tf.Tensor, pieces: Sequence[tuple[int, int]]
) -> list[tf.Tensor]:
    flat = tf.reshape(tensor, [-1])
    sizes = [buckets[number].pieces[inside].size for number, inside in pieces]
    return [flat] if len(sizes) == 1 else tf.split(flat, sizes)


def unpack(
    buckets: Sequence[Bucket], flats: Sequence[tf.Tensor], shapes: Sequence[tuple[int, ...]]
) -> list[tf.Tensor]:
    """The tensors that were packed, by their shapes."""
    parts = [
        [flat]
        if len(bucket.pieces) == 1
        else tf.split(flat, [piece.size for piece in bucket.pieces])
        for bucket, flat in zip(buckets, flats, strict=True)
    ]
    return [
        tf.reshape(_join(parts[number][inside] for number, inside in pieces), shape)
        for shape, pieces in zip(shapes, holders(buckets, len(shapes)), strict=True)
    ]


def _join(parts: Iterable[tf.Tensor]) -> tf.Tensor:
    flats = list(parts)
    return flats[0] if len(flats) == 1 else tf.concat(flats, 0)


def hold(tensor: tf.Tensor, earlier: Sequence[tf.Tensor | tf.Operation], bound: int) -> tf.Tensor:
    """The tensor, once fewer than `bound` of the earlier ones are missing; 0 is no bound.

    TensorFlow sends a tensor as soon as it is there, whatever the receiving operation waits for.
    So the tensor itself must wait, where it is.  A check of its shape waits, not an identity:
    TensorFlow's graph optimisation rewrites identities, and with some bounds steps took 1.2 times
    as long (2.21; not with its arithmetic pass off, nor with its constant folding off).
    """
    waits = [earlier[-bound]] if bound and len(earlier) >= bound else []
    with tf.control_dependencies(waits):
        return tf.ensure_shape(tensor, tensor.shape)
