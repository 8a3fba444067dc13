"""Who may take part when hosts are measured against each other: whoever says the token first.

Decides that a stranger gets no answer and holds up nobody.
"""

from __future__ import annotations

import hmac
import selectors
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Hall:
    """Who has connected to a listening socket: strangers with what they have said, and callers."""

    server: socket.socket
    token: bytes
    selector: selectors.BaseSelector
    strangers: dict[socket.socket, bytes] = field(default_factory=dict)
    callers: list[socket.socket] = field(default_factory=list)

    def serve(self, timeout_s: float) -> None:
        """Hear everybody who has something to say."""
        for key, _ in self.selector.select(timeout_s):
            if key.fileobj is self.server:
                with suppress(OSError):  # who called has hung up again
                    stranger, _ = self.server.accept()
                    self.strangers[stranger] = b""
                    self.selector.register(stranger, selectors.EVENT_READ)
            elif isinstance(key.fileobj, socket.socket):
                self._hear(key.fileobj)

    def _hear(self, stranger: socket.socket) -> None:
        said = self.strangers[stranger]
        content = b""
        with suppress(OSError):
            content = stranger.recv(len(self.token) - len(said))
        self.strangers[stranger] = said = said + content
        if content and len(said) < len(self.token):
            return
        del self.strangers[stranger]
        self.selector.unregister(stranger)
        if hmac.compare_digest(said, self.token):
            self.callers.append(stranger)
        else:
            stranger.close()


def accept_known(
    server: socket.socket, count: int, token: str, within_s: float
) -> list[socket.socket]:
    """The first connections on which the token comes, in blocking mode.

    Args:
        server: listens.

    Raises:
        TimeoutError: there are fewer within so many seconds.
    """
    server.setblocking(False)
    deadline = time.monotonic() + within_s
    with selectors.DefaultSelector() as selector:
        selector.register(server, selectors.EVENT_READ)
        hall = _Hall(server, token.encode(), selector)
        try:
            while len(hall.callers) < count:
                if (left := deadline - time.monotonic()) <= 0:
                    raise TimeoutError(f"{len(hall.callers)} of {count} hosts called in time")
                hall.serve(left)
            return hall.callers[:count]
        finally:
            complete = len(hall.callers) >= count
            for each in [*hall.strangers, *hall.callers[count if complete else 0 :]]:
                each.close()
