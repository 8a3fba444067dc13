"""Raw timings of an evaluation, and the figures that are derived from them.

Decides how long an evaluation took: from the first batch that a worker asked for to the last that
one has evaluated.  Everything is pure; times are seconds of one wall clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from ps_allreduce.record.steps import Floats, Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationTable:
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

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, each.name)) for each in fields(self)}
        if len(lengths) > 1:
            raise ValueError(f"columns of different lengths: {sorted(lengths)}")

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
        own = self.number == number
        return EvaluationTable(
            **{each.name: getattr(self, each.name)[own] for each in fields(self)}
        )

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


def joined(tables: Sequence[EvaluationTable]) -> EvaluationTable:
    """One table with the rows of several."""
    names = [each.name for each in fields(EvaluationTable)]
    return EvaluationTable(**{n: np.concatenate([getattr(t, n) for t in tables]) for n in names})


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
