"""Gradients of several batches between two exchanges.

All but the last run in a loop that sums the gradients on the worker: nothing is communicated before
the last batch.  The last is outside of the loop, so that communication can overlap with its
backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutputs:
    """What one batch yields, or all batches between two exchanges.

    Attributes:
        loss: scalar float32, mean over the examples.
        gradients: one per trainable variable, in creation order; with sparse embeddings those of
            tables are left out.
        table_gradient: of the rows that were looked up, each once; None without sparse embeddings.
        arrived: rows that were fetched to compute with, by the last batch.
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
    sums, state, earlier, loss_sum, rows = _accumulate(batch, values, state, count - 1, num_moments)
    last = batch(state)
    return replace(
        last,
        loss=(loss_sum + last.loss) / count,
        gradients=[
            (part + final) / count for part, final in zip(sums, last.gradients, strict=True)
        ],
        moments=[*tf.unstack(tf.reshape(earlier, [num_moments * (count - 1)])), *last.moments],
        table_gradient=last.table_gradient and _mean(rows, last.table_gradient, count),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """Gradients of rows of several batches, of a different number each."""

    numbers: tf.TensorArray
    values: tf.TensorArray

    @classmethod
    def none_yet(cls, count: int) -> _Rows:
        return cls(
            *(tf.TensorArray(dtype, count, infer_shape=False) for dtype in (tf.int64, tf.float32))
        )

    def with_those_of(self, index: tf.Tensor, gradient: tf.IndexedSlices | None) -> _Rows:
        if gradient is None:
            return self
        return _Rows(
            self.numbers.write(index, gradient.indices), self.values.write(index, gradient.values)
        )


def _mean(earlier: _Rows, last: tf.IndexedSlices, count: int) -> tf.IndexedSlices:
    """Every row once.

    Not by `lookups.summed`, with which workers add up: this is what the gate compares them with.
    """
    indices = tf.concat([earlier.numbers.concat(), last.indices], 0)
    values = tf.concat([earlier.values.concat(), last.values], 0)
    numbers, places = tf.unique(indices)
    shape = [tf.size(numbers), last.values.shape[1]]
    sums = tf.scatter_nd(places[:, tf.newaxis], values, shape)
    return tf.IndexedSlices(sums / count, numbers)


def _accumulate(
    batch: Batch,
    values: Sequence[tf.Tensor],
    state: list[tf.Tensor],
    count: int,
    num_moments: int,
) -> tuple[list[tf.Tensor], list[tf.Tensor], tf.Tensor, tf.Tensor, _Rows]:
    """Sum of gradients, last state, moments [count, n], sum of losses, rows of `count` batches."""
    moments = tf.TensorArray(tf.float64, size=count, element_shape=[num_moments])
    zeros = [tf.zeros_like(value) for value in values]

    def body(
        index: tf.Tensor,
        sums: list[tf.Tensor],
        state: list[tf.Tensor],
        moments: tf.TensorArray,
        loss: tf.Tensor,
        rows: tuple[tf.TensorArray, tf.TensorArray],
    ) -> tuple[Any, ...]:
        out = batch(state)
        sums = [total + part for total, part in zip(sums, out.gradients, strict=True)]
        noted = tf.stack(out.moments) if out.moments else tf.zeros([0], tf.float64)
        kept = _Rows(*rows).with_those_of(index, out.table_gradient)
        moments, loss = moments.write(index, noted), loss + out.loss
        return index + 1, sums, out.state, moments, loss, (kept.numbers, kept.values)

    none = _Rows.none_yet(count)
    _, sums, state, moments, loss, rows = tf.while_loop(
        lambda index, *_: index < count,
        body,
        (tf.constant(0), zeros, state, moments, tf.constant(0.0), (none.numbers, none.values)),
        parallel_iterations=1,
    )
    return sums, state, moments.stack(), loss, _Rows(*rows)
