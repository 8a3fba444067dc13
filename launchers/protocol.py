"""What `experiments` asks of every launcher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from ps_allreduce.experiment import Experiment, Workload
from ps_allreduce.placement import VariableSpec
from ps_allreduce.records import Phases, PlacementUsed, Sample, Status, TaskRecord
from ps_allreduce.steps import EventTable, Metrics, StepTable


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedRun:
    """What became of one launch.

    Attributes:
        steps, events: raw timings; None if the run did not get so far.
        log: the output of all tasks, one after the other.
        log_tail: the last lines of the log that explains why the run did not succeed.
    """

    status: Status
    reason: str = ""
    warnings: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    interface: str | None = None
    tasks: tuple[TaskRecord, ...] = ()
    phases: Phases = field(default_factory=Phases)
    metrics: Metrics | None = None
    placement: PlacementUsed | None = None
    samples: tuple[Sample, ...] = ()
    weights_digest: str | None = None
    gradient_bytes: int | None = None
    num_tensors: int | None = None
    steps: StepTable | None = None
    events: EventTable | None = None
    log: str = ""
    log_tail: str = ""


class Launcher(Protocol):
    """One way of running experiments.  Used as a context: nothing it started outlives it."""

    def __enter__(self) -> Self:
        """Get ready to launch."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End everything that was started."""

    def check(self, experiment: Experiment) -> None:
        """Refuse what this launcher cannot run.

        Raises:
            UserError: with the reason and what to do.
        """

    def describe(self, workload: Workload) -> tuple[VariableSpec, ...]:
        """The model's variables in creation order."""

    def prepare(self, workload: Workload) -> None:
        """Make the input available and check it.

        Raises:
            UserError: the input is missing or damaged.
        """

    def launch(
        self,
        experiment: Experiment,
        *,
        progress: Callable[[str], None],
        weights: Path | None = None,
    ) -> LaunchedRun:
        """Run one experiment to its end, whatever that is.

        Args:
            progress: told what the run is doing, for a progress bar.
            weights: file that takes the final trainable weights (NumPy archive).
        """

    def is_oversubscribed(self, experiment: Experiment) -> bool:
        """Whether the tasks have fewer cores than they use."""

    def total_cores(self, experiment: Experiment) -> int:
        """Cores that all tasks have together."""
