"""Ports that nobody else can take between choosing and using them.

A port is held by a socket that is bound but does not listen; TensorFlow's server binds the same
port with SO_REUSEPORT (`TF_GRPC_REUSE_PORT`), and connections reach only the one that listens.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self

from ps_allreduce.errors import LaunchError


class HeldPorts:
    """Free TCP ports of this machine, held for as long as the context lasts."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        try:
            for _ in range(self._count):
                self._sockets.append(_hold())
        except OSError as error:
            self.__exit__(None, None, None)
            raise LaunchError(
                f"no free port on this machine ({error.strerror}); close other programs and retry."
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for held in self._sockets:
            held.close()

    @property
    def numbers(self) -> list[int]:
        """The ports, in a fixed order."""
        return [held.getsockname()[1] for held in self._sockets]


def _hold() -> socket.socket:
    """Bind all addresses of both families, as TensorFlow's server will, to one free port."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family is socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.bind(("", 0))
    except OSError:
        held.close()
        raise
    return held
