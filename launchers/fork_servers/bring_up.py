"""How fork servers come up: those that this process starts, and those that call their launcher.

Decides that a started one serves until it is lost or silent, and is then started again.  Of those
that call, one of every host is let in if it knows the token (`ps_allreduce.entrance`); decides how
long a stranger is listened to.
"""

from __future__ import annotations

import selectors
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from launchers.fork_servers.client import START_DEADLINE_S, ForkServerClient
from launchers.processes import ChildProcess
from ps_allreduce.entrance import Caller, Entrance
from ps_allreduce.errors import HostFault
from ps_allreduce.fork_server.messages import Hello, encode
from ps_allreduce.scratch import scratch_folder, scratch_parent

#: What a caller may take before the token is known.
HELLO_DEADLINE_S = 5.0

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


@dataclass(slots=True)
class Door:
    """Everybody who has called: strangers, and fork servers that import or are ready.

    Attributes:
        entrance: where they call, and where the strangers are.
        missing: the hosts whose fork servers are not ready.
    """

    entrance: Entrance
    log: Path
    missing: list[str]
    importing: set[ForkServerClient] = field(default_factory=set)
    clients: dict[str, ForkServerClient] = field(default_factory=dict)

    def serve(self, timeout_s: float) -> bool:
        """Hear everybody who has something to say; nobody is False.

        Raises:
            HostFault: a fork server of ours has ended, or is where it should not be.
        """
        ready = self.entrance.selector.select(timeout_s)
        for key, _ in ready:
            if isinstance(key.data, ForkServerClient):
                self._admit(key.data)
            elif (caller := self.entrance.serve(key)) is not None:
                self._know(caller)
        self.entrance.send_away(time.monotonic())
        return bool(ready)

    def close(self) -> None:
        """Hang up on everybody, and let nobody in any more."""
        self.entrance.listener.close()
        self.entrance.send_away()
        for client in [*self.importing, *self.clients.values()]:
            client.close()

    def who_is_late(self) -> str:
        """Who is not ready in time, and how many have called: who is who they say when ready."""
        names, called = ", ".join(self.missing), len(self.importing)
        if not called:
            return f"no fork server called from {names} within {START_DEADLINE_S:.0f} s."
        return (
            f"of the fork servers on {names}, {called} called and are not ready within "
            f"{START_DEADLINE_S:.0f} s: TensorFlow's import takes longer there, as from a slow "
            "file system."
        )

    def _know(self, caller: Caller) -> None:
        client = ForkServerClient(caller.connection, self.log, caller.address)
        self.importing.add(client)
        self.entrance.selector.register(client, selectors.EVENT_READ, client)

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
        self.entrance.selector.unregister(client)
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
    word = encode(Hello(token=token))
    with selectors.DefaultSelector() as selector:
        door = Door(Entrance(listener, word, selector, HELLO_DEADLINE_S), log, list(hosts))
        deadline = time.monotonic() + START_DEADLINE_S
        try:
            while door.missing:
                if time.monotonic() > deadline:
                    raise HostFault(door.who_is_late())
                if not _serve(door, gone) and (reason := gone()):
                    raise HostFault(reason)
            door.entrance.send_away()
        except BaseException:
            door.close()
            raise
    return {host: door.clients[host] for host in hosts}


class StartedForkServer(ABC):
    """A fork server, and the program by which it was started.

    Args:
        host: the host name that the launcher knows it by.
    """

    def __init__(self, host: str) -> None:
        self.host = host
        self._folder = ExitStack()
        self._program: ChildProcess | None = None
        self._client: ForkServerClient | None = None

    @abstractmethod
    def _start_program(self, log: Path) -> ChildProcess:
        """Start the program; what it prints goes to a log."""

    def _wait_ready(self, client: ForkServerClient) -> None:
        client.wait_ready()

    def start(self) -> None:
        """Start it unless it runs and answers; it may not be ready yet."""
        running = self._program is not None and self._program.status() is None
        if running and self._client is not None and self._client.is_well():
            return
        self.close()
        # The folder is made now: a site that refuses its work has none to remove.
        folder = self._folder.enter_context(scratch_folder(scratch_parent()))
        log = folder / "fork_server.log"
        program = self._program = self._start_program(log)
        self._client = ForkServerClient(program.connection, log, self.host)

    def client(self) -> ForkServerClient:
        """The line to it, once it is ready.

        Raises:
            HostFault: it does not come up.
            UserError: its host has another checkout.
        """
        self.start()
        assert self._program is not None
        assert self._client is not None
        if not self._client.is_ready:
            try:
                self._wait_ready(self._client)
            except BaseException:
                self.close()
                raise
        return self._client

    def hang_up(self) -> None:
        """Cut the line, by which the server ends and kills what it forked; wait for nothing."""
        if self._client is not None:
            self._client.close()

    def close(self) -> None:
        """End the server, and everything it forked; remove its log."""
        if self._program is not None:
            self._program.end()
        self._folder.close()
        self._program = self._client = None
