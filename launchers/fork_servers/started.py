"""How fork servers come up: started by this process, or elsewhere, from where they call back.

Decides that one which is started here serves until it is lost, and is then started again.  Of those
that call back one of every host that was asked for is let in, if it knows the token.
"""

from __future__ import annotations

import hmac
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from launchers.fork_servers.client import START_DEADLINE_S, ForkServerClient
from launchers.processes import ChildProcess
from ps_allreduce.errors import LaunchError
from ps_allreduce.scratch import scratch_prefix


class StartedForkServer(ABC):
    """A fork server, and the program by which it was started.

    Args:
        host: the host name that the launcher knows it by.
    """

    def __init__(self, host: str) -> None:
        self.host = host
        self._folder: TemporaryDirectory[str] | None = None
        self._program: ChildProcess | None = None
        self._client: ForkServerClient | None = None

    @abstractmethod
    def _start_program(self, log: Path) -> ChildProcess:
        """Start the program; what it prints goes to a log."""

    def _wait_ready(self, client: ForkServerClient) -> None:
        client.wait_ready()

    def start(self) -> None:
        """Start it unless it runs; it may not be ready yet."""
        running = self._program is not None and self._program.status() is None
        if running and self._client is not None and not self._client.lost:
            return
        self.close()
        # The folder is made now: a site that refuses its work has none to remove.
        self._folder = TemporaryDirectory(prefix=scratch_prefix(), ignore_cleanup_errors=True)
        log = Path(self._folder.name) / "fork_server.log"
        self._program = self._start_program(log)
        self._client = ForkServerClient(self._program.connection, log, self.host)

    def client(self) -> ForkServerClient:
        """The line to it, once it is ready.

        Raises:
            LaunchError: it does not come up.
            UserError: its host has another checkout.
        """
        self.start()
        assert self._program is not None
        assert self._client is not None
        if not self._client.is_ready:
            try:
                self._wait_ready(self._client)
            except BaseException:
                # Still importing, it would not notice for seconds that nobody listens any more.
                self._program.kill()
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
        if self._folder is not None:
            self._folder.cleanup()
        self._program = self._client = self._folder = None


HELLO_DEADLINE_S = 10.0

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


def let_in(
    listener: socket.socket,
    hosts: Collection[str],
    token: str,
    log: Path,
    gone: Callable[[], str],
) -> dict[str, ForkServerClient]:
    """Wait until a fork server of every host has called.

    Args:
        gone: why nobody is to be expected any more; empty as long as somebody is.

    Returns:
        The lines, by host, in the order of `hosts`.

    Raises:
        LaunchError: not all of them called in time, or one is where it should not be.
    """
    clients: dict[str, ForkServerClient] = {}
    deadline = time.monotonic() + START_DEADLINE_S
    listener.settimeout(LOOK_S)
    try:
        while missing := [host for host in hosts if host not in clients]:
            if time.monotonic() > deadline:
                raise LaunchError(
                    f"no fork server called from {', '.join(missing)} within "
                    f"{START_DEADLINE_S:.0f} s."
                )
            client = _next_caller(listener, token, log)
            if client is not None:
                _admit(client, missing, clients)
            elif reason := gone():
                raise LaunchError(reason)
    except BaseException:
        for client in clients.values():
            client.close()
        raise
    return {host: clients[host] for host in hosts}


def _next_caller(listener: socket.socket, token: str, log: Path) -> ForkServerClient | None:
    """Whoever calls next and knows the token; None if nobody does for a moment."""
    try:
        connection, (address, *_) = listener.accept()
    except TimeoutError:
        return None
    connection.settimeout(None)
    client = ForkServerClient(connection, log, address)
    try:
        client.wait_ready(HELLO_DEADLINE_S)
    except LaunchError:
        if _knows(client, token):
            client.close()
            raise  # one of ours, of another version
    if _knows(client, token):
        return client
    client.close()
    return None


def _knows(client: ForkServerClient, token: str) -> bool:
    return client.is_ready and hmac.compare_digest(client.ready.token.encode(), token.encode())


def _admit(
    client: ForkServerClient, missing: Collection[str], clients: dict[str, ForkServerClient]
) -> None:
    facts = client.ready.facts
    name = facts.scheduler_name or facts.name
    if name not in missing:
        client.close()
        raise LaunchError(
            f"a fork server came up on {name}, where none was asked for; expected: "
            f"{', '.join(missing)}."
        )
    client.host = name
    clients[name] = client
