"""What launchers tell `experiments`: what became of a run, and what hosts offer."""

from __future__ import annotations

from dataclasses import dataclass, field

from ps_allreduce.point.measurement import WarmupEnd
from ps_allreduce.record.evaluation import EvaluationTable, EvaluationTimes
from ps_allreduce.record.hosts import HostRecord
from ps_allreduce.record.messages import MessageRecord
from ps_allreduce.record.placement_used import PlacementUsed
from ps_allreduce.record.records import (
    LinkRecord,
    Phases,
    PortRecord,
    RecordingTimes,
    Sample,
    Status,
    TaskRecord,
    TrafficRecord,
)
from ps_allreduce.record.sparse import SparseGradient
from ps_allreduce.record.steps import EventTable, Metrics, StepTable


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedRun:
    """What became of one launch.

    Attributes:
        host_fault: a fault of a host, not of the run, which is interrupted then; its `reason`.
        steps, events, evaluated: raw timings; None if the run did not get so far.
        log: the output of all tasks, one after the other.
        log_tail: the last lines of the log that explains why the run did not succeed.
    """

    status: Status
    reason: str = ""
    host_fault: str = ""
    warnings: tuple[str, ...] = ()
    hosts: tuple[HostRecord, ...] = ()
    links: tuple[LinkRecord, ...] = ()
    traffic: tuple[TrafficRecord, ...] = ()
    ports: tuple[PortRecord, ...] = ()
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
    num_messages: int | None = None
    messages: tuple[MessageRecord, ...] = ()
    sparse: tuple[SparseGradient, ...] = ()
    warmup_end: WarmupEnd | None = None
    recording: RecordingTimes | None = None
    evaluation: EvaluationTimes | None = None
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
