"""All fork servers as one: their next message, their answers, their clocks, their links.

Decides what counts as an answer to a question, that a host which does not answer holds up nobody,
and how hosts are measured against each other.  What is asked, and what a run does on them, is not
known here.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from launchers.fork_servers.client import SILENT_S, ForkServerClient, readable
from ps_allreduce.errors import HostFault, LaunchError
from ps_allreduce.fork_server.messages import (
    AskTime,
    EndAll,
    Event,
    Exited,
    TimeTold,
)
from ps_allreduce.inspection.questions import ReceiveStream, SendStream
from ps_allreduce.record.records import LinkRecord

CLOCK_QUESTIONS = 7

LINK_SECONDS = 0.4

LINK_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class HostServers:
    """A fork server on every host of a run.

    Attributes:
        clients: by host name, in the order of the hosts.
        without: what they cannot do without, each with a sentence for its end: lines on which
            nothing ever comes.
    """

    clients: Mapping[str, ForkServerClient]
    without: Mapping[socket.socket, str] = field(default_factory=dict)

    def only(self, hosts: Iterable[str]) -> HostServers:
        """The servers of some of the hosts, in that order."""
        return replace(self, clients={host: self.clients[host] for host in hosts})

    @property
    def reachable(self) -> HostServers:
        """Those whose lines are not cut."""
        return self.only(host for host, client in self.clients.items() if not client.lost)

    def receive(self, timeout_s: float) -> tuple[str, Any] | None:
        """The next message of any server and its host, or None if there is none within the time.

        Raises:
            HostFault: a server is gone, and the next call listens to the others; or what they
                need is gone, and nobody has a message.
        """
        waiting = [host for host, client in self.clients.items() if client.has_message]
        if not waiting:
            listening = list(self.reachable.clients.values())
            lines = [each.fileno() for each in listening] + [each.fileno() for each in self.without]
            told = readable(lines, timeout_s)
            waiting = [client.host for client in listening if client.fileno() in told]
            ended = [reason for line, reason in self.without.items() if line.fileno() in told]
            if ended and not waiting:
                raise HostFault(ended[0])
        for host in waiting:
            message = self.clients[host].receive(0)
            if message is not None:
                return host, message
        return None

    def send_all(self, request: object) -> None:
        """Send one request to every server that can still be reached."""
        for client in self.reachable.clients.values():
            with suppress(LaunchError):  # it is known as lost now, and the others get theirs
                client.send(request)

    def give_up_silent(self, hear: Callable[[object], None]) -> list[str]:
        """Kill servers that do not answer within a few seconds; return their hosts, in order.

        Args:
            hear: is told whatever is said meanwhile.
        """
        waiting = list(self.reachable.clients)
        self.send_all(AskTime())
        deadline = time.monotonic() + SILENT_S
        while waiting and (left := deadline - time.monotonic()) > 0:
            if (heard := self.receive(left)) is not None:
                hear(heard[1])
                if isinstance(heard[1], TimeTold):
                    waiting.remove(heard[0])
        for host in waiting:
            self.clients[host].give_up()
        return waiting


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
    until: str | None
    events: dict[str, dict[str, Event]] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)

    def of(self, event: str) -> dict[str, Event]:
        """The events of a name, by host."""
        return {host: events[event] for host, events in self.events.items() if event in events}

    def ask(self, host: str, request: object) -> None:
        """Ask one host."""
        self.waiting[host] = type(request).__name__
        self.events[host] = {}
        try:
            self.servers.clients[host].send(request)
        except LaunchError as error:
            self.give_up(host, error)

    def give_up(self, host: str, reason: object) -> None:
        """No more is expected of a host; the first reason is the best."""
        self.waiting.pop(host, None)
        self.troubles.setdefault(host, str(reason).splitlines()[0])

    def listen(self, timeout_s: float) -> None:
        """Take in one message of those who have not answered."""
        servers = self.servers.only(self.waiting)
        try:
            heard = servers.receive(timeout_s)
        except LaunchError as error:
            lost = servers.clients.keys() - servers.reachable.clients.keys()
            for host in lost or servers.clients:  # without its network, none of them answers
                self.give_up(host, error)
        else:
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
    request_for: Callable[[ForkServerClient], object],
    deadline_s: float,
    until: str | None = None,
) -> Answers:
    """Have a job done on every host that can still be reached, all at once.

    Args:
        until: an event that answers the question; None: the job's end does.
    """
    answers = Answers(servers, until)
    for host, client in servers.reachable.clients.items():
        answers.ask(host, request_for(client))
    deadline = time.monotonic() + deadline_s
    while answers.waiting and (left := deadline - time.monotonic()) > 0:
        answers.listen(left)
    for host in list(answers.waiting):
        answers.give_up(host, f"no answer within {deadline_s:.0f} s")
        with suppress(LaunchError):
            servers.clients[host].send(EndAll())
    return answers


def clock_offset(client: ForkServerClient) -> float:
    """Seconds by which a host's wall clock is ahead of this one.

    From the quickest of some answers, as half of its round trip is the largest error.

    Source: Cristian, Probabilistic clock synchronization, Distributed Computing 3, 1989.
    """
    best, offset = float("inf"), 0.0
    for _ in range(CLOCK_QUESTIONS):
        begin = time.time()
        told = client.answer(AskTime(), TimeTold).time
        end = time.time()
        if end - begin < best:
            best, offset = end - begin, told - (begin + end) / 2
    return offset


def measure_links(
    servers: HostServers,
    links: Sequence[tuple[str, str]],
    address_of: Callable[[str], str],
    seconds: float = LINK_SECONDS,
) -> tuple[LinkRecord, ...]:
    """Send along all links (from, to) at once; every host sends to one other at most.

    What a host receives counts in equal shares for those that send to it.

    Raises:
        HostFault: a host cannot be reached, or a server is gone.
    """
    seen: Seen = {}
    token = secrets.token_hex(16)
    senders = Counter(target for _, target in links)
    for target, count in senders.items():
        client, address = servers.clients[target], address_of(target)
        log = client.job_log("link")
        client.send(ReceiveStream(address=address, token=token, senders=count, log=log))
    _collect(servers, {(target, "listening") for target in senders}, seen)
    for source, target in links:
        client, address = servers.clients[source], address_of(target)
        port, log = seen[target, "listening"]["port"], client.job_log("link")
        client.send(SendStream(address=address, port=port, token=token, seconds=seconds, log=log))
    _collect(servers, {end for link in links for end in _ends(*link)}, seen)
    return tuple(
        LinkRecord(
            source=source,
            target=target,
            bits_per_s=_rate(seen[target, "received"]) / senders[target],
            round_trip_s=seen[source, "sent"]["round_trip_ns"] / 1e9,
        )
        for source, target in links
    )


def _ends(source: str, target: str) -> Iterator[tuple[str, str]]:
    """What is heard when a link was measured: the results of both ends, and that they ended."""
    yield from ((source, "sent"), (source, SendStream.__name__))
    yield from ((target, "received"), (target, ReceiveStream.__name__))


def _rate(received: Mapping[str, int]) -> float:
    return received["bytes"] * 8e9 / received["ns"]


#: Numbers by host and event; the end of a process counts as an event of its name.
Seen = dict[tuple[str, str], Mapping[str, int]]


def _collect(servers: HostServers, wanted: set[tuple[str, str]], seen: Seen) -> None:
    """Take in messages until all those that are wanted have come.

    Raises:
        HostFault: something went wrong first; no process of the measurement is left.
    """
    deadline = time.monotonic() + LINK_DEADLINE_S
    try:
        while missing := wanted - seen.keys():
            left = deadline - time.monotonic()
            if left <= 0:
                silent = {host for host, _ in missing}
                hosts = ", ".join(host for host in servers.clients if host in silent)
                raise HostFault(f"links cannot be measured: nothing more is heard from {hosts}.")
            if (heard := servers.receive(left)) is not None:
                _note(*heard, seen)
    except LaunchError:
        servers.send_all(EndAll())
        raise


def _note(host: str, message: object, seen: Seen) -> None:
    match message:
        case Event(event="failed", text=text):
            raise HostFault(f"the links of {host} cannot be measured: {text}")
        case Event(event=event, counts=counts):
            seen[host, event] = counts
        case Exited(name=name):
            seen[host, name] = {}
