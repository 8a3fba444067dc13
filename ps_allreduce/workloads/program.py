"""What backends know of a workload, and gradient accumulation.

Decides the form in which a backend gets a worker's computation: a pure function from parameter
values to gradients, whose state stays on the worker.  Timestamps observe: nothing waits for one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.exchange.batches import BatchOutputs, run_batches
from ps_allreduce.exchange.lookups import Fetch, TableLookups
from ps_allreduce.exchange.stacking import Stack
from ps_allreduce.exchange.worker_local import LocalIterator, LocalVariable, assign
from ps_allreduce.point.measurement import Evaluation
from ps_allreduce.point.placement import VariableSpec, without_tables
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.variables import RowsAsked
from ps_allreduce.workloads.inputs import WorkerIndex, batch_structure, make_dataset
from ps_allreduce.workloads.keras_models import build_model
from ps_allreduce.workloads.own_dataset import DatasetExamples

#: Input ready, loss ready, last gradient ready.
MOMENTS_PER_BATCH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedBatch:
    """What one batch of an evaluation yields.

    Attributes:
        loss, accuracy, gradient_norm: scalars; the last two are not a number where there is none.
        input_ready: when its input was there, float64.
    """

    loss: tf.Tensor
    accuracy: tf.Tensor
    gradient_norm: tf.Tensor
    input_ready: tf.Tensor


class Program(ABC):
    """One worker's computation.

    Attributes:
        accumulation: batches of a step.
        variables: all variables of the model in creation order, trainable or not.
        state: what stays on the worker between batches: batch-norm statistics, or gradients.
        iterators: the input, and the timer of an emulated accelerator.
        sparse: variables whose gradient was sparse when a step was traced, by their path, and how
            many rows a step looks up; None where the graph does not tell.
        wants_integers: workers are initialised by their numbers and not by a tensor, because the
            user's function takes integers: the initialiser is traced for each of them.
    """

    state: tuple[LocalVariable, ...]

    def __init__(
        self,
        workload: Workload,
        num_workers: int,
        data_dir: Path,
        evaluation: Evaluation | None = None,
    ) -> None:
        """Build the model; `evaluation` is what comes after training."""
        self._evaluation = evaluation
        self.accumulation = workload.accumulation
        self._workload = workload
        self._num_workers = num_workers
        self._data_dir = data_dir
        self._model = build_model(workload, data_dir)
        self._examples = self._model.examples
        self.wants_integers = isinstance(self._examples, DatasetExamples)
        self.variables = self._model.variables
        self.sparse: dict[str, tuple[keras.Variable, int | None]] = {}
        self._structure = batch_structure(workload, self._examples)
        self.iterators: tuple[LocalIterator, ...]
        self.iterators = (LocalIterator("input", tf.nest.flatten(self._structure)),)
        #: Of the evaluation, in the same order.
        self.evaluation_iterators: tuple[LocalIterator, ...]
        self.evaluation_iterators = (
            LocalIterator("evaluation/input", tf.nest.flatten(self._structure)),
        )

    #: What is looked up in tables, where only that is exchanged of them.
    lookups: TableLookups | None = None

    def look_up_in(self, stack: Stack, fetch: Fetch) -> None:
        """Say where rows are and who brings them, before a step is traced."""
        self._stack, self._fetch = stack, fetch

    def rows_asked(self, num_servers: int) -> RowsAsked | None:
        """What the workers look up in a step; None where tables are exchanged whole."""
        return None

    def table_values(self) -> list[npt.NDArray[np.float32]]:
        """Initial values of the tables that rows are looked up in, all equally wide."""
        if self.lookups is None:
            return []
        _, tables = self.lookups.apart(self._model.pure.values())
        return self.lookups.filled_up(tables)

    def in_order(
        self, values: Sequence[npt.NDArray[np.float32]], tables: Sequence[npt.NDArray[np.float32]]
    ) -> list[npt.NDArray[np.float32]]:
        """All trainable variables in creation order, from those that are exchanged whole."""
        if self.lookups is None:
            return list(values)
        return self.lookups.merged(values, self.lookups.cut(tables))

    def exchanged_whole(self) -> tuple[VariableSpec, ...]:
        """All variables, of which tables that rows are looked up in are not exchanged."""
        return self.variables if self.lookups is None else tuple(without_tables(self.variables))

    def initial_values(self) -> list[npt.NDArray[np.float32]]:
        """Of the trainable variables that are exchanged whole, equal for equal seeds."""
        pure = self._model.pure if self.lookups is None else self.lookups.dense
        return pure.values()

    def initialise(self, worker: WorkerIndex) -> list[tf.Operation]:
        """Create state and iterators on the worker that executes this."""
        dataset = make_dataset(
            self._workload, self._num_workers, worker, self._data_dir, self._examples
        )
        created = [*self._create_state(), self.iterators[0].start(dataset)]
        if self._evaluation is not None:
            created += self._initialise_evaluation(worker, self._evaluation)
        return created

    def _initialise_evaluation(
        self, worker: WorkerIndex, evaluation: Evaluation
    ) -> list[tf.Operation]:
        """Create the iterators of the evaluation; a worker that takes no part has some as well.

        The first batch comes twice: once it does not count.  No image is mirrored.  Where a module
        holds examples out, these are evaluated, and every evaluation takes the same.
        """
        evaluators = evaluation.evaluators(self._num_workers)
        last = evaluators - 1
        shard = min(worker, last) if isinstance(worker, int) else tf.minimum(worker, last)
        plain = replace(self._workload.pipeline, flips=False)
        examples, share = self._examples, None
        if isinstance(examples, DatasetExamples) and examples.validation is not None:
            assert isinstance(shard, int)
            examples, share = examples.held_out(), evaluation.shares(self._num_workers)[shard]
        dataset = make_dataset(
            replace(self._workload, accumulation=1, dealt_to=None, pipeline=plain),
            evaluators,
            shard,
            self._data_dir,
            examples,
        )
        if share is not None:
            dataset = dataset.take(share).cache().repeat()
        return [self.evaluation_iterators[0].start(dataset.take(1).concatenate(dataset))]

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
        """Gradients of one batch; `iterators` are handles.

        Its moments are input ready, loss ready and last gradient ready; its releases are when
        emulated gradients were released, by group.
        """

    @abstractmethod
    def evaluate(
        self,
        values: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        iterators: Sequence[tf.Tensor],
    ) -> EvaluatedBatch:
        """One batch, as in inference.

        Args:
            iterators: handles of `evaluation_iterators`.
        """


def now_after(awaited: Sequence[tf.Tensor | tf.Operation]) -> tf.Tensor:
    """The wall clock, float64 seconds, once everything awaited is there."""
    with tf.control_dependencies(list(awaited)):
        return tf.timestamp()


def run_program(program: Program, values: Sequence[tf.Tensor]) -> BatchOutputs:
    """Trace a step's batches on the same parameter values, and give their means and all moments."""
    handles = [variable.handle() for variable in program.state]
    iterators = [iterator.handle() for iterator in program.iterators]
    state = [variable.read(h) for variable, h in zip(program.state, handles, strict=True)]
    out = run_batches(
        lambda state: program.batch(values, state, iterators),
        values,
        state,
        program.accumulation,
        MOMENTS_PER_BATCH,
    )
    kept = [assign(handle, value) for handle, value in zip(handles, out.state, strict=True)]
    # A step that was begun ahead reads the state once this one has told its loss.
    with tf.control_dependencies(kept):
        return replace(out, loss=tf.identity(out.loss))
