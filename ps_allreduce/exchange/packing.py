"""Operations of a step that pack tensors into buckets, unpack them, and limit those under way.

Decides how a bucket is laid out: its flattened pieces, one behind the other.  A tensor that fills a
bucket alone is reshaped and not copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tensorflow as tf

from .buckets import Bucket, holders


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
