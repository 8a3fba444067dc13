"""Gradients of several batches between two exchanges.

All but the last run in a loop that sums the gradients on the worker: nothing is communicated before
the last batch.  The last is outside of the loop, so that communication can overlap with its
backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import tensorflow as tf


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutputs:
    """What one batch yields, or all batches between two exchanges.

    Attributes:
        loss: scalar float32, mean over the examples.
        gradients: one per trainable variable, in creation order; with sparse embeddings those of
            tables are left out.
        table_gradient: of the rows that were looked up, each once; None without sparse embeddings.
        arrived: rows that were fetched to compute with.
        state: new values of the worker's own state.
        moments: float64 scalars, as many for each batch.
        releases: float64 scalars of the last batch.
    """

    loss: tf.Tensor
    gradients: list[tf.Tensor]
    state: list[tf.Tensor]
    moments: list[tf.Tensor] = field(default_factory=list)
    releases: list[tf.Tensor] = field(default_factory=list)
    table_gradient: tf.IndexedSlices | None = None
    arrived: list[tf.Tensor] = field(default_factory=list)


#: A batch, from the worker's own state.
Batch = Callable[[list[tf.Tensor]], BatchOutputs]


def run_batches(
    batch: Batch,
    values: Sequence[tf.Tensor],
    state: list[tf.Tensor],
    count: int,
    num_moments: int = 0,
) -> BatchOutputs:
    """Trace `count` batches on the same parameter values; give their means and all moments.

    Args:
        num_moments: of each batch.
    """
    if count == 1:
        return batch(state)
    sums, state, earlier, loss_sum = _accumulate(batch, values, state, count - 1, num_moments)
    last = batch(state)
    return replace(
        last,
        loss=(loss_sum + last.loss) / count,
        gradients=[
            (part + final) / count for part, final in zip(sums, last.gradients, strict=True)
        ],
        moments=[*tf.unstack(tf.reshape(earlier, [num_moments * (count - 1)])), *last.moments],
    )


def _accumulate(
    batch: Batch,
    values: Sequence[tf.Tensor],
    state: list[tf.Tensor],
    count: int,
    num_moments: int,
) -> tuple[list[tf.Tensor], list[tf.Tensor], tf.Tensor, tf.Tensor]:
    """Sum of gradients, last state, moments [count, n] and sum of losses of `count` batches."""
    moments = tf.TensorArray(tf.float64, size=count, element_shape=[num_moments])
    zeros = [tf.zeros_like(value) for value in values]

    def body(
        index: tf.Tensor,
        sums: list[tf.Tensor],
        state: list[tf.Tensor],
        moments: tf.TensorArray,
        loss: tf.Tensor,
    ) -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor], tf.TensorArray, tf.Tensor]:
        out = batch(state)
        sums = [total + part for total, part in zip(sums, out.gradients, strict=True)]
        noted = tf.stack(out.moments) if out.moments else tf.zeros([0], tf.float64)
        return index + 1, sums, out.state, moments.write(index, noted), loss + out.loss

    _, sums, state, moments, loss = tf.while_loop(
        lambda index, *_: index < count,
        body,
        (tf.constant(0), zeros, state, moments, tf.constant(0.0)),
        parallel_iterations=1,
    )
    return sums, state, moments.stack(), loss
