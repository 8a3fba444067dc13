"""Fork servers that call their launcher: one of every host is let in, if it knows the token.

Decides that callers are served side by side, and that a stranger gets so many bytes, so many
seconds and nothing else.
"""

from __future__ import annotations

import errno
import hmac
import selectors
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from launchers.fork_servers.client import START_DEADLINE_S, ForkServerClient
from ps_allreduce.errors import HostFault
from ps_allreduce.fork_server.messages import Hello, encode

#: What a caller may take, and may say, before the token is known.
HELLO_DEADLINE_S = 5.0

HELLO_BYTES = 4096

#: Callers who may wait to be served.
BACKLOG = 1024

#: How long the program that started all of them may take to end after one fell silent.
GONE_DEADLINE_S = 30.0

#: How often it is checked whether anybody can still be expected.
LOOK_S = 0.2


def own_addresses() -> list[str]:
    """IPv4 addresses of this machine, the loopback last."""
    found = [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family is socket.AF_INET
    ]
    return sorted(found, key=lambda address: address.startswith("127."))


@dataclass(slots=True, eq=False)
class Stranger:
    """A caller who has not said the token yet."""

    connection: socket.socket
    address: str
    deadline: float
    said: bytes = b""


@dataclass(slots=True)
class Door:
    """Everybody who has called: strangers, and fork servers that import or are ready.

    Attributes:
        token: the first word of a fork server of ours.
        missing: the hosts whose fork servers are not ready.
    """

    listener: socket.socket
    token: str
    log: Path
    missing: list[str]
    selector: selectors.BaseSelector
    strangers: set[Stranger] = field(default_factory=set)
    importing: set[ForkServerClient] = field(default_factory=set)
    clients: dict[str, ForkServerClient] = field(default_factory=dict)

    def serve(self, timeout_s: float) -> bool:
        """Hear everybody who has something to say; nobody is False.

        Raises:
            HostFault: a fork server of ours has ended, or is where it should not be.
        """
        ready = self.selector.select(timeout_s)
        for key, _ in ready:
            if isinstance(key.data, Stranger):
                self._hear(key.data)
            elif isinstance(key.data, ForkServerClient):
                self._admit(key.data)
            else:
                self._accept()
        for late in [each for each in self.strangers if each.deadline < time.monotonic()]:
            self._send_away(late)
        return bool(ready)

    def close(self) -> None:
        """Hang up on everybody, and let nobody in any more."""
        self.listener.close()
        self.send_strangers_away()
        for client in [*self.importing, *self.clients.values()]:
            client.close()

    def send_strangers_away(self) -> None:
        """Hang up on whoever did not say the token."""
        for stranger in list(self.strangers):
            self._send_away(stranger)

    def _accept(self) -> None:
        try:
            connection, (address, *_) = self.listener.accept()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                return  # the caller has hung up again
            if not self.strangers:
                raise HostFault(f"no caller can be let in ({error.strerror}).") from error
            self._send_away(min(self.strangers, key=lambda each: each.deadline))
            return
        stranger = Stranger(connection, address, time.monotonic() + HELLO_DEADLINE_S)
        self.strangers.add(stranger)
        self.selector.register(connection, selectors.EVENT_READ, stranger)

    def _hear(self, stranger: Stranger) -> None:
        """Compare the first line; nothing that a stranger says is read as anything."""
        try:
            content = stranger.connection.recv(HELLO_BYTES - len(stranger.said))
        except OSError:
            content = b""
        stranger.said += content
        line, end, rest = stranger.said.partition(b"\n")
        if end and hmac.compare_digest(line + end, encode(Hello(token=self.token))):
            self._know(stranger, rest)
        elif end or not content or len(stranger.said) == HELLO_BYTES:
            self._send_away(stranger)

    def _know(self, stranger: Stranger, rest: bytes) -> None:
        self.strangers.discard(stranger)
        client = ForkServerClient(stranger.connection, self.log, stranger.address, rest)
        self.importing.add(client)
        self.selector.modify(stranger.connection, selectors.EVENT_READ, client)
        if client.has_message:
            self._admit(client)

    def _send_away(self, stranger: Stranger) -> None:
        self.strangers.discard(stranger)
        self.selector.unregister(stranger.connection)
        stranger.connection.close()

    def _admit(self, client: ForkServerClient) -> None:
        """Let a fork server in when it is ready."""
        if not client.take_ready():
            return
        facts = client.ready.facts
        name = facts.scheduler_name or facts.name
        if name not in self.missing:
            raise HostFault(
                f"a fork server came up on {name}, where none was asked for; expected: "
                f"{', '.join(self.missing)}."
            )
        self.importing.discard(client)
        self.selector.unregister(client)
        self.missing.remove(name)
        client.host = name
        self.clients[name] = client


def _serve(door: Door, gone: Callable[[], str]) -> bool:
    """Serve once; why all of them are gone tells more than that one fell silent.

    Raises:
        HostFault: a fork server of ours has ended, or is where it should not be.
    """
    try:
        return door.serve(LOOK_S)
    except HostFault as fault:
        door.close()  # so that all of them end, and the program that started them
        deadline = time.monotonic() + GONE_DEADLINE_S
        while any(client.silent for client in door.importing) and time.monotonic() < deadline:
            if reason := gone():
                raise HostFault(reason) from fault
            time.sleep(LOOK_S)
        raise


def let_in(
    listener: socket.socket,
    hosts: Collection[str],
    token: str,
    log: Path,
    gone: Callable[[], str],
) -> dict[str, ForkServerClient]:
    """Wait until a fork server of every host has called and is ready.

    Args:
        gone: why nobody is to be expected any more; empty as long as somebody is.

    Returns:
        The lines, by host, in the order of `hosts`.

    Raises:
        HostFault: not all of them called in time, or one is where it should not be.
    """
    listener.setblocking(False)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        door = Door(listener, token, log, list(hosts), selector)
        deadline = time.monotonic() + START_DEADLINE_S
        try:
            while door.missing:
                if time.monotonic() > deadline:
                    raise HostFault(
                        f"no fork server called from {', '.join(door.missing)} within "
                        f"{START_DEADLINE_S:.0f} s."
                    )
                if not _serve(door, gone) and (reason := gone()):
                    raise HostFault(reason)
            door.send_strangers_away()
        except BaseException:
            door.close()
            raise
    return {host: door.clients[host] for host in hosts}
