"""The line between a launcher and a fork server: an inherited socket, TCP, or standard streams.

Decides how a fork server gets its line, not what is said over it.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from ps_allreduce.errors import LaunchError

CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Line:
    """Descriptors to read from and to write to; of a socket they are the same."""

    source: int
    sink: int

    def fileno(self) -> int:
        """The descriptor that becomes readable when something has come."""
        return self.source

    def recv(self, size: int) -> bytes:
        """What has come; nothing at the end."""
        return os.read(self.source, size)

    def sendall(self, content: bytes) -> None:
        """Send everything, or raise OSError."""
        send_all(self.sink, content)

    def close(self) -> None:
        """Let go of the line."""
        for descriptor in {self.source, self.sink}:
            os.close(descriptor)


def send_all(sink: int, content: bytes) -> None:
    """Write everything to a descriptor, or raise OSError."""
    while content:
        content = content[os.write(sink, content) :]


def standard_streams() -> Line:
    """A line that takes standard output for itself; what is printed from now on goes to the log."""
    line = Line(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return line


def open_line(descriptor: int | None, addresses: str | None) -> Line:
    """The line over an inherited socket, or over TCP.

    Raises:
        LaunchError: nobody can be reached at the addresses.
    """
    return connect_to(addresses or "") if descriptor is None else Line(descriptor, descriptor)


def connect_to(addresses: str) -> Line:
    """A line to the first address that answers; not all addresses of a host can be reached.

    Args:
        addresses: `host:port`, separated by commas.

    Raises:
        LaunchError: none of them answers.
    """
    reasons = []
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        try:
            connection = socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S)
        except OSError as error:
            reasons.append(f"{address}: {error}")
            continue
        connection.settimeout(None)
        # A launcher's host that goes down without closing the line is noticed within two minutes.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
        descriptor = connection.detach()
        return Line(descriptor, descriptor)
    raise LaunchError(f"the launcher cannot be reached from here ({'; '.join(reasons)}).")
