"""One question to many hosts at once; who does not answer holds up nobody.

Decides what counts as an answer and what as none.  What is asked is not known here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from launchers.fork_servers.host_servers import HostServers
from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.messages import EndAll, Event, Exited


@dataclass(slots=True)
class Answers:
    """What the hosts answered.

    Attributes:
        until: the event that answers the question; None: the end of the job does.
        events: by host and the event's name.
        troubles: why a host did not answer.
        waiting: the job of every host that has not answered yet.
    """

    servers: HostServers
    until: str | None = None
    events: dict[str, dict[str, Event]] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)

    def of(self, event: str) -> dict[str, Event]:
        """The events of a name, by host."""
        return {host: events[event] for host, events in self.events.items() if event in events}

    def ask(self, host: str, request: object) -> None:
        """Ask one host."""
        try:
            self.servers.clients[host].send(request)
        except LaunchError as error:
            self.give_up(host, error)
        else:
            self.waiting[host] = type(request).__name__
            self.events[host] = {}

    def give_up(self, host: str, reason: object) -> None:
        """No more is expected of a host; the first reason is the best."""
        self.waiting.pop(host, None)
        self.troubles.setdefault(host, str(reason).splitlines()[0])

    def listen(self, timeout_s: float) -> None:
        """Take in one message of those who have not answered."""
        clients = {host: self.servers.clients[host] for host in self.waiting}
        try:
            heard = HostServers(clients).receive(timeout_s)
        except LaunchError as error:
            for host, client in clients.items():
                if client.lost:
                    self.give_up(host, error)
            return
        if heard is not None:
            self._take(*heard)

    def _take(self, host: str, message: object) -> None:
        match message:
            case Event(name=name, event=event) if name == self.waiting[host]:
                self.events[host][event] = message
                if event == "failed":
                    self.give_up(host, message.text)
                elif event == self.until:
                    del self.waiting[host]
            case Exited(name=name, status=status) if name == self.waiting[host]:
                if status != 0:
                    self.give_up(host, f"{name} ended with status {status}")
                self.waiting.pop(host, None)


def ask_hosts(
    servers: HostServers,
    requests: Mapping[str, object],
    deadline_s: float,
    until: str | None = None,
) -> Answers:
    """Have a job done on every host, all at once.

    Args:
        requests: by host.
        until: an event that answers the question; None: the job's end does.
    """
    answers = Answers(servers, until)
    for host, request in requests.items():
        answers.ask(host, request)
    deadline = time.monotonic() + deadline_s
    while answers.waiting and (left := deadline - time.monotonic()) > 0:
        answers.listen(left)
    for host in list(answers.waiting):
        answers.give_up(host, f"no answer within {deadline_s:.0f} s")
        with suppress(LaunchError):
            servers.clients[host].send(EndAll())
    return answers
