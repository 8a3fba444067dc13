"""What is known of one run while it goes on: what was asked for, and what its fork servers told.

Decides when a run is over and why it failed.  It reads no socket and starts no process: messages
are handed in.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launchers.run.traffic import Stream
from ps_allreduce.cluster import TaskId
from ps_allreduce.errors import HostFault, LaunchError, in_a_sentence
from ps_allreduce.fork_server.messages import (
    Event,
    Exited,
    Sampled,
    Started,
    StartTask,
    TaskPlaced,
)
from ps_allreduce.inspection.questions import Listening, TrafficCarried
from ps_allreduce.point.cores import CorePlan
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import Placed
from ps_allreduce.record.hosts import HostRecord
from ps_allreduce.record.records import LinkRecord, PortRecord, Sample, Status

#: A first look at the time of a step is a poor one, and results are fetched in the end.
SLACK = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """What is wanted of a run.

    Attributes:
        deadline_s: a run that takes longer has timed out,
        limit_s: unless its steps need longer, and at the latest then.
        wants_weights: the weights are fetched with the results.
    """

    experiment: Experiment
    deadline_s: float
    limit_s: float
    data_dir: Path
    mixed_hosts: bool = False
    wants_weights: bool = False


@dataclass(slots=True)
class RunMonitor:
    """What the fork servers have told.

    Attributes:
        tasks: all of the run; messages of others are not its business.
        drivers: those that run the timed loop; their end ends the run.
        stopped: tasks that were stopped by a signal and not continued.
        placed: what every task found that it was given, when it began.
        ended_by_us: tasks that the launcher killed when the run was over.
        lost_contact: why nothing more can be heard of the tasks, if so.
        streams: background traffic; its processes go on as servers do.
        ports: at which its receivers listen, by their names,
        traffic: and what has come there.
    """

    tasks: Sequence[TaskId]
    drivers: Sequence[TaskId]
    placed: dict[str, TaskPlaced] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    exited: dict[str, Exited] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    stopped: set[str] = field(default_factory=set)
    ended_by_us: set[str] = field(default_factory=set)
    lost_contact: str = ""
    streams: Sequence[Stream] = ()
    ports: dict[str, int] = field(default_factory=dict)
    traffic: dict[str, list[TrafficCarried]] = field(default_factory=dict)

    def take(self, message: object) -> None:
        """Note a message of a fork server."""
        names = {str(task) for task in self.tasks}.union(*(each.hosts for each in self.streams))
        match message:
            case Started(name=name, pid=pid) if name in names:
                self.pids[name] = pid
            case Exited(name=name) if name in names:
                self.exited[name] = message
            case TaskPlaced(name=name) if name in names:
                self.placed[name] = message
            case Event(name=name, event="stopped") if name in names:
                self.stopped.add(name)
            case Event(name=name, event="continued") if name in names:
                self.stopped.discard(name)
            case Listening(name=name, port=port) if name in names:
                self.ports[name] = port
            case TrafficCarried(name=name) if name in names:
                self.traffic.setdefault(name, []).append(message)
            case Event(name=name) if name in names:
                self.events.append(message)
            case Sampled(sample=sample):
                self.samples.append(sample)

    @property
    def is_complete(self) -> bool:
        """All driving tasks have done their work: they said so, or ended well."""
        done = {event.name for event in self.events if event.event == "done"}
        done |= {name for name, exited in self.exited.items() if exited.status == 0}
        return done.issuperset(map(str, self.drivers))

    @property
    def has_failed(self) -> bool:
        """A task has reported a failure, or ended although it should not have."""
        return bool(self._failures() or self._lost())

    @property
    def alive(self) -> set[str]:
        """Tasks that were started and are not known to have ended."""
        return set(self.pids) - set(self.exited)

    def moment(self, event: str) -> float | None:
        """When the last task that reports an event reported it; None if one has not."""
        times = [e.time for e in self.events if e.event == event]
        return max(times) if len(times) == len(self.drivers) else None

    @property
    def stage(self) -> str:
        """What the run is doing, for a progress bar."""
        return self.events[-1].event.removeprefix("phase:") if self.events else "starting"

    def culprit(self) -> tuple[str, str]:
        """The task that is to blame and the reason, a sentence.

        A task that was killed comes before those that complain about having lost it; of complaints,
        the earliest.  What the task, or its fork server, said last tells more than how it ended.
        """
        lost, failures = self._lost(), self._failures()
        if self.stopped:  # those who wait for it may complain
            name = min(self.stopped)
            return name, f"{name} was stopped by a signal"
        if killed := [exited for exited in lost if exited.status < 0]:
            name = killed[0].name
            reason = f"{name} was killed by {signal.Signals(-killed[0].status).name}"
        elif failures:
            name = reason = min(failures, key=lambda event: event.time).name
        else:
            name = lost[0].name
            reason = f"{name} ended with status {lost[0].status}"
        told = [event.text for event in failures if event.name == name]
        return name, f"{name}: {told[-1]}" if told else reason

    def is_explained(self, name: str) -> bool:
        """The system ended a task, and its fork server has said why."""
        exited = self.exited.get(name)
        told = any(event.name == name for event in self._failures())
        return told and exited is not None and exited.status < 0

    @property
    def host_trouble(self) -> str:
        """What a host lacked when a task of it failed; empty if that was not the reason."""
        return next((f"{e.name}: {e.text}" for e in self._failures() if e.host_fault), "")

    def _failures(self) -> list[Event]:
        return [event for event in self.events if event.event == "failed"]

    def _lost(self) -> list[Exited]:
        names = {str(task) for task in self.drivers}
        return [
            exited
            for exited in self.exited.values()
            if exited.name not in self.ended_by_us
            and (exited.status != 0 or exited.name not in names)
        ]


@dataclass(slots=True, kw_only=True)
class RunState:
    """A run from its request to its end.

    Attributes:
        folder: takes the files that are fetched from the hosts.
        remote: the run's folder on every host, by host.
        addresses: of every task in the cluster specification.
        one_machine: several hosts share the cores of one machine.
        tasks: the request by which every task is started.
        launcher_s: processor seconds that the launcher itself has used, by the time of the look.
        is_host_fault: a host was at fault, not the run.
        deadline_s: after so long the run times out.
        post_mortem: what the scheduler says about the end.
    """

    request: LaunchRequest
    placed: Placed
    folder: Path
    monitor: RunMonitor
    one_machine: bool
    job_id: str | None
    launched_at: float
    ended_at: float = 0.0
    status: Status = Status.INTERRUPTED
    is_host_fault: bool = False
    deadline_s: float = field(init=False)
    post_mortem: str = ""
    hosts: tuple[HostRecord, ...] = ()
    links: tuple[LinkRecord, ...] = ()
    ports: tuple[PortRecord, ...] = ()
    cores: CorePlan = field(default_factory=lambda: CorePlan({}, 0, False))
    remote: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[TaskId, str] = field(default_factory=dict)
    tasks: Mapping[TaskId, StartTask] = field(default_factory=dict)
    launcher_s: dict[float, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.deadline_s = self.request.deadline_s

    def fail(self, error: LaunchError | OSError) -> None:
        """Note why the run cannot go on; the first reason is the best."""
        if not self.monitor.lost_contact:
            # What the system refuses to the launcher itself, it refuses to every run.
            fault = in_a_sentence(error) if isinstance(error, OSError) else error
            self.is_host_fault = isinstance(fault, HostFault)
            self.monitor.lost_contact = str(fault).splitlines()[0]
        self.status = Status.INTERRUPTED if self.is_host_fault else Status.FAILED

    def give_time(self, passed_s: float, needed_s: float) -> None:
        """Let the run take as long as its steps need, up to its limit."""
        wanted = min(passed_s + SLACK * needed_s, self.request.limit_s)
        self.deadline_s = max(self.deadline_s, wanted)

    def host_of(self, process: str) -> str:
        """The host of a task, or of an end of background traffic, by its name."""
        for stream in self.monitor.streams:
            if process in stream.hosts:
                return stream.hosts[process]
        return self.placed[TaskId.parse(process)]

    def offset_of(self, task: TaskId) -> float:
        """Seconds by which the clock of a task's host is ahead of the launcher's."""
        offsets = {host.name: host.clock_offset_s for host in self.hosts}
        return offsets.get(self.placed[task], 0.0)


def result_path(folder: Path | str, task: TaskId) -> Path:
    """Where a driving task leaves its result, without the ending."""
    return Path(folder) / f"result-{task.type}-{task.index}"


def log_path(folder: Path | str, task: TaskId) -> Path:
    """Where a task's output goes."""
    return Path(folder) / f"{task.type}-{task.index}.log"
