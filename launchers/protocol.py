"""What `experiments` asks of every launcher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.hosts import HostFacts, HostRecord
from ps_allreduce.record.records import (
    LinkRecord,
    Phases,
    PlacementUsed,
    Sample,
    Status,
    TaskRecord,
)
from ps_allreduce.record.steps import EventTable, Metrics, StepTable


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
    hosts: tuple[HostRecord, ...] = ()
    links: tuple[LinkRecord, ...] = ()
    machine_busy: float | None = None
    job_id: str | None = None
    oversubscribed: bool = False
    total_cores: int = 0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a launcher's hosts offer to the axes of a sweep.

    Attributes:
        num_hosts: hosts that there are.
        cores_per_host: of the host with the fewest.
    """

    num_hosts: int
    cores_per_host: int


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

    @property
    def job_id(self) -> str | None:
        """Of the scheduler's job; None without one."""

    def capacity(self) -> Capacity:
        """How far the axes of a sweep may reach."""

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

    def host_facts(self) -> tuple[HostFacts, ...]:
        """What sets runs on these hosts apart from others; nothing if that is this machine."""

    def time_left_s(self) -> float | None:
        """How long runs may still be made here; None for as long as one likes."""
