"""What the runner asks of every strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ps_allreduce.cluster import TfConfig
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Plan
from ps_allreduce.workloads.program import Program

Rows = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One driving task: a worker that drives itself, or the chief that drives all workers.

    Attributes:
        tf_config: None for a single worker without a cluster.
    """

    experiment: Experiment
    tf_config: TfConfig | None

    @property
    def worker(self) -> int:
        """Index of a worker that drives itself."""
        return 0 if self.tf_config is None else self.tf_config.task.index


class Backend(Protocol):
    """One training strategy, driven step by step.

    The order of calls is `connect`, `build`, then any number of the others.
    """

    def connect(self) -> None:
        """Return once all tasks of the cluster are connected."""

    def build(self, program: Program) -> None:
        """Create variables and the worker's own resources; trace nothing of the step yet."""

    def run(self, num_steps: int, *, events: bool = False, recorded: bool = True) -> Rows:
        """Run that many steps on every worker this task drives, and return one row for each.

        Rows are laid out by `worker_step.RowLayout`.  Asynchronous strategies run the same total,
        dealt to whoever is free.  Unrecorded steps return no rows and carry no timestamps.
        """

    def agree(self, value: float) -> float:
        """The largest of the values that all driving tasks give; all get the same answer."""

    def weight_checksums(self) -> list[int]:
        """For every trainable variable or shard, an exact sum over its bits, order-independent."""

    def read_weights(self) -> list[npt.NDArray[np.float32]]:
        """The trainable variables in creation order, whole."""

    def trace_count(self) -> int:
        """How often a step function has been traced so far."""

    def placement(self) -> tuple[Plan, Mapping[int, str]] | None:
        """The plan and the devices of its shards as TensorFlow reports them; None if no servers."""

    def num_messages(self) -> int:
        """Tensors that are communicated per step and direction."""
