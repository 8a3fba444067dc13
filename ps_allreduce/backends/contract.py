"""What the runner asks of every strategy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ps_allreduce.cluster import TfConfig
from ps_allreduce.point.evaluation import Evaluation
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Held, Plan, VariableSpec
from ps_allreduce.record.message_records import MessageRecord
from ps_allreduce.record.sparse import SparseGradient

Rows = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One driving task: a worker that drives itself, or the chief that drives all workers.

    A single worker without a cluster has no `tf_config`.
    """

    experiment: Experiment
    tf_config: TfConfig | None


class Backend(ABC):
    """One training strategy, driven step by step.

    The order of calls is `connect`, `prepare`, then any number of the others.

    Attributes:
        variables: all variables of the model in creation order, once it is built.
    """

    variables: tuple[VariableSpec, ...]

    def __init__(self, task: Task) -> None:
        self._task = task
        self._experiment = task.experiment
        #: How often a step function has been traced so far.
        self.traces = 0

    @abstractmethod
    def connect(self) -> None:
        """Return once all tasks of the cluster are connected."""

    @abstractmethod
    def prepare(self, data_dir: Path) -> None:
        """Build the model, and create variables and the workers' own resources.

        The step is not traced yet.
        """

    @abstractmethod
    def make(
        self, num_steps: int, *, events: bool = False, recorded: bool = True
    ) -> list[tf.Tensor]:
        """Make that many steps on every worker that this task drives.

        A strategy that deals steps makes the same total, each step on a worker that is free.

        Returns:
            One row per step, or several in a matrix, where the step was made.  Unrecorded steps
            take no timestamps and yield their loss.
        """

    @abstractmethod
    def fetch(self, made: Sequence[tf.Tensor]) -> Rows:
        """Bring the rows of recorded steps here; `worker_step.RowLayout` lays them out."""

    def run(self, num_steps: int, *, events: bool = False) -> Rows:
        """Make that many steps and fetch their rows, one per step."""
        return self.fetch(self.make(num_steps, events=events))

    @abstractmethod
    def evaluate(self, evaluation: Evaluation) -> Rows:
        """Evaluate what was trained; one row for each batch (`record.evaluation_timings`)."""

    def agree(self, value: float) -> float:
        """The largest value that a driving task gives; every driving task gets this answer."""
        return value  # this task drives all workers

    @abstractmethod
    def weight_checksums(self) -> list[int]:
        """An exact sum over the bits of every trainable variable or bucket."""

    @abstractmethod
    def read_weights(self) -> list[npt.NDArray[np.float32]]:
        """The whole trainable variables, in creation order."""

    def placement(self) -> tuple[Plan, Held] | None:
        """The plan, and what devices hold of it as TensorFlow tells; None without servers."""
        return None

    def messages(self) -> list[MessageRecord]:
        """What a worker sends in a step, in that order; nothing where no gradient leaves it."""
        return []

    @abstractmethod
    def sparse_gradients(self) -> tuple[SparseGradient, ...]:
        """Gradients that were sparse when a step was traced, before anything was done to them."""

    def message_per_variable(self) -> list[MessageRecord]:
        """The messages where each gradient is handed to TensorFlow on its own, before packing."""
        return [
            MessageRecord(num_bytes=spec.num_bytes, variables=(spec.name,))
            for spec in self.variables
            if spec.trainable
        ]
