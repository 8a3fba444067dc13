"""Synthetic text: tokens that are drawn evenly, and the one that comes next at every place."""

from __future__ import annotations

from dataclasses import dataclass, replace

import tensorflow as tf

from ps_allreduce.point.architectures import TextModel
from ps_allreduce.workloads.drawn_examples import DrawnExamples, Field


@dataclass(frozen=True, slots=True)
class NextTokens(DrawnExamples):
    """Sequences of token ids; the targets are the same sequences, one place further."""

    def draw(self, seed: int, index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Example number `index`."""
        (length,) = self.inputs.shape
        longer = replace(self.inputs, shape=(length + 1,))
        tokens = longer.draw(tf.stack([tf.constant(seed, tf.int64), index]))
        return tokens[:-1], tokens[1:]


def text_examples(model: TextModel) -> NextTokens:
    """What a language model is trained on."""
    ids = Field(shape=(model.sequence_length,), dtype=tf.int32, below=model.vocabulary)
    return NextTokens(ids, ids)
