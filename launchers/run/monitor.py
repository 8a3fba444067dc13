"""Follow one run from its first task to its last: events in, a verdict on how it ended out.

Decides when a run is over and why it failed.  It reads no socket and starts no process: messages
and times are handed in.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

from ps_allreduce.cluster import TaskId
from ps_allreduce.fork_server.messages import Event, Exited, Sampled, Started
from ps_allreduce.record.records import Sample


@dataclass(slots=True)
class RunMonitor:
    """What is known of a run so far.

    Attributes:
        tasks: all tasks of the run; messages of others are not its business.
        drivers: the tasks whose end ends the run.
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
        the earliest.
        """
        for exited in self._lost():
            if exited.status < 0:
                name = signal.Signals(-exited.status).name
                return exited.name, f"{exited.name} was killed by {name}"
        if failures := sorted(self._failures(), key=lambda event: event.time):
            return failures[0].name, f"{failures[0].name}: {failures[0].text}"
        (exited, *_) = self._lost()
        return exited.name, f"{exited.name} ended with status {exited.status}"

    def user_error(self) -> str | None:
        """The text of a failure that is the user's mistake."""
        return next((event.text for event in self._failures() if event.user_error), None)

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
