"""Raw timings of evaluations, their figures, and the curve of a training that learns.

Decides how long an evaluation took: from the first batch that a worker asked for to the last that
one has evaluated.  Of a training that learns, decides its clock, which stands still while a run
evaluates, when a target was reached between two evaluations, and what staleness is.  Everything is
pure; times are seconds of one wall clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import Learning
from ps_allreduce.point.strategies import AsynchronousServers
from ps_allreduce.record.step_table import Floats, Integers, StepTable, TimingTable


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationTable(TimingTable):
    """Every batch that was evaluated, in no particular order; n rows.

    Attributes:
        number: of the evaluation, from 0 [n].
        worker: integers [n].
        loss: mean over the examples of the batch [n].
        accuracy: share of the targets that the model tells; not a number where targets are no
            classes [n].
        gradient_norm: of the loss, over all trainable variables; not a number where the evaluation
            does not ask for it [n].
        begin: the batch before was evaluated, or the first one was asked for [n].
        input: the examples and the parameters were on the worker [n].
        end: the loss was there [n].
    """

    number: Integers
    worker: Integers
    loss: Floats
    accuracy: Floats
    gradient_norm: Floats
    begin: Floats
    input: Floats
    end: Floats

    def __len__(self) -> int:
        return len(self.worker)

    @classmethod
    def empty(cls) -> EvaluationTable:
        """Nothing was evaluated."""
        return cls.of_rows(np.zeros((0, 7)))

    @classmethod
    def of_rows(cls, rows: Floats, number: int = 0) -> EvaluationTable:
        """Rows [n, 7] of one evaluation, in the order of the columns above."""
        worker, loss, accuracy, norm, begin, ready, end = rows.T
        return cls(
            number=np.full(len(rows), number, np.int64),
            worker=worker.astype(np.int64),
            loss=loss,
            accuracy=accuracy,
            gradient_norm=norm,
            begin=begin,
            input=ready,
            end=end,
        )

    def of(self, number: int) -> EvaluationTable:
        """The rows of one evaluation."""
        return self.select(self.number == number)

    def means(self) -> tuple[float, float, float]:
        """Loss, accuracy and norm of the gradient over all batches."""
        return (
            float(self.loss.mean()),
            float(self.accuracy.mean()),
            float(self.gradient_norm.mean()),
        )

    def shifted(self, offsets: Sequence[float]) -> EvaluationTable:
        """All moments on one clock; worker i's clock is `offsets[i]` seconds ahead of it."""
        ahead = np.asarray(offsets)[self.worker] if len(self) else 0.0
        return replace(
            self, begin=self.begin - ahead, input=self.input - ahead, end=self.end - ahead
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationTimes:
    """Figures of an evaluation.

    Attributes:
        seconds: from the first batch that was asked for to the last that was evaluated.
        examples_per_sec: of all batches, over these seconds.
        input_wait_s: waiting for a batch and for parameters, mean of all batches.
        loss: mean of all batches.
        batches_per_worker: of each worker, by its number.
    """

    seconds: float
    examples_per_sec: float
    input_wait_s: float
    loss: float
    batches_per_worker: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("seconds", "examples_per_sec", "input_wait_s", "loss"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} of the evaluation must be a number")
        if not (self.seconds > 0 and self.examples_per_sec > 0):
            raise ValueError(f"an evaluation takes time, got {self.seconds} s")


def evaluation_times(
    table: EvaluationTable, examples_per_batch: int, num_workers: int
) -> EvaluationTimes:
    """Derive the figures of an evaluation.

    Raises:
        ValueError: nothing was evaluated, or a loss is not finite.
    """
    if not len(table):
        raise ValueError("no batch was evaluated")
    seconds = float(table.end.max() - table.begin.min())
    return EvaluationTimes(
        seconds=seconds,
        examples_per_sec=len(table) * examples_per_batch / seconds,
        input_wait_s=float((table.input - table.begin).mean()),
        loss=float(table.loss.mean()),
        batches_per_worker=tuple(
            int((table.worker == worker).sum()) for worker in range(num_workers)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningCurve:
    """The curve of a run: what was known after each evaluation.

    Attributes:
        examples: that all workers had trained on.
        seconds: of training, without evaluations; 0 at the first evaluation, before which every
            worker makes a step.
        loss, accuracy: of the held-out examples; accuracies are left out where there are none.
        gradient_norm: of a batch of them, the mean over all; empty where nobody asked for it.
        target_s, target_examples: at which the target was reached, between two evaluations by the
            straight line between them; None where it was not.
        staleness: how many updates found 0, 1, 2 ... updates of others between the values that
            their gradient was computed from and themselves; empty where all workers meet.
    """

    examples: tuple[int, ...]
    seconds: tuple[float, ...]
    loss: tuple[float, ...]
    accuracy: tuple[float, ...] = ()
    gradient_norm: tuple[float, ...] = ()
    target_s: float | None = None
    target_examples: float | None = None
    staleness: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretches:
    """Steps between evaluations.

    Attributes:
        number: after how many evaluations each step was made [n].
        begins, ends: of the first step and of the last one of each, of any worker [k].
    """

    number: Integers
    begins: Floats
    ends: Floats

    @classmethod
    def of(cls, steps: StepTable, evaluated: EvaluationTable) -> _Stretches:
        """Nobody makes steps while one worker evaluates for all."""
        rows = [evaluated.number == number for number in np.unique(evaluated.number)]
        middles = [(evaluated.begin[own].min() + evaluated.end[own].max()) / 2 for own in rows]
        number = np.searchsorted(middles, steps.end)
        own = [number == each for each in range(len(rows))]
        return cls(
            number=np.asarray(number, np.int64),
            begins=np.asarray([steps.start[each].min() for each in own]),
            ends=np.asarray([steps.end[each].max() for each in own]),
        )

    @property
    def seconds(self) -> Floats:
        """The clock of training at the end of each; 0 at that of the first one [k]."""
        return np.asarray(np.cumsum(self.ends - self.begins) - (self.ends[0] - self.begins[0]))

    @property
    def ahead(self) -> Floats:
        """By how much the wall clock is ahead of that of training, at each step [n]."""
        return np.asarray((self.ends - self.seconds)[self.number])


def learned(
    experiment: Experiment, learning: Learning, steps: StepTable, evaluated: EvaluationTable
) -> tuple[StepTable, LearningCurve]:
    """The steps of a run on the clock of training, and its curve.

    Evaluations that are not finite, with which a run ends, are left out of the curve.

    Raises:
        ValueError: nothing was evaluated.
    """
    if not len(evaluated):
        raise ValueError("nothing was evaluated")
    stretches = _Stretches.of(steps, evaluated)
    made = np.cumsum(np.bincount(stretches.number, minlength=len(stretches.ends)))
    examples = made * experiment.of_each.examples_per_step
    scores = [evaluated.of(number).means() for number in range(len(stretches.ends))]
    loss, accuracy, norm = np.asarray(scores).T
    kept = np.isfinite(loss)
    at = reached(learning, loss[kept], accuracy[kept])
    curve = LearningCurve(
        examples=tuple(examples[kept].tolist()),
        seconds=tuple(stretches.seconds[kept].tolist()),
        loss=tuple(loss[kept].tolist()),
        accuracy=_known(accuracy[kept]),
        gradient_norm=_known(norm[kept]),
        target_s=between(stretches.seconds[kept], at),
        target_examples=between(examples[kept], at),
        staleness=_counts(experiment, steps),
    )
    return steps.on_clock(stretches.ahead), curve


def _known(values: Floats) -> tuple[float, ...]:
    """Nothing where one is not known."""
    return tuple(values.tolist()) if np.isfinite(values).all() else ()


def between(values: Sequence[float] | Floats, at: float | None) -> float | None:
    """The value at a place between two; None where there is no place."""
    return None if at is None else float(np.interp(at, np.arange(len(values)), values))


def _counts(experiment: Experiment, steps: StepTable) -> tuple[int, ...]:
    strategy = experiment.strategy
    if strategy.synchronous or not strategy.uses_servers:
        return ()
    at_first = strategy.synchronous_steps if isinstance(strategy, AsynchronousServers) else 0
    met = steps.step < at_first
    stale = np.zeros(len(steps), np.int64)
    stale[~met] = staleness_of(steps.select(~met))
    return tuple(np.bincount(stale).tolist())


def reached(learning: Learning, loss: Floats, accuracy: Floats) -> float | None:
    """At which evaluation the target was reached, as a number between two; None for never.

    The first evaluation that reaches it counts, and the straight line from the one before.
    """
    is_there = [learning.reaches(*scores) for scores in zip(loss, accuracy, strict=True)]
    values = loss if learning.target_loss is not None else accuracy
    target = learning.target_loss if learning.target_loss is not None else learning.target_accuracy
    return None if target is None else place_of(target, values, is_there)


def place_of(target: float, values: Sequence[float] | Floats, is_there: list[bool]) -> float | None:
    """Where values meet a target first, as a number between two of them; None for never.

    Args:
        is_there: whether each value reaches the target; the first that does counts.
    """
    if not any(is_there):
        return None
    number = is_there.index(True)
    if number == 0:
        return 0.0
    before, after = values[number - 1], values[number]
    return float(number - 1 + (target - before) / (after - before))


def staleness_of(steps: StepTable) -> Integers:
    """Updates of others between a worker's values and its own update, of each step [n].

    A worker's step ends when its update is applied and the new values are there.  So these are the
    steps of others that end between the ends of two of its own.  Updates that a server applies in
    another order than their values arrive are off by one, and the mean is right all the same.
    """
    order = np.argsort(steps.end, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    between = np.empty(len(order), np.int64)
    for worker in np.unique(steps.worker):
        own = order[steps.worker[order] == worker]
        between[own] = np.diff(place[own], prepend=-1) - 1
    return between
