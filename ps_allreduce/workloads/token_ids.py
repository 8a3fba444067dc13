"""Synthetic text (TensorFlow): tokens that are drawn evenly, and the one that comes next."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from ps_allreduce.point.architectures import TextModel


def token_sample(
    model: TextModel, seed: int
) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """What makes an example from its number: ids int32 [length], and the next id at each place."""

    @tf.autograph.experimental.do_not_convert
    def sample(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        seeds = tf.stack([tf.constant(seed, tf.int64), index])
        shape = [model.sequence_length + 1]
        drawn = tf.random.stateless_uniform(shape, seeds, 0, model.vocabulary, tf.int32)
        return drawn[:-1], drawn[1:]

    return sample
