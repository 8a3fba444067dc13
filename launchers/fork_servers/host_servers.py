"""All fork servers of a run as one: their next message, their clocks, the links between them.

Decides how hosts are measured against each other.  What a run does on them is decided in
`launchers.run`.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from launchers.fork_servers.client import ForkServerClient
from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.messages import (
    AskTime,
    EndAll,
    Event,
    Exited,
    ReceiveStream,
    SendStream,
    TimeTold,
)
from ps_allreduce.record.records import LinkRecord

CLOCK_QUESTIONS = 7

LINK_SECONDS = 0.4

LINK_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class HostServers:
    """A fork server on every host of a run.

    Attributes:
        clients: by host name, in the order of the hosts.
    """

    clients: Mapping[str, ForkServerClient]

    def receive(self, timeout_s: float) -> tuple[str, Any] | None:
        """The next message of any server and its host, or None if there is none within the time.

        Raises:
            LaunchError: a server is gone; the next call listens to the others.
        """
        waiting = [host for host, client in self.clients.items() if client.has_message]
        if not waiting:
            reachable = [client for client in self.clients.values() if not client.lost]
            readable, _, _ = select.select(reachable, [], [], max(timeout_s, 0))
            waiting = [client.host for client in readable]
        for host in waiting:
            message = self.clients[host].receive(0)
            if message is not None:
                return host, message
        return None

    def send_all(self, request: object) -> None:
        """Send one request to every server that can still be reached."""
        for client in self.clients.values():
            if not client.lost:
                with suppress(LaunchError):  # it is known as lost now, and the others get theirs
                    client.send(request)


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
    """Send along all links (from, to) at once; every host is in `links` at most once per side.

    Raises:
        LaunchError: a host cannot be reached, or a server is gone.
    """
    seen: Seen = {}
    for _, target in links:
        client = servers.clients[target]
        client.send(ReceiveStream(address=address_of(target), log=client.job_log("link")))
    _collect(servers, {(target, "listening") for _, target in links}, seen)
    for source, target in links:
        client, port = servers.clients[source], seen[target, "listening"]["port"]
        log = client.job_log("link")
        client.send(SendStream(address=address_of(target), port=port, seconds=seconds, log=log))
    ends: set[tuple[str, str]] = set()
    for source, target in links:
        ends |= {(source, "sent"), (source, SendStream.__name__)}
        ends |= {(target, "received"), (target, ReceiveStream.__name__)}
    _collect(servers, ends, seen)
    return tuple(
        LinkRecord(
            source=source,
            target=target,
            bits_per_s=seen[target, "received"]["bytes"] * 8e9 / seen[target, "received"]["ns"],
            round_trip_s=seen[source, "sent"]["round_trip_ns"] / 1e9,
        )
        for source, target in links
    )


#: Numbers by host and event; the end of a process counts as an event of its name.
Seen = dict[tuple[str, str], Mapping[str, int]]


def _collect(servers: HostServers, wanted: set[tuple[str, str]], seen: Seen) -> None:
    """Take in messages until all those that are wanted have come.

    Raises:
        LaunchError: something went wrong first; no process of the measurement is left.
    """
    deadline = time.monotonic() + LINK_DEADLINE_S
    try:
        while missing := wanted - seen.keys():
            left = deadline - time.monotonic()
            if left <= 0:
                silent = {host for host, _ in missing}
                hosts = ", ".join(host for host in servers.clients if host in silent)
                raise LaunchError(f"links cannot be measured: nothing more is heard from {hosts}.")
            if (heard := servers.receive(left)) is not None:
                _note(*heard, seen)
    except LaunchError:
        servers.send_all(EndAll())
        raise


def _note(host: str, message: object, seen: Seen) -> None:
    match message:
        case Event(event="failed", text=text):
            raise LaunchError(f"the links of {host} cannot be measured: {text}")
        case Event(event=event, counts=counts):
            seen[host, event] = counts
        case Exited(name=name):
            seen[host, name] = {}
