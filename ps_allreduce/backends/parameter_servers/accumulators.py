"""Means of gradients that several workers add up in one place.

Decides nothing about where that is, nor about how many gradients a mean is made of.
"""

from __future__ import annotations

import tensorflow as tf

#: Gradients are never refused as stale: workers wait for what their gradients lead to.
ALWAYS_FRESH = 1 << 40


def make_accumulator(size: int, name: str) -> tf.Tensor:
    """An accumulator of flat gradients, on the present device."""
    return tf.raw_ops.ResourceConditionalAccumulator(
        dtype=tf.float32, shape=[size], shared_name=name, reduction_type="MEAN"
    )


def add_gradient(accumulator: tf.Tensor, gradient: tf.Tensor) -> tf.Operation:
    """Add one gradient."""
    return tf.raw_ops.ResourceAccumulatorApplyGradient(
        handle=accumulator, local_step=tf.constant(ALWAYS_FRESH, tf.int64), gradient=gradient
    )


def take_mean(accumulator: tf.Tensor, count: int, size: int) -> tf.Tensor:
    """The mean, once there are so many gradients; the accumulator is empty afterwards."""
    mean = tf.raw_ops.ResourceAccumulatorTakeGradient(
        handle=accumulator, num_required=tf.constant(count), dtype=tf.float32
    )
    return tf.ensure_shape(mean, [size])
