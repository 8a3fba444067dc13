"""The launcher's side of an emulated network: ask for one, and run commands on its hosts.

Decides nothing about how a network is built; it starts the holder, and ends it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from launchers.fork_servers.client import fork_server_environment
from launchers.processes import Program, start_with_socket
from launchers.sites.emulated.messages import Held, HoldNetwork, decode, encode
from launchers.sites.emulated.namespaces import (
    enter_words,
    explain_refusal,
    needs_user_namespace,
    read_settings,
    unshare_words,
)
from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.point.network import EmulatedNetwork

HOLDER = (sys.executable, "-m", "launchers.sites.emulated.holder")

DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedHost:
    """A host of an emulated network.

    Attributes:
        interface: its link to the switch; there is no other besides `lo`.
        enter: the words to put before a command that runs on this host.
    """

    name: str
    address: str
    interface: str
    enter: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldNetwork:
    """An emulated network that exists."""

    hosts: tuple[EmulatedHost, ...]


@contextmanager
def hold_network(network: EmulatedNetwork, names: Sequence[str]) -> Iterator[HeldNetwork]:
    """A network for as long as the context lasts; end what runs on its hosts before that.

    It also ends when the thread that asked for it does.

    Args:
        names: of the hosts, as `hostname` tells on them.

    Raises:
        UserError: the names are wrong, or this machine cannot or does not allow it.
        LaunchError: the network could not be built.
    """
    request = HoldNetwork(network=network, names=tuple(names))
    with_user = needs_user_namespace()
    with tempfile.TemporaryFile() as log:
        program = start_with_socket(
            (*unshare_words(with_user), *HOLDER),
            # The file has no name that could stay behind.
            Path(f"/proc/self/fd/{log.fileno()}"),
            # Without LC_ALL, `unshare` would complain in the user's language.
            fork_server_environment(os.environ) | {"LC_ALL": "C"},
        )
        try:
            held = _ask(program, request)
            if held is None:
                raise _reason(log)
            yield _entered(held, with_user)
        finally:
            program.end()


def _ask(program: Program, request: HoldNetwork) -> Held | None:
    """The holder's answer; None if it ended without one."""
    program.connection.settimeout(DEADLINE_S)
    try:
        program.connection.sendall(encode(request))
        with program.connection.makefile("rb") as lines:
            line = lines.readline()
    except OSError:
        return None
    return decode(Held, line) if line else None


def _reason(log: BinaryIO) -> UserError | LaunchError:
    """Why there was no answer, by what the holder, or `unshare` before it, printed."""
    log.seek(0)
    text = log.read().decode(errors="replace").strip()
    program, _, complaint = text.partition(": ")
    if program == "unshare" and not complaint.startswith("failed to execute"):
        return UserError(explain_refusal(complaint, read_settings()))
    return LaunchError(f"the emulated network could not be built:\n{text or '(no output)'}")


def _entered(held: Held, with_user: bool) -> HeldNetwork:
    if held.error:
        raise (UserError if held.user_error else LaunchError)(held.error)
    return HeldNetwork(
        hosts=tuple(
            EmulatedHost(
                name=host.name,
                address=host.address,
                interface=host.interface,
                enter=enter_words(held.pid, host.net, host.uts, with_user),
            )
            for host in held.hosts
        )
    )
