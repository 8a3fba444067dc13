"""One worker's step, traced in the same way for every strategy.

Decides when timestamps are taken and how a step's row is laid out.  A step begins with values that
are on the worker and ends when the next ones are there.  A strategy supplies a `Transport`: where
values are kept and where gradients go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import tensorflow as tf
from tensorflow.types.experimental import PolymorphicFunction

from ps_allreduce.backends.order import leave_unordered
from ps_allreduce.backends.protocol import Rows
from ps_allreduce.record.steps import EventKind, EventTable, StepTable
from ps_allreduce.workloads.program import Program, now_after, run_batches
from ps_allreduce.workloads.worker_local import HOST, LocalVariable, assign

WORKER = LocalVariable("worker_index", tf.int64, ())

Things = Sequence[tf.Tensor | tf.Operation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Gradients on their way, and the parameter values that they lead to.

    Attributes:
        units: what is sent, one per message.
        pushed: for each unit, something that is there once it was combined or acknowledged.
        pulled: for each unit, something that is there once its new value is on the worker.
        done: everything that the next step needs.
    """

    units: list[tf.Tensor]
    pushed: Things
    pulled: Things
    done: Things


class Transport(Protocol):
    """Where a strategy keeps values and how it combines gradients, traced into a step."""

    def values(self) -> list[tf.Tensor]:
        """The trainable variables, whole, in creation order, as the worker holds them."""

    def exchange(self, gradients: list[tf.Tensor]) -> Exchange:
        """Combine and apply the gradients, and bring the new values to the worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """How a step's moments are packed into one float64 vector.

    The first five are worker, loss, start, pulled, end; then three per batch, one per release, and
    for a traced step three per unit (pulled, gradient ready, pushed).
    """

    accumulation: int
    groups: int
    units: int = 0

    def steps(self, rows: Rows, phases: Sequence[int], first: dict[int, int]) -> StepTable:
        """Unpack rows [n, ...]; `first` holds each worker's number of earlier steps."""
        workers = rows[:, 0].astype(np.int64)
        batches = rows[:, 5 : 5 + 3 * self.accumulation]
        return StepTable(
            worker=workers,
            step=_number_steps(workers, rows[:, 4], first),
            phase=np.asarray(phases, np.int64),
            loss=rows[:, 1],
            start=rows[:, 2],
            pulled=rows[:, 3],
            end=rows[:, 4],
            batches=batches.reshape(len(rows), self.accumulation, 3),
            releases=rows[:, self._releases : self._releases + self.groups],
        )

    def events(self, rows: Rows, steps: StepTable) -> EventTable:
        """Unpack the per-tensor moments of traced rows [n, ...]."""
        times = rows[:, self._releases + self.groups :].reshape(len(rows), 3, self.units)
        row, kind, unit = (axis.ravel() for axis in np.indices(times.shape))
        return EventTable(
            worker=steps.worker[row],
            step=steps.step[row],
            kind=np.asarray([int(k) for k in EventKind])[kind],
            tensor=unit,
            time=times.ravel(),
        )

    @property
    def _releases(self) -> int:
        return 5 + 3 * self.accumulation


def _number_steps(workers: np.ndarray, ends: np.ndarray, first: dict[int, int]) -> np.ndarray:
    numbers = np.zeros(len(workers), np.int64)
    for worker in np.unique(workers):
        mine = np.flatnonzero(workers == worker)
        by_end = mine[np.argsort(ends[mine], kind="stable")]
        numbers[by_end] = first.get(int(worker), 0) + np.arange(len(mine))
    return numbers


def traced_function(function: Callable[..., tf.Tensor]) -> PolymorphicFunction:
    """A TensorFlow function of plain Python: rewriting it by AutoGraph would take a second."""
    leave_unordered()
    return tf.function(function, autograph=False)


def initialise_worker(program: Program, worker: tf.Tensor) -> tf.Tensor:
    """Create a worker's own resources on whichever worker executes this."""
    index = tf.cast(worker, tf.int64)
    with tf.device(HOST):
        created = [assign(WORKER.handle(), index)]
    created += program.initialise(index)
    with tf.control_dependencies(created):
        return tf.identity(index)


def trace_step(
    program: Program, transport: Transport, accumulation: int, *, events: bool, recorded: bool
) -> tf.Tensor:
    """A step that observes itself, or the bare one that it is compared with."""
    if recorded:
        return trace_recorded_step(program, transport, accumulation, events=events)
    return trace_bare_step(program, transport, accumulation)


def trace_recorded_step(
    program: Program, transport: Transport, accumulation: int, *, events: bool
) -> tf.Tensor:
    """A step that observes itself; returns its row."""
    start = tf.timestamp()
    values = transport.values()
    pulled_at = now_after(values)
    out = run_batches(program, values, accumulation)
    exchange = transport.exchange(out.gradients)
    end = now_after(exchange.done)
    with tf.device(HOST):
        worker = tf.cast(WORKER.read(WORKER.handle()), tf.float64)
    # One operation packs the row: every further one would be paid for in every step.
    row = [worker, tf.cast(out.loss, tf.float64), start, pulled_at, end]
    row += [*out.moments, *out.releases]
    if events:
        moments = [*exchange.pulled, *exchange.units, *exchange.pushed]
        row += [now_after([moment]) for moment in moments]
    with tf.device(HOST):  # where clocks are read
        return tf.stack(row)


def trace_bare_step(program: Program, transport: Transport, accumulation: int) -> tf.Tensor:
    """The same step without timestamps: what recording is compared with."""
    out = run_batches(program, transport.values(), accumulation)
    with tf.control_dependencies([*transport.exchange(out.gradients).done, out.loss]):
        return tf.constant(0)


def momentum_update(
    variable: tf.Tensor, slot: tf.Tensor, gradient: tf.Tensor, learning_rate: float, momentum: float
) -> tf.Operation:
    """Stochastic gradient descent with momentum, in one operation, the same for all strategies.

    `slot = momentum * slot + gradient; variable -= learning_rate * slot` on resource handles.  Both
    settings are constants: a learning-rate variable would be a hot spot on a server.
    """
    return tf.raw_ops.ResourceApplyMomentum(
        var=variable,
        accum=slot,
        lr=learning_rate,
        grad=gradient,
        momentum=momentum,
        use_locking=True,
    )


def checksum(value: tf.Tensor) -> tf.Tensor:
    """An exact, order-independent sum over the bits of a float32 tensor, where the tensor is."""
    return tf.reduce_sum(tf.cast(tf.bitcast(value, tf.int32), tf.int64))
