"""What is known of one run while it goes on: what was asked for, and what its fork servers told.

Decides when a run is over and why it failed.  It reads no socket and starts no process: messages
are handed in.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ps_allreduce.cluster import TaskId
from ps_allreduce.fork_server.messages import Event, Exited, Sampled, Started, StartTask
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import CorePlan, Placed
from ps_allreduce.record.hosts import HostRecord
from ps_allreduce.record.records import LinkRecord, Sample, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """What is wanted of a run.

    Attributes:
        deadline_s: a run that takes longer has timed out.
        wants_weights: the final weights are fetched with the results.
    """

    experiment: Experiment
    deadline_s: float
    data_dir: Path
    mixed_hosts: bool = False
    wants_weights: bool = False


@dataclass(slots=True)
class RunMonitor:
    """What the fork servers have told.

    Attributes:
        tasks: all of the run; messages of others are not its business.
        drivers: those that run the timed loop; their end ends the run.
        placed: what every task found that it was given, when it began.
        ended_by_us: tasks that the launcher killed when the run was over.
        lost_contact: why nothing more can be heard of the tasks, if so.
    """

    tasks: Sequence[TaskId]
    drivers: Sequence[TaskId]
    placed: dict[str, Event] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    exited: dict[str, Exited] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    ended_by_us: set[str] = field(default_factory=set)
    lost_contact: str = ""

    def take(self, message: object) -> None:
        """Note a message of a fork server."""
        names = {str(task) for task in self.tasks}
        match message:
            case Started(name=name, pid=pid) if name in names:
                self.pids[name] = pid
            case Exited(name=name) if name in names:
                self.exited[name] = message
            case Event(name=name, event="placed") if name in names:
                self.placed[name] = message
            case Event(name=name) if name in names:
                self.events.append(message)
            case Sampled(sample=sample):
                self.samples.append(sample)

    @property
    def is_complete(self) -> bool:
        """All driving tasks have done their work and ended well."""
        ended = [self.exited.get(str(task)) for task in self.drivers]
        return all(exit_ is not None and exit_.status == 0 for exit_ in ended)

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
    post_mortem: str = ""
    hosts: tuple[HostRecord, ...] = ()
    links: tuple[LinkRecord, ...] = ()
    cores: CorePlan = field(default_factory=lambda: CorePlan({}, 0, False))
    remote: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[TaskId, str] = field(default_factory=dict)
    tasks: Mapping[TaskId, StartTask] = field(default_factory=dict)

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
