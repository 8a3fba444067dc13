"""The protocol between workloads and backends, and gradient accumulation.

Decides in which form a worker's computation is handed to a backend: a pure function from parameter
values to gradients, with its own state kept on the worker.  Timestamps observe: nothing waits for
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.workloads.worker_local import LocalIterator, LocalVariable, assign


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutputs:
    """What one batch yields.

    Attributes:
        loss: scalar float32, mean over the batch.
        gradients: one per trainable variable, in creation order.
        state: new values of the worker's own state.
        moments: input ready, loss ready, last gradient ready; three float64 scalars.
        releases: when emulated gradients were released; a float64 scalar per group, or none.
    """

    loss: tf.Tensor
    gradients: list[tf.Tensor]
    state: list[tf.Tensor]
    moments: list[tf.Tensor]
    releases: list[tf.Tensor]


class Program(Protocol):
    """One worker's computation."""

    @property
    def variables(self) -> tuple[VariableSpec, ...]:
        """All variables of the model in creation order, trainable or not."""

    @property
    def state(self) -> tuple[LocalVariable, ...]:
        """What stays on the worker between batches: batch-norm statistics, seeds."""

    @property
    def iterators(self) -> tuple[LocalIterator, ...]:
        """Inputs, and the timers of an emulated accelerator."""

    def initial_values(self) -> list[npt.NDArray[np.float32]]:
        """Initial values of the trainable variables, equal for equal seeds."""

    def initialise(self, worker: tf.Tensor) -> list[tf.Operation]:
        """Create state and iterators on the worker that executes this."""

    def batch(
        self,
        values: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        iterators: Sequence[tf.Tensor],
    ) -> BatchOutputs:
        """Gradients of one batch; `iterators` are handles."""


def now_after(things: Sequence[tf.Tensor | tf.Operation]) -> tf.Tensor:
    """The wall clock, float64 seconds, once all things are there; nothing depends on it."""
    with tf.control_dependencies(list(things)):
        return tf.timestamp()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutputs:
    """What all batches between two synchronisations yield.

    Attributes:
        loss, gradients: means over the batches.
        moments: three float64 scalars for each batch, batch after batch.
        releases: of the last batch.
    """

    loss: tf.Tensor
    gradients: list[tf.Tensor]
    moments: list[tf.Tensor]
    releases: list[tf.Tensor]


def run_batches(program: Program, values: Sequence[tf.Tensor], accumulation: int) -> StepOutputs:
    """Trace `accumulation` batches on the same parameter values.

    All but the last run in a loop that keeps the sum of the gradients on the worker, so nothing is
    communicated before the last; the last stands outside of it, so that communication can overlap
    with its backward pass.
    """
    handles = [variable.handle() for variable in program.state]
    iterators = [iterator.handle() for iterator in program.iterators]
    state = [variable.read(h) for variable, h in zip(program.state, handles, strict=True)]
    if accumulation == 1:
        last = program.batch(values, state, iterators)
        moments, loss, gradients = last.moments, last.loss, last.gradients
    else:
        sums, state, earlier, loss_sum = _accumulate(
            program, values, state, iterators, accumulation - 1
        )
        last = program.batch(values, state, iterators)
        moments = [*tf.unstack(tf.reshape(earlier, [3 * (accumulation - 1)])), *last.moments]
        loss = (loss_sum + last.loss) / accumulation
        gradients = [
            (part + final) / accumulation for part, final in zip(sums, last.gradients, strict=True)
        ]
    for handle, value in zip(handles, last.state, strict=True):
        assign(handle, value)
    return StepOutputs(loss=loss, gradients=gradients, moments=moments, releases=last.releases)


def _accumulate(
    program: Program,
    values: Sequence[tf.Tensor],
    state: list[tf.Tensor],
    iterators: Sequence[tf.Tensor],
    count: int,
) -> tuple[list[tf.Tensor], list[tf.Tensor], tf.Tensor, tf.Tensor]:
    """Sum of gradients, last state, moments [count, 3] and sum of losses of `count` batches."""
    moments = tf.TensorArray(tf.float64, size=count, element_shape=[3])
    zeros = [tf.zeros_like(value) for value in values]

    def body(
        index: tf.Tensor,
        sums: list[tf.Tensor],
        state: list[tf.Tensor],
        moments: tf.TensorArray,
        loss: tf.Tensor,
    ) -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor], tf.TensorArray, tf.Tensor]:
        out = program.batch(values, state, iterators)
        sums = [total + part for total, part in zip(sums, out.gradients, strict=True)]
        return (
            index + 1,
            sums,
            out.state,
            moments.write(index, tf.stack(out.moments)),
            loss + out.loss,
        )

    _, sums, state, moments, loss = tf.while_loop(
        lambda index, *_: index < count,
        body,
        (tf.constant(0), zeros, state, moments, tf.constant(0.0)),
        parallel_iterations=1,
    )
    return sums, state, moments.stack(), loss
