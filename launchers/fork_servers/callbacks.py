"""Fork servers that call back: they are started elsewhere and connect to the launcher.

Decides who is let in: one fork server of every host that was asked for, if it knows the token.
"""

from __future__ import annotations

import hmac
import socket
import time
from collections.abc import Callable, Collection
from pathlib import Path

import psutil

from launchers.fork_servers.client import START_DEADLINE_S, ForkServerClient
from ps_allreduce.errors import LaunchError

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
