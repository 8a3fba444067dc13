"""The record that a run leaves.

Decides what it holds (`docs/results_format.md`); files are the business of `files`.  It does
not decide which runs are made (`experiments`) nor what is concluded from them (`analysis`).

Adding a field that has a default does not raise the version: a reader fills the default in.  The
document says what every version changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ps_allreduce.errors import RecordFormatError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import WarmupEnd
from ps_allreduce.record.evaluation_timings import EvaluationTimes, LearningCurve
from ps_allreduce.record.hosts import GpuSample, HostRecord, TcpCounters
from ps_allreduce.record.provenance import Provenance
from ps_allreduce.record.step_table import Metrics
from ps_allreduce.record.variables import (
    MADE_DENSE,
    MessageRecord,
    PlacementUsed,
    RowsAsked,
    SparseGradient,
)

FORMAT_VERSION = 8

#: The version before knew no buffers and no congestion control of emulated networks.
BEFORE_STATED_NETWORKS = 7

#: From this share of its processor time on, a machine may be what limits a run on hosts that are
#: emulated on it, and not their network.
BUSY_LIMIT = 0.9

#: Share of a host's processor time that others may use in a window before readers are warned.
FOREIGN_LIMIT = 0.05

#: A host or a link with less than this share of what others reach is slow.
SLOW_SHARE = 0.8

#: Load average per processor above which a run's start is called busy where what others used while
#: it was measured is not known.  A run of its own leaves about one.
BUSY_LOAD = 2.0


class Status(StrEnum):
    """How a run ended."""

    OK = "ok"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    INVALID = "invalid"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """One task of a run as it really was.

    Attributes:
        task: for instance `worker:0`.
        host: its host name; `address` is its entry in the cluster specification.
        cores: processor numbers that it was really pinned to, as it found itself.
        gpus: CUDA_VISIBLE_DEVICES as it found it; empty for none, None if it did not get so far.
        settings: variables that change computation, and Keras's `data_layout`, as it found them.
        exit: exit status, negative for a signal, None if it was ended by the launcher.
        cpu_s: processor time used between launch and end.
        peak_memory_bytes: largest resident memory sampled.
    """

    task: str
    host: str
    address: str
    cores: tuple[int, ...]
    gpus: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    pid: int
    exit: int | None = None
    cpu_s: float | None = None
    peak_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at the machine: processor and memory per task, network bytes per interface.

    Attributes:
        time: seconds since the epoch.
        cpu_s: processor seconds used so far, by task.
        memory_bytes: resident memory, by task.
        sent_bytes, received_bytes: interface counters, by interface name.
        busy_s, idle_s: processor seconds of the cores that the run may use here, since the machine
            started; idle also while they wait for a disk.
        interrupts_s, stolen_s: what of `busy_s` served interrupts, and what the hypervisor took.
        suite_s: processor seconds that the host's fork server and all its tasks have used so far;
            None where it was not looked for.
        others_s: processor seconds that all processes of the machine but fork servers and those
            below have used since the run's first look; None where this look was not at them, or
            some may be hidden.
        load_average: of the machine, of one minute.
        gpus: those of the step; none without an NVIDIA driver.
        tcp: counted since the host, or its network namespace, started; None where it does not tell.
    """

    time: float
    host: str
    busy_s: float
    idle_s: float
    interrupts_s: float = 0.0
    stolen_s: float = 0.0
    suite_s: float | None = None
    others_s: float | None = None
    load_average: float | None = None
    cpu_s: Mapping[str, float]
    memory_bytes: Mapping[str, int]
    sent_bytes: Mapping[str, int]
    received_bytes: Mapping[str, int]
    gpus: tuple[GpuSample, ...] = ()
    tcp: TcpCounters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRecord:
    """What plain TCP reached from one host to another right before the run.

    Each host of the run sends to the next one, in turns in which no cable carries data both ways.

    Attributes:
        bits_per_s: payload per second.
        round_trip_s: median time until one byte has come back, before anything is sent.
    """

    source: str
    target: str
    bits_per_s: float
    round_trip_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficRecord:
    """Background traffic from one emulated host to another, as it really was.

    Attributes:
        bits_per_s: payload per second that arrived around the measured window.
    """

    source: str
    target: str
    bits_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRecord:
    """The port of an emulated switch towards a host.

    Attributes:
        dropped: packets that it lost during the whole run; a train of segments that Linux sends in
            one piece counts once.
    """

    host: str
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """How long the parts of a run took; seconds, None where a run did not get so far.

    Attributes:
        bring_up_s: launch until all tasks are connected.
        build_s: building the model and creating the variables.
        first_step_s: the first step, with tracing.
        warmup_s, measured_s: the timed loop; of the second, nothing but steps and fetching rows.
        total_s: launch until the last task was gone.
    """

    bring_up_s: float | None = None
    build_s: float | None = None
    first_step_s: float | None = None
    warmup_s: float | None = None
    measured_s: float | None = None
    total_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingTimes:
    """How long stretches of equal training took, in pairs with recording and without; seconds."""

    recorded_s: tuple[float, ...]
    bare_s: tuple[float, ...]
    steps_per_stretch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """What became of one launch, as it is recorded.

    Attributes:
        reason: why the run is not `ok`; empty if it is.
        warnings: doubts that do not make the run invalid.
        hosts: in the scheduler's order.
        machine_busy: share of this machine's processor time that was used in the measured window,
            where emulated hosts share one machine.
        oversubscribed: tasks had fewer cores than they use.
        gradient_bytes: of one worker and step, in float32.
        num_messages: that a worker sends per step.
        messages: what each of them carries, in sending order, where steps were traced.
        sparse: gradients that tell of some rows only; the suite makes them dense.
        rows_asked: of tables of which only these are exchanged; None where there are none.
        warmup_end: why the warm-up was over; None if the run did not get so far.
        recording: of a run that compared recorded with bare steps; None of any other.
        evaluation: of what was trained; None where nothing was to be evaluated.
        learned: of a run that was to learn; None of any other.
    """

    status: Status
    reason: str = ""
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
    rows_asked: RowsAsked | None = None
    warmup_end: WarmupEnd | None = None
    recording: RecordingTimes | None = None
    evaluation: EvaluationTimes | None = None
    learned: LearningCurve | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord(RunOutcome):
    """One attempt at one repetition of one experiment.

    Attributes:
        profile: how thoroughly the sweep was run, by name.
    """

    format_version: int = FORMAT_VERSION
    sweep: str
    profile: str
    experiment: Experiment
    experiment_id: str
    repetition: int
    attempt: int
    started_at: str
    finished_at: str
    provenance: Provenance

    def __post_init__(self) -> None:
        if min(self.repetition, self.attempt) < 0:
            raise ValueError(f"repetition {self.repetition}, attempt {self.attempt}: below 0")
        if (self.status is Status.OK) != (self.reason == ""):
            raise ValueError(f"status {self.status} with reason {self.reason!r}")
        if self.status is Status.OK and not self.tasks:
            raise ValueError("a run that is ok has tasks")
        if self.status is Status.OK and self.metrics is None and self.recording is None:
            raise ValueError("a run that is ok has metrics, or times of recording")
        if self.experiment_id != self.experiment.experiment_id:
            raise RecordFormatError(
                f"experiment {self.experiment_id} holds the content of "
                f"{self.experiment.experiment_id}: the record was edited or damaged."
            )

    @property
    def link_bits_per_s(self) -> float | None:
        """Rate of the slowest link of the run; None if no link was measured."""
        return min((link.bits_per_s for link in self.links), default=None)

    @property
    def traffic_bits_per_s(self) -> float | None:
        """Rate of the slowest stream of background traffic; None without any."""
        return min((stream.bits_per_s for stream in self.traffic), default=None)

    @property
    def is_sparse(self) -> bool:
        """Some gradient is known to be sparse; older records tell it by a note of the model."""
        load = self.experiment.workload
        notes = () if load.emulated is not None else getattr(load.model, "notes", ())
        return bool(self.sparse) or any(MADE_DENSE in note for note in notes)

    @property
    def port_drops(self) -> int | None:
        """Packets that all ports lost, a train as one; None where no port can be asked."""
        return sum(port.dropped for port in self.ports) if self.ports else None

    @property
    def tcp(self) -> TcpCounters | None:
        """What all hosts together sent around the window; None if it is not known of one."""
        known = [host.tcp for host in self.hosts if host.tcp is not None]
        is_known = bool(known) and len(known) == len(self.hosts)
        return TcpCounters.together(known) if is_known else None

    @property
    def foreign_load(self) -> float | None:
        """Of the host with the highest in the measured window; None if none is known."""
        loads = (host.foreign_load for host in self.hosts)
        return max((load for load in loads if load is not None), default=None)

    @property
    def stolen_load(self) -> float | None:
        """Of the host with the highest in the measured window; None if none is known."""
        loads = (host.stolen_load for host in self.hosts)
        return max((load for load in loads if load is not None), default=None)

    @property
    def loads(self) -> tuple[tuple[float, int], ...]:
        """Load average as the run began, and cores, of each host that tells.

        Where none does and this machine is below all hosts, its own; it may also be a login node.
        """
        told = ((host.load_average, len(host.facts.cores)) for host in self.hosts)
        known = tuple((load, cores) for load, cores in told if load is not None)
        is_here = self.experiment.spread is None or self.experiment.network is not None
        here = (self.provenance.load_average, len(self.provenance.affinity))
        return known or ((here,) if is_here else ())

    @property
    def began_busy(self) -> bool:
        """A host had other work as the run began, and nobody knows how it was while measuring.

        Some of it may be left of the run before.
        """
        loaded = any(load > BUSY_LOAD * cores for load, cores in self.loads)
        return loaded and self.foreign_load is None

    @property
    def interface(self) -> str | None:
        """The interface that the tasks used; None if it is unknown or hosts differ."""
        names = {host.interface.name if host.interface else None for host in self.hosts}
        return names.pop() if len(names) == 1 else None

    @property
    def run_id(self) -> str:
        """Unique within a sweep."""
        return f"{self.experiment_id}/{self.repetition}-{self.attempt}"

    @property
    def block(self) -> str:
        """The fingerprint of machine, software and measured program; blocks are never pooled."""
        return self.provenance.fingerprint
