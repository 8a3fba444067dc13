"""The line between a launcher and a fork server: an inherited socket, TCP, or standard streams.

Decides how a fork server gets its line.  What is said over it is not known here.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Protocol

from ps_allreduce.errors import LaunchError

CONNECT_TIMEOUT_S = 10.0


class Line(Protocol):
    """What a fork server needs of its line; a socket is one."""

    def fileno(self) -> int:
        """The descriptor that becomes readable when something has come."""

    def recv(self, size: int, /) -> bytes:
        """What has come; nothing at the end."""

    def sendall(self, content: bytes, /) -> None:
        """Send everything, or raise OSError."""

    def close(self) -> None:
        """Let go of the line."""


@dataclass(frozen=True, slots=True)
class StandardStreams:
    """Standard input and output as a line."""

    source: int
    sink: int

    def fileno(self) -> int:
        """Of the input."""
        return self.source

    def recv(self, size: int, /) -> bytes:
        """What has come; nothing at the end."""
        return os.read(self.source, size)

    def sendall(self, content: bytes, /) -> None:
        """Write everything."""
        while content:
            content = content[os.write(self.sink, content) :]

    def close(self) -> None:
        """Close both."""
        os.close(self.source)
        os.close(self.sink)


def standard_streams() -> StandardStreams:
    """Standard output belongs to the line from now on; whatever else is printed goes to the log."""
    line = StandardStreams(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return line


def connect_to(addresses: str) -> socket.socket:
    """The first address that answers: a launcher's host has several, and not all lead there.

    Args:
        addresses: `host:port`, separated by commas.

    Raises:
        LaunchError: none of them answers.
    """
    reasons = []
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        try:
            line = socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S)
        except OSError as error:
            reasons.append(f"{address}: {error}")
            continue
        line.settimeout(None)
        # A launcher's host that vanishes without a word is noticed within two minutes.
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
        return line
    raise LaunchError(f"the launcher cannot be reached from here ({'; '.join(reasons)}).")
