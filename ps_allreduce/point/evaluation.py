"""How a model is evaluated when its training was measured: the forward pass over so many batches.

Decides which worker takes how many of them.  A sequential evaluation is what many programs do: one
worker takes all batches while the others wait, so it does not get shorter with more workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ps_allreduce.errors import at_least, at_most


class EvaluationMode(StrEnum):
    """Who evaluates: the first worker, or all of them."""

    SEQUENTIAL = "sequential"
    DISTRIBUTED = "distributed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """An evaluation after the measured steps, timed apart from them.

    Attributes:
        batches: of all workers together, each as large as a worker's batch of training.
        mode: who takes them.
    """

    batches: int
    mode: EvaluationMode = EvaluationMode.DISTRIBUTED

    def __post_init__(self) -> None:
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

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return {"evaluation": self.mode.value, "evaluation_batches": self.batches}
