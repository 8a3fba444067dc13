"""What backends know of a workload, and gradient accumulation.

Decides the form in which a backend gets a worker's computation: a pure function from parameter
values to gradients, whose state stays on the worker.  Timestamps observe: nothing waits for one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.point.workload import Workload
from ps_allreduce.workloads.inputs import WorkerIndex, batch_structure, make_dataset
from ps_allreduce.workloads.keras_models import build_model
from ps_allreduce.workloads.own_dataset import DatasetExamples
from ps_allreduce.workloads.worker_local import LocalIterator, LocalVariable, assign


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutputs:
    """What one batch yields, or all batches between two synchronisations.

    Attributes:
        loss: scalar float32, mean over the examples.
        gradients: one per trainable variable, in creation order.
        state: new values of the worker's own state.
        moments: input ready, loss ready, last gradient ready; three float64 scalars for each batch.
        releases: when emulated gradients were released; a float64 scalar per group, or none.
    """

    loss: tf.Tensor
    gradients: list[tf.Tensor]
    state: list[tf.Tensor]
    moments: list[tf.Tensor]
    releases: list[tf.Tensor]


class Program(ABC):
    """One worker's computation.

    Attributes:
        accumulation: batches of a step.
        variables: all variables of the model in creation order, trainable or not.
        state: what stays on the worker between batches: batch-norm statistics, or gradients.
        iterators: the input, and the timer of an emulated accelerator.
        wants_integers: workers are initialised by their numbers and not by a tensor, because the
            user's function takes integers: the initialiser is traced for each of them.
    """

    state: tuple[LocalVariable, ...]

    def __init__(self, workload: Workload, num_workers: int, data_dir: Path) -> None:
        self.accumulation = workload.accumulation
        self._workload = workload
        self._num_workers = num_workers
        self._data_dir = data_dir
        self._model = build_model(workload, data_dir)
        self._examples = self._model.examples
        self.wants_integers = isinstance(self._examples, DatasetExamples)
        self.variables = self._model.variables
        self._structure = batch_structure(workload, self._examples)
        self.iterators: tuple[LocalIterator, ...]
        self.iterators = (LocalIterator("input", tf.nest.flatten(self._structure)),)

    def initial_values(self) -> list[npt.NDArray[np.float32]]:
        """Initial values of the trainable variables, equal for equal seeds."""
        return self._model.initial_values()

    def initialise(self, worker: WorkerIndex) -> list[tf.Operation]:
        """Create state and iterators on the worker that executes this."""
        dataset = make_dataset(
            self._workload, self._num_workers, worker, self._data_dir, self._examples
        )
        return [*self._create_state(), self.iterators[0].start(dataset)]

    @abstractmethod
    def _create_state(self) -> list[tf.Operation]:
        """Give the state its first values."""

    @abstractmethod
    def batch(
        self,
        values: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        iterators: Sequence[tf.Tensor],
    ) -> BatchOutputs:
        """Gradients of one batch; `iterators` are handles."""


def now_after(awaited: Sequence[tf.Tensor | tf.Operation]) -> tf.Tensor:
    """The wall clock, float64 seconds, once everything awaited is there."""
    with tf.control_dependencies(list(awaited)):
        return tf.timestamp()


def run_batches(program: Program, values: Sequence[tf.Tensor]) -> BatchOutputs:
    """Trace a step's batches on the same parameter values, and give their means and all moments.

    All but the last run in a loop that sums the gradients on the worker: nothing is communicated
    before the last batch.  The last is outside of the loop, so that communication can overlap with
    its backward pass.
    """
    handles = [variable.handle() for variable in program.state]
    iterators = [iterator.handle() for iterator in program.iterators]
    state = [variable.read(h) for variable, h in zip(program.state, handles, strict=True)]
    accumulation = program.accumulation
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
    return replace(last, loss=loss, gradients=gradients, moments=moments)


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
