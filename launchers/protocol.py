"""What launchers tell `experiments`: what became of a run, and what hosts offer."""

from __future__ import annotations

from dataclasses import dataclass

from ps_allreduce.record.evaluation_timings import EvaluationTable
from ps_allreduce.record.records import RunOutcome
from ps_allreduce.record.step_table import EventTable, StepTable


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedRun(RunOutcome):
    """What became of one launch, and what is kept beside its record.

    Attributes:
        host_fault: a fault of a host, not of the run, which is interrupted then; its `reason`.
        steps, events, evaluated: raw timings; None if the run did not get so far.
        log: the output of all tasks, one after the other.
        log_tail: the last lines of the log that explains why the run did not succeed.
    """

    host_fault: str = ""
    steps: StepTable | None = None
    evaluated: EvaluationTable | None = None
    events: EventTable | None = None
    log: str = ""
    log_tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a launcher's hosts offer to the axes of a sweep.

    Attributes:
        num_hosts: hosts that there are, without those named for servers.
        cores_per_host: of the one of them with the fewest.
        num_ps_hosts: hosts named for servers.
        shared_cores: of the machine that emulates all hosts; None where each has its own.
    """

    num_hosts: int
    cores_per_host: int
    num_ps_hosts: int = 0
    shared_cores: int | None = None
