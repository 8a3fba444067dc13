"""Strategies without servers: a worker that keeps its own copy of everything.

Decides how such a worker is driven and measured, alone or inside MultiWorkerMirroredStrategy, and
how gradients are handed to TensorFlow's collectives.  If the experiment states bytes per pack,
TensorFlow packs them itself.  Without, gradients go through RING in buckets, several of them under
way at once (decision 0010).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.backends.contract import (
    COMPUTE,
    ProgramBackend,
    Rows,
    Task,
    recorded_buckets,
    scheduled_rule,
)
from ps_allreduce.backends.worker_step import (
    EVALUATION_COLUMNS,
    checksum,
    initialise_worker,
    trace_evaluation,
    trace_step,
)
from ps_allreduce.exchange.own_tables import GatheredMeans, OwnTables
from ps_allreduce.exchange.replica import Alone, Mirrored, PackedMeans, Replica, RingMeans
from ps_allreduce.exchange.stacking import Stack
from ps_allreduce.exchange.steps import Exchanged, traced_function
from ps_allreduce.exchange.updates import UpdateRule
from ps_allreduce.point.strategies import AllReduce
from ps_allreduce.record.variables import MessageRecord
from ps_allreduce.workloads.program import Program


class LocalWorker(ProgramBackend):
    """Drives one worker's steps in this process; as it is, it is the strategy `single`."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._workers: Alone | Mirrored = Alone(COMPUTE[task.experiment.resources.device])

    def connect(self) -> None:
        """Nothing to connect to."""

    def build(self, program: Program) -> None:
        """Create variables, their slots and the worker's own resources."""
        rule = scheduled_rule(self._experiment, averaged=self._experiment.strategy.synchronous)
        self._replica = Replica(program.initial_values(), rule, self._workers.make_variable)
        self._tables = self._make_tables(program, rule)
        self._worker = 0 if self._task.tf_config is None else self._task.tf_config.task.index
        place = self._workers.place
        # In the scope of the step, which looks for the resources there.
        traced_function(place(lambda: initialise_worker(program, self._worker)))()

        def step(events: bool, recorded: bool) -> tf.Tensor:
            self.traces += 1
            values = self._replica.values
            return trace_step(program, values, self.exchange, events=events, recorded=recorded)

        def evaluate(count: tf.Tensor) -> tf.Tensor:
            return trace_evaluation(program, self._replica.values, count)

        self._step = traced_function(place(step))
        self._evaluate = traced_function(place(evaluate))

    def _make_tables(self, program: Program, rule: UpdateRule) -> OwnTables | None:
        """The worker's own copy of tables that rows are looked up in."""
        if program.lookups is None:
            return None
        stack = Stack(rows=program.lookups.rows)
        tables = OwnTables(stack, program.table_values(), rule, self._workers.make_variable)
        program.look_up_in(stack, tables.fetch)
        return tables

    def exchange(
        self, gradients: list[tf.Tensor], table_gradient: tf.IndexedSlices | None = None
    ) -> Exchanged:
        """Apply the gradients to this worker's own copy."""
        return self._with_tables(self.apply(gradients, gradients, gradients), table_gradient)

    def _with_tables(self, exchanged: Exchanged, gradient: tf.IndexedSlices | None) -> Exchanged:
        """Apply a gradient of rows, each once, as well."""
        if self._tables is None or gradient is None:
            return exchanged
        return exchanged.also([self._tables.apply(gradient)])

    def apply(
        self, units: list[tf.Tensor], ready: list[tf.Tensor], gradients: list[tf.Tensor]
    ) -> Exchanged:
        """Apply gradients that the workers have combined, one per trainable variable.

        Args:
            units: what was sent, one per message.
            ready: for each unit, what came back.
        """
        done = self._replica.apply(gradients)
        return Exchanged(units=units, pushed=ready, pulled=ready, done=done)

    def make(
        self, num_steps: int, *, events: bool = False, recorded: bool = True
    ) -> list[tf.Tensor]:
        """Make steps one after the other."""
        return [self._step(events, recorded) for _ in range(num_steps)]

    def fetch(self, made: Sequence[tf.Tensor]) -> Rows:
        """Rows are in this process already."""
        return np.stack([row.numpy() for row in made])

    def evaluate_batches(self, shares: Sequence[int]) -> Rows:
        """Evaluate this worker's share."""
        share = shares[self._worker]
        if not share:
            return np.zeros((0, EVALUATION_COLUMNS))
        return np.asarray(self._evaluate(tf.constant(share)).numpy())

    def agree(self, value: float) -> float:
        """The largest of all workers' values."""
        return self._workers.largest(value)

    def weight_checksums(self) -> list[int]:
        """One exact sum per variable."""
        tables = [] if self._tables is None else [self._tables.variable]
        variables = [*self._replica.variables, *tables]
        return [int(checksum(variable.read_value())) for variable in variables]

    def read_weights(self) -> list[npt.NDArray[np.float32]]:
        """This worker's copy."""
        tables = [] if self._tables is None else self._tables.read()
        return self._in_order(self._replica.read(), tables)


class MirroredWorker(LocalWorker):
    """A worker inside MultiWorkerMirroredStrategy; one device per worker process.

    As it is, it is the strategy `no_communication`: the all-reduce step without the all-reduce.
    The workers form a cluster only to start the timed loop together.
    """

    #: How TensorFlow packs what its collectives combine; None where they combine nothing.
    _options: Any = None

    def connect(self) -> None:
        """Return once the strategy has seen all workers."""
        assert self._task.tf_config is not None
        os.environ["TF_CONFIG"] = self._task.tf_config.render()
        self._workers = Mirrored(self._options)


class AllReduceBackend(MirroredWorker):
    """Averages gradients by TensorFlow's collectives."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        strategy = task.experiment.strategy
        assert isinstance(strategy, AllReduce)
        #: How gradients travel in buckets; None for TensorFlow's packs.
        self._wire = strategy.wire
        if strategy.packed_bytes is not None:
            packs = PackedMeans(strategy.packed_bytes, strategy.collective)
            self._means: PackedMeans | RingMeans = packs
            self._options = packs.options

    def build(self, program: Program) -> None:
        """Decide which gradients travel together."""
        super().build(program)
        if self._wire is not None:
            shapes = [tuple(variable.shape) for variable in self._replica.variables]
            messages = self._wire.messages
            self._means = RingMeans(shapes, messages, self._experiment.num_workers)
        if program.lookups is not None:
            self._rows = GatheredMeans(self._experiment.num_workers, program.lookups.width)

    def exchange(
        self, gradients: list[tf.Tensor], table_gradient: tf.IndexedSlices | None = None
    ) -> Exchanged:
        """Apply the mean over all workers."""
        combined = self._means.combine(gradients)
        applied = self.apply(combined.units, combined.ready, combined.gradients)
        mean = table_gradient and self._rows.combine(table_gradient)
        return self._with_tables(applied, mean)

    def messages(self) -> list[MessageRecord]:
        """One per bucket; with TensorFlow's packs one per variable, as before packing."""
        if isinstance(self._means, PackedMeans):
            return self.message_per_variable()
        names = [spec.name for spec in self._whole if spec.trainable]
        return recorded_buckets(self._means.buckets, names)
