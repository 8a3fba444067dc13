"""What a run measures: throughput in a window, learning, or what recording its steps costs.

Decides when a warm-up is over and how many steps it takes next, which worker evaluates how many
batches, and when a training that learns is over.  Whether step times are steady is decided in
`runner.loop`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar

from ps_allreduce.errors import UserError, at_least, at_most, whole
from ps_allreduce.serialization import LATER, Columns, column


class EvaluationMode(StrEnum):
    """Who evaluates: the first worker, or all of them."""

    SEQUENTIAL = "sequential"
    DISTRIBUTED = "distributed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(Columns):
    """An evaluation after the measured steps, timed apart from them.

    Attributes:
        batches: of all workers together, each as large as a worker's batch of training.
        mode: who takes them.
        gradient_norm: the backward pass is made too.
    """

    batches: int = field(metadata=column("evaluation_batches"))
    mode: EvaluationMode = field(default=EvaluationMode.DISTRIBUTED, metadata=column("evaluation"))
    gradient_norm: bool = field(default=False, metadata={**LATER, **column(None)})

    def __post_init__(self) -> None:
        whole(evaluation_batches=self.batches)
        at_least(1, evaluation_batches=self.batches)
        at_most(1e9, evaluation_batches=self.batches)

    def evaluators(self, num_workers: int) -> int:
        """How many of so many workers take part: the first ones."""
        return 1 if self.mode is EvaluationMode.SEQUENTIAL else min(num_workers, self.batches)

    def shares(self, num_workers: int) -> tuple[int, ...]:
        """Batches of each of so many workers; they differ by one at most among those with any."""
        taking = self.evaluators(num_workers)
        least, more = divmod(self.batches, taking)
        return tuple(
            least + (worker < more) if worker < taking else 0 for worker in range(num_workers)
        )


#: Longer than anybody waits, and finite.
MOST_WARMUP_S = 1e10

#: Steps after the last agreement of the tasks that still count as warm-up, because agreeing empties
#: pipelines.
SETTLING_STEPS = 3

#: What a steady warm-up is expected to take where steps are short.
LIKELY_STEADY_S = 2.0

#: TensorFlow takes every operation of a new function for a long one, and hands it to another
#: thread, until it has timed it about ninety times (`KernelStats` in
#: tensorflow/core/common_runtime/executor.cc).  Until then steps are slower.
SETTLED_STEPS = 100

#: No longer than this is waited for that.
SETTLED_S = 2.0

#: Steps from this length on lose less than a per cent by it, and do not wait for it.
LONG_STEP_S = 0.03


class WarmupEnd(StrEnum):
    """Why a warm-up was over."""

    FIXED = "fixed"
    STEADY = "steady"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup(Columns):
    """A warm-up of every worker, of so many steps and seconds at least; both must be reached."""

    kind_column: ClassVar[str | None] = "warmup"

    least_steps: int = field(default=10, metadata=column("least_warmup_steps"))
    least_s: float = field(default=1.0, metadata=column("least_warmup_s"))

    def __post_init__(self) -> None:
        at_least(1, least_steps=self.least_steps)
        at_least(0, least_s=self.least_s)
        at_most(MOST_WARMUP_S, least_s=self.least_s)

    def shortest_s(self, step_s: float) -> float:
        """How long warming up takes at least where a step takes so many seconds."""
        return max(self.least_s, self.least_steps * step_s)

    def _further_steps(self, steps: int, seconds: float, step_s: float) -> int:
        """Steps up to the least length; 0 when it is reached.

        The first steps are a poor estimate: it goes half of a long way, then estimates again.
        """
        if steps < self.least_steps:
            return self.least_steps - steps
        left_s = self.least_s - seconds
        return max(0, math.ceil((left_s / 2 if left_s > 1.0 else left_s) / step_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedWarmup(Warmup):
    """As long as asked for, whatever the step times, as many studies in the literature do it."""

    kind: ClassVar[str] = "fixed"

    least_s: float = field(default=5.0, metadata=column("least_warmup_s"))

    @property
    def likely_s(self) -> float:
        """How long it takes about where steps are short."""
        return self.least_s

    def end(self, steps: int, seconds: float, is_steady: Callable[[], bool]) -> WarmupEnd | None:
        """Why it is over after so many steps and seconds; None if it is not."""
        over = steps >= self.least_steps and seconds >= self.least_s
        return WarmupEnd.FIXED if over else None

    def further_steps(self, steps: int, seconds: float, step_s: float) -> int:
        """The next steps in one go, where it is not over."""
        return max(1, self._further_steps(steps, seconds, step_s))


def _is_settling(steps: int, seconds: float) -> bool:
    """Whether TensorFlow still slows short steps down by more than a per cent."""
    return steps < SETTLED_STEPS and seconds < min(SETTLED_S, steps * LONG_STEP_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyWarmup(Warmup):
    """Until step times are steady, and short steps have settled.

    Attributes:
        most_steps, most_s: when both are reached it ends anyway; more than the least.
    """

    kind: ClassVar[str] = "steady"

    most_steps: int = field(default=40, metadata=column("most_warmup_steps"))
    most_s: float = field(default=10.0, metadata=column("most_warmup_s"))

    def __post_init__(self) -> None:
        Warmup.__post_init__(self)
        if self.most_steps < self.least_steps or not self.most_s >= self.least_s:
            raise UserError(
                f"a warm-up of at least {self.least_steps} steps and {self.least_s:g} s cannot end "
                f"after {self.most_steps} steps and {self.most_s:g} s."
            )

    @property
    def likely_s(self) -> float:
        """How long it takes about where steps are short."""
        return max(self.least_s, LIKELY_STEADY_S)

    def end(self, steps: int, seconds: float, is_steady: Callable[[], bool]) -> WarmupEnd | None:
        """Why it is over after so many steps and seconds; None if it is not."""
        if steps < self.least_steps or seconds < self.least_s or _is_settling(steps, seconds):
            return None
        if is_steady():
            return WarmupEnd.STEADY
        over = steps >= self.most_steps and seconds >= self.most_s
        return WarmupEnd.LIMIT if over else None

    def further_steps(self, steps: int, seconds: float, step_s: float) -> int:
        """The next steps in one go, where it is not over: as many again, but not past its limit."""
        if missing := self._further_steps(steps, seconds, step_s):
            return missing
        if _is_settling(steps, seconds):
            return min(steps, SETTLED_STEPS - steps)
        left_s = self.most_s - seconds
        return max(1, min(steps, max(self.most_steps - steps, math.ceil(left_s / step_s))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(Columns):
    """Warm-up, and the least lengths of what follows; of two, both must be reached.

    Attributes:
        measured_steps, measured_s: per worker.
        event_steps: steps after the measured window that are traced tensor by tensor.
        evaluation: comes last.
    """

    kind: ClassVar[str] = "window"

    warmup: SteadyWarmup | FixedWarmup = field(default_factory=SteadyWarmup)
    measured_steps: int = field(default=100, metadata=column("least_measured_steps"))
    measured_s: float = field(default=0.0, metadata=column("least_measured_s"))
    event_steps: int = 0
    evaluation: Evaluation | None = field(default=None, metadata={**LATER, **column(None)})

    def __post_init__(self) -> None:
        at_least(1, measured_steps=self.measured_steps)
        at_least(0, measured_s=self.measured_s, event_steps=self.event_steps)

    @classmethod
    def of_steps(cls, count: int) -> Measurement:
        """Exactly so many steps of every worker: a first one, one of warm-up, and the others.

        Raises:
            UserError: they are too few.
        """
        warmup = FixedWarmup(least_steps=1, least_s=0.0)
        return cls(warmup=warmup, measured_steps=count - 2 - SETTLING_STEPS)

    def least_measured_s(self, step_s: float) -> float:
        """How long the steps after the warm-up take at least, traced ones included."""
        return max(self.measured_s, self.measured_steps * step_s) + self.event_steps * step_s

    def least_s(self, step_s: float) -> float:
        """How long all steps but the first one take at least."""
        return self.warmup.shortest_s(step_s) + self.least_measured_s(step_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning(Columns):
    """Training that is evaluated on held-out examples until it reaches a target or a bound.

    Its clock stands still while it evaluates.  It ends with the first evaluation that reaches the
    target or comes after a bound.

    Attributes:
        evaluation: of held-out examples, by the first worker.
        evaluation_steps: of every worker between two evaluations.
        target_loss, target_accuracy: of the held-out examples; at most one, None for no target.
        most_examples: that all workers train on together.
        most_s: of training, without evaluations; None for no bound.
    """

    kind: ClassVar[str] = "learning"

    evaluation: Evaluation
    evaluation_steps: int
    target_loss: float | None = None
    target_accuracy: float | None = None
    most_examples: int
    most_s: float | None = None

    def __post_init__(self) -> None:
        if self.evaluation.mode is not EvaluationMode.SEQUENTIAL:
            raise ValueError("one worker evaluates for all")
        whole(evaluation_steps=self.evaluation_steps, most_examples=self.most_examples)
        at_least(2, evaluation_steps=self.evaluation_steps)
        at_least(1, most_examples=self.most_examples)
        at_least(0, most_s=0.0 if self.most_s is None else self.most_s)
        if self.target_loss is not None and not math.isfinite(self.target_loss):
            raise UserError(f"target_loss must be a number, got {self.target_loss:g}.")
        if self.target_loss is not None and self.target_accuracy is not None:
            raise UserError("state a target of the loss or of the accuracy, not both.")
        if self.target_accuracy is not None and not 0 < self.target_accuracy <= 1:
            raise UserError(f"target_accuracy is a share up to 1, got {self.target_accuracy:g}.")

    @classmethod
    def of_keys(cls, stated: Any) -> Learning:
        """What the dict of a user's module says; one worker evaluates for all.

        Raises:
            UserError: it is no dict, a key is unknown or missing, or a value makes no sense.
        """
        own = [each for each in fields(cls) if each.name != "evaluation"]
        needed = ["evaluation_batches", *(each.name for each in own if each.default is MISSING)]
        others = [each.name for each in own if each.default is not MISSING]
        try:
            if unknown := [str(key) for key in stated if key not in (*needed, *others)]:
                raise UserError(
                    f"no key {', '.join(unknown)} is known: choose of "
                    f"{', '.join((*needed, *others))}."
                )
            rest = {name: stated[name] for name in stated if name != "evaluation_batches"}
            held_out = Evaluation(
                batches=stated["evaluation_batches"],
                mode=EvaluationMode.SEQUENTIAL,
                gradient_norm=True,
            )
            return cls(evaluation=held_out, **rest)
        except (TypeError, KeyError) as error:
            raise UserError(
                f"it is {stated!r}: a dict of numbers, with {', '.join(needed)} and perhaps "
                f"{', '.join(others)}."
            ) from error

    def reaches(self, loss: float, accuracy: float) -> bool:
        """Whether an evaluation with these means reaches the target."""
        if self.target_loss is not None:
            return loss <= self.target_loss
        return self.target_accuracy is not None and accuracy >= self.target_accuracy

    def is_over(self, examples: int, seconds: float, loss: float, accuracy: float) -> bool:
        """Whether training ends with an evaluation after so many examples and seconds."""
        is_late = self.most_s is not None and seconds >= self.most_s
        is_lost = not math.isfinite(loss)
        return is_lost or is_late or examples >= self.most_examples or self.reaches(loss, accuracy)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingComparison(Columns):
    """So many rounds of two stretches of steps, one with recording and one without.

    Stretches are short, and there are many: the speed of a machine changes within seconds, and the
    two of a pair are to meet the same one.  Rows are not fetched, because a run fetches them when
    its window is over.

    Attributes:
        stretch_s: how long a stretch is, about.
    """

    kind: ClassVar[str] = "recording_comparison"

    rounds: int = field(default=80, metadata=column(None))
    stretch_s: float = field(default=0.1, metadata=column(None))

    def __post_init__(self) -> None:
        at_least(1, rounds=self.rounds)
        at_least(0, stretch_s=self.stretch_s)

    def steps_per_stretch(self, step_s: float) -> int:
        """How many steps a stretch has, at least two."""
        return max(2, round(self.stretch_s / step_s))
