"""One worker's step, traced in the same way for every strategy.

Decides when timestamps are taken and how a step's row is laid out.  A step begins with values on
the worker and ends when the next values are there.  A strategy supplies two functions: `values`
returns what the worker holds, `exchange` takes gradients and brings new values.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from ps_allreduce.backends.contract import Rows
from ps_allreduce.exchange.steps import Exchange, Values
from ps_allreduce.exchange.worker_local import HOST, LocalVariable, assign
from ps_allreduce.record.step_table import (
    EventKind,
    EventTable,
    Floats,
    Integers,
    Phase,
    StepTable,
    first_seen,
)
from ps_allreduce.workloads.inputs import WorkerIndex
from ps_allreduce.workloads.program import Program, now_after, run_program

#: Of a row of an evaluated batch: those of `record.evaluation_timings.EvaluationTable`.
EVALUATION_COLUMNS = 7

#: In the type of a row.
WORKER = LocalVariable("worker_index", tf.float64, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """How a step's moments are packed into one float64 vector.

    The first five are worker, loss, start, pulled, end; then three per batch, one per release, and
    for a traced step three per unit (pulled, gradient ready, pushed).  Where nobody sees into a
    step there are five, of which `pulled` is unknown.
    """

    accumulation: int
    groups: int

    @classmethod
    def of(cls, untraced: Rows, accumulation: int) -> RowLayout:
        """The layout of a run with such rows."""
        noted = int(untraced.shape[1]) - 5
        seen = accumulation if noted else 0
        return cls(accumulation=seen, groups=noted - 3 * seen)

    @staticmethod
    def ends(rows: Rows) -> tuple[Integers, Floats]:
        """Who made each step, and when it ended."""
        return rows[:, 0].astype(np.int64), rows[:, 4]

    def steps(self, rows: Rows, phase: Phase, first: Counter[int]) -> StepTable:
        """Unpack rows [n, ...]; `first` holds each worker's number of earlier steps."""
        workers = rows[:, 0].astype(np.int64)
        batches = rows[:, 5 : 5 + 3 * self.accumulation]
        return StepTable(
            worker=workers,
            step=_number_steps(workers, rows[:, 4], first),
            phase=np.full(len(rows), int(phase), np.int64),
            loss=rows[:, 1],
            start=self._starts(rows),
            pulled=rows[:, 3],
            end=rows[:, 4],
            batches=batches.reshape(len(rows), self.accumulation, 3),
            releases=rows[:, self._releases : self._releases + self.groups],
        )

    def events(self, rows: Rows, steps: StepTable) -> EventTable:
        """Unpack the per-tensor moments of traced rows [n, ...]; others have none."""
        times = rows[:, self._releases + self.groups :]
        times = times.reshape(len(rows), 3, times.shape[1] // 3)
        row, kind, unit = (axis.ravel() for axis in np.indices(times.shape))
        return EventTable(
            worker=steps.worker[row],
            step=steps.step[row],
            kind=np.asarray([int(k) for k in EventKind])[kind],
            tensor=unit,
            time=times.ravel(),
        )

    def _starts(self, rows: Rows) -> Floats:
        """When each step began; input needs no parameter and may have been there before."""
        inputs = [5 + 3 * batch for batch in range(self.accumulation)]
        return first_seen(rows[:, 2], np.delete(rows, [0, 1, 2, *inputs], axis=1))

    @property
    def _releases(self) -> int:
        return 5 + 3 * self.accumulation


def _number_steps(workers: np.ndarray, ends: np.ndarray, first: Counter[int]) -> np.ndarray:
    numbers = np.zeros(len(workers), np.int64)
    for worker in np.unique(workers):
        rows = np.flatnonzero(workers == worker)
        by_end = rows[np.argsort(ends[rows], kind="stable")]
        numbers[by_end] = first[int(worker)] + np.arange(len(rows))
    return numbers


def initialise_worker(program: Program, worker: WorkerIndex) -> tf.Tensor:
    """Create the resources of the worker that executes this."""
    index = tf.cast(worker, tf.int64)
    with tf.device(HOST):
        created = [assign(WORKER.handle(), tf.cast(index, tf.float64))]
    created += program.initialise(worker)
    with tf.control_dependencies(created):
        return tf.identity(index)


def trace_step(
    program: Program,
    values: Values,
    exchange: Exchange,
    *,
    events: bool,
    recorded: bool,
) -> tf.Tensor:
    """A step that observes itself and returns its row, or the bare step to compare it with."""
    if not recorded:
        out = run_program(program, values())
        with tf.control_dependencies(exchange(out.gradients, out.table_gradient).done):
            # TensorFlow may leave out a loss that is only waited for, and training yields one.
            return tf.identity(out.loss)
    pulled = values()
    # TensorFlow hands every operation that waits for nothing to a thread of its own.  So the first
    # clock waits for a value, which is on the worker already, and the worker's number for a clock.
    start = now_after(pulled[:1])
    out = run_program(program, pulled)
    pulled_at = now_after([start, *pulled, *out.arrived])
    exchanged = exchange(out.gradients, out.table_gradient)
    end = now_after(exchanged.done)
    with tf.device(HOST), tf.control_dependencies([start]):
        worker = WORKER.read(WORKER.handle())
    # One operation packs the row: each further operation would cost time in every step.
    row = [worker, tf.cast(out.loss, tf.float64), start, pulled_at, end]
    row += [*out.moments, *out.releases]
    if events:
        units = [*zip(exchanged.pulled, exchanged.units, exchanged.pushed, strict=True)]
        awaited = [[[moment] for moment in unit] for unit in units]
        if out.table_gradient is not None:  # the last unit
            awaited.append([out.arrived, [out.table_gradient.values], [*exchanged.rows]])
        row += [now_after(moments) for kind in zip(*awaited, strict=True) for moments in kind]
    with tf.device(HOST):  # where clocks are read
        return tf.stack(row)


def trace_evaluation(program: Program, values: Values, count: tf.Tensor) -> tf.Tensor:
    """Evaluate so many batches, one after the other; a row for each [count, 7]."""
    held = values()
    state = [variable.read(variable.handle()) for variable in program.state]
    iterators = [iterator.handle() for iterator in program.evaluation_iterators]
    with tf.device(HOST):
        worker = WORKER.read(WORKER.handle())
    rows = tf.TensorArray(tf.float64, size=count, element_shape=[EVALUATION_COLUMNS])

    def body(
        index: tf.Tensor, before: tf.Tensor, rows: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        with tf.control_dependencies([before]):
            out = program.evaluate(held, state, iterators)
        scores = [out.loss, out.accuracy, out.gradient_norm]
        end = now_after(scores)
        told = [tf.cast(each, tf.float64) for each in scores]
        row = tf.stack([worker, *told, before, out.input_ready, end])
        return index + 1, end, rows.write(index, row)

    _, _, rows = tf.while_loop(
        lambda index, *_: index < count,
        body,
        (tf.constant(0), tf.timestamp(), rows),
        parallel_iterations=1,
    )
    return rows.stack()


def checksum(value: tf.Tensor) -> tf.Tensor:
    """An exact sum over the bits of a float32 tensor; the order of elements does not matter."""
    return tf.reduce_sum(tf.cast(tf.bitcast(value, tf.int32), tf.int64))
