"""Asks many hosts at once, and gets on without those that do not answer.

Decides how long is waited and what counts as no answer.  What is asked is not known here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from launchers.fork_servers.host_servers import HostServers
from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.messages import EndAll, Event, Exited


@dataclass(slots=True)
class Answers:
    """What came back.

    Attributes:
        events: by host and the event's name.
        troubles: why a host did not answer.
    """

    events: dict[str, dict[str, Event]] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)

    def of(self, event: str) -> dict[str, Event]:
        """The events of a name, by host."""
        return {host: told[event] for host, told in self.events.items() if event in told}


@dataclass(slots=True)
class Asking:
    """One question to many hosts, and who has not answered yet."""

    servers: HostServers
    until: str | None
    waiting: dict[str, str] = field(default_factory=dict)
    answers: Answers = field(default_factory=Answers)

    def send(self, host: str, request: object) -> None:
        """Ask one host."""
        try:
            self.servers.clients[host].send(request)
        except LaunchError as error:
            self.give_up(host, error)
        else:
            self.waiting[host] = type(request).__name__
            self.answers.events[host] = {}

    def give_up(self, host: str, reason: object) -> None:
        """No more is expected of a host; the first reason is the best."""
        self.waiting.pop(host, None)
        self.answers.troubles.setdefault(host, str(reason).splitlines()[0])

    def hear(self, timeout_s: float) -> None:
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

    def _take(self, host: str, message: Any) -> None:
        if getattr(message, "name", None) != self.waiting[host]:
            return  # of another process
        if isinstance(message, Event):
            self.answers.events[host][message.event] = message
            if message.event == "failed":
                self.give_up(host, message.text)
            elif message.event == self.until:
                del self.waiting[host]
        elif isinstance(message, Exited):
            if message.status != 0:
                self.give_up(host, f"{message.name} ended with status {message.status}")
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
    asking = Asking(servers, until)
    for host, request in requests.items():
        asking.send(host, request)
    deadline = time.monotonic() + deadline_s
    while asking.waiting and (left := deadline - time.monotonic()) > 0:
        asking.hear(left)
    for host in list(asking.waiting):
        asking.give_up(host, f"no answer within {deadline_s:.0f} s")
        with suppress(LaunchError):
            servers.clients[host].send(EndAll())
    return asking.answers
