"""What hosts are asked: to do a job, what time it is, and how fast their links are.

Decides what counts as an answer to a question, and how hosts are measured against each other.
"""

from __future__ import annotations

import ipaddress
import secrets
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from launchers.fork_servers.client import ForkServerClient
from launchers.fork_servers.host_servers import HostServers
from ps_allreduce.errors import HostFault, LaunchError, SuiteError, TookTooLong, UserError
from ps_allreduce.fork_server.messages import AskTime, EndAll, Event, Exited, TimeTold
from ps_allreduce.inspection.questions import (
    Answer,
    Listening,
    Message,
    ReceiveStream,
    SendStream,
    StreamReceived,
    StreamSent,
)
from ps_allreduce.record.records import LinkRecord

A = TypeVar("A", bound=Answer)

CLOCK_QUESTIONS = 7

LINK_SECONDS = 0.4

#: From a host to another one.
Link = tuple[str, str]

LINK_DEADLINE_S = 30.0

#: A job that took too long is killed; its end is told within thousandths of a second.
END_DEADLINE_S = 10.0


@dataclass(slots=True)
class Answers:
    """What the hosts answered.

    Attributes:
        until: the answer after which no more is expected; None: the end of the job is waited for.
        given: in their order, by host.
        errors: why a host did not do its job; the first reason.
        waiting: the job of every host that has not answered yet.
    """

    servers: HostServers
    until: type[Answer] | None
    given: dict[str, list[Answer]] = field(default_factory=dict)
    errors: dict[str, SuiteError] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)

    def of(self, kind: type[A]) -> dict[str, A]:
        """The answer of a kind, by host."""
        return {
            host: each
            for host, all_ in self.given.items()
            for each in all_
            if isinstance(each, kind)
        }

    @property
    def troubles(self) -> dict[str, str]:
        """Why a host did not do its job, in a line."""
        return {host: str(error).splitlines()[0] for host, error in self.errors.items()}

    def ask(self, host: str, request: object) -> None:
        """Ask one host."""
        self.waiting[host] = type(request).__name__
        self.given[host] = []
        try:
            self.servers.clients[host].send(request)
        except LaunchError as error:
            self.give_up([host], error)

    def give_up(self, hosts: Iterable[str], error: SuiteError) -> None:
        """No more is expected of some hosts."""
        for host in hosts:
            self.waiting.pop(host, None)
            self.errors.setdefault(host, error)

    def hear(self, within_s: float, *, until_error: bool = False) -> bool:
        """Take in what those say who have not answered; False if that takes too long.

        Args:
            until_error: no longer than until one has failed.
        """

        def waiting() -> Iterable[str]:
            return () if until_error and self.errors else self.waiting

        return self.servers.hear(within_s, waiting, self._take, self.give_up)

    def _take(self, host: str, message: object) -> None:
        if getattr(message, "name", None) != self.waiting[host]:
            return
        match message:
            case Event(event="failed", text=text, user_error=is_mistake):
                self.errors.setdefault(host, (UserError if is_mistake else LaunchError)(text))
            case Answer():
                self.given[host].append(message)
                if self.until is not None and isinstance(message, self.until):
                    del self.waiting[host]
            case Exited(status=status):
                error = LaunchError(
                    f"the process for it ({message.name}) {_ending(status)} and gave no answer."
                )
                if status != 0 or not self.given[host]:
                    self.errors.setdefault(host, error)
                del self.waiting[host]


def ask_hosts(
    servers: HostServers,
    request_for: Callable[[ForkServerClient], object],
    deadline_s: float,
    until: type[Answer] | None = None,
) -> Answers:
    """Have a job done on every host that can still be reached, all at once.

    Args:
        until: an answer after which no more is expected; None: the job's end is waited for.
    """
    answers = Answers(servers, until)
    for host, client in servers.reachable.clients.items():
        answers.ask(host, request_for(client))
    if not answers.hear(deadline_s):
        for host, job in answers.waiting.items():
            late = TookTooLong(f"{job} took longer than {deadline_s:.0f} s.")
            answers.errors.setdefault(host, late)
            with suppress(LaunchError):
                servers.clients[host].send(EndAll())
        # Their ends are waited for, so that they are not mistaken for those of the next jobs.
        answers.hear(END_DEADLINE_S)
    return answers


def ask_each(servers: HostServers, request: Message, kind: type[A], deadline_s: float) -> list[A]:
    """Have a job done on every host, all at once, and return the answers in their order.

    Raises:
        UserError: a job found a mistake of the user's.
        LaunchError: one failed otherwise; `TookTooLong` if it did not end by itself.
    """
    answers = ask_hosts(servers, lambda _: request, deadline_s)
    given = answers.of(kind)
    for host in servers.clients:
        if host in answers.errors:
            raise answers.errors[host]
    return [given[host] for host in servers.clients]


def _ending(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


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
    links: Sequence[Link],
    address_of: Callable[[str], str],
    seconds: float = LINK_SECONDS,
) -> tuple[LinkRecord, ...]:
    """Send along links in turns (`in_turns`).

    What a host receives counts in equal shares for those that send to it in a turn.

    Raises:
        HostFault: a host cannot be reached, or a server is gone.
    """
    measured = {
        (link.source, link.target): link
        for turn in in_turns(links, list(servers.clients))
        for link in _measure_together(servers, turn, address_of, seconds)
    }
    return tuple(measured[link] for link in links)


def in_turns(links: Sequence[Link], hosts: Sequence[str]) -> list[list[Link]]:
    """The links, in turns in each of which no cable carries data in both directions.

    No host both sends and receives.  All send to hosts behind them, or all to hosts before them, so
    that a cable between racks carries data one way too, where hosts of a rack follow each other.

    Otherwise acknowledgements wait behind data in a port.  CUBIC takes the delay for a busy link,
    stops to open its window early (HyStart: Ha and Rhee, Taming the elephants, Computer Networks
    55, 2011), and the link seems slow: one of 50 Mbit/s seemed to carry 9.

    Args:
        hosts: in their order.
    """
    place = {host: number for number, host in enumerate(hosts)}
    turns: list[list[Link]] = []
    for source, target in links:
        behind = place[source] < place[target]
        for turn in turns:
            if all(
                a != target and b != source and (place[a] < place[b]) is behind for a, b in turn
            ):
                turn.append((source, target))
                break
        else:
            turns.append([(source, target)])
    return turns


def _measure_together(
    servers: HostServers,
    links: Sequence[Link],
    address_of: Callable[[str], str],
    seconds: float,
) -> Iterator[LinkRecord]:
    """Send along all links at once; every host sends to one other at most."""
    answers, token = Answers(servers, until=Listening), secrets.token_hex(16)
    senders = Counter(target for _, target in links)
    for target, count in senders.items():
        receive = ReceiveStream(address=address_of(target), token=token, senders=count)
        answers.ask(target, receive)
    called = _called(servers, links, address_of)
    _hear_of_links(answers, called)
    ports = {target: each.port for target, each in answers.of(Listening).items()}
    answers.until, answers.waiting = None, dict.fromkeys(senders, ReceiveStream.__name__)
    for source, target in links:
        address, port = address_of(target), ports[target]
        send = SendStream(address=address, port=port, token=token, seconds=seconds)
        answers.ask(source, send)
    _hear_of_links(answers, called)
    received, sent = answers.of(StreamReceived), answers.of(StreamSent)
    for source, target in links:
        yield LinkRecord(
            source=source,
            target=target,
            bits_per_s=received[target].num_bytes * 8e9 / received[target].ns / senders[target],
            round_trip_s=sent[source].round_trip_ns / 1e9,
        )


def _called(
    servers: HostServers, links: Sequence[Link], address_of: Callable[[str], str]
) -> dict[str, str]:
    """By each end of these links, what to try if its target has other networks, too.

    A host's first interface may be a bridge of containers, which leads nowhere else.
    """
    told = {}
    for source, target in links:
        interfaces, address = servers.clients[target].ready.facts.interfaces, address_of(target)
        names = {i.address: i.name for i in interfaces if not _is_loopback(i.address)}
        name = names.pop(address, "no interface of it")
        if names and not _is_loopback(address):
            told[source] = told[target] = (
                f"; {target} is called at {address} ({name}), and --interface chooses another "
                f"network ({', '.join(names.values())})"
            )
    return told


def _is_loopback(address: str) -> bool:
    """An IPv4 address that leads nowhere else."""
    return ipaddress.ip_address(address).is_loopback


def _hear_of_links(answers: Answers, called: Mapping[str, str]) -> None:
    """Hear until nothing more is expected.

    Args:
        called: what an error of each host ends with.

    Raises:
        HostFault: something went wrong first; no process of the measurement is left.
    """
    is_late = not answers.hear(LINK_DEADLINE_S, until_error=True)
    if is_late or answers.errors:
        answers.servers.send_all(EndAll())
    for host, error in answers.errors.items():
        if isinstance(error, HostFault):
            raise error
        problem = f"{str(error).rstrip('.')}{called.get(host, '')}"
        raise HostFault(f"the links of {host} cannot be measured: {problem}") from error
    if is_late:
        silent = [host for host in answers.servers.clients if host in answers.waiting]
        clauses = "".join(dict.fromkeys(called.get(host, "") for host in silent))
        raise HostFault(
            f"links cannot be measured: nothing more is heard from {', '.join(silent)}{clauses}."
        )
