"""Who is let in at a listening socket: whoever says an agreed word first.

Decides that strangers are heard side by side, so that one holds up nobody, and that each gets so
many bytes, so many seconds and no answer.
"""

from __future__ import annotations

import errno
import hmac
import selectors
import socket
import time
from dataclasses import dataclass, field

from ps_allreduce.errors import HostFault


@dataclass(slots=True, eq=False)
class Caller:
    """Who has called; a stranger until the word is said."""

    connection: socket.socket
    address: str
    deadline: float
    said: bytes = b""


@dataclass(slots=True)
class Entrance:
    """A listening socket, and the strangers who have called.

    Attributes:
        word: what makes a stranger known; nothing else that one says is read.
        selector: tells who has something to say; others may be registered there as well.
        patience_s: how long a stranger may take.
    """

    listener: socket.socket
    word: bytes
    selector: selectors.BaseSelector
    patience_s: float
    strangers: set[Caller] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ)

    def serve(self, key: selectors.SelectorKey) -> Caller | None:
        """Hear whom the selector has told of; return who is known now, in blocking mode.

        Raises:
            HostFault: this process can have no more connections.
        """
        if key.fileobj is self.listener:
            self._accept()
        elif key.data in self.strangers:  # who has not been sent away since
            return self._hear(key.data)
        return None

    def _accept(self) -> None:
        try:
            connection, (address, *_) = self.listener.accept()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                return  # the caller has hung up again
            if not self.strangers:
                raise HostFault(f"no caller can be let in ({error.strerror}).") from error
            self._hang_up(min(self.strangers, key=lambda each: each.deadline))
            return
        stranger = Caller(connection, address, time.monotonic() + self.patience_s)
        self.strangers.add(stranger)
        self.selector.register(connection, selectors.EVENT_READ, stranger)

    def _hear(self, stranger: Caller) -> Caller | None:
        try:
            content = stranger.connection.recv(len(self.word) - len(stranger.said))
        except OSError:
            content = b""
        stranger.said += content
        if hmac.compare_digest(stranger.said, self.word):
            self._forget(stranger)
            return stranger
        if not content or len(stranger.said) == len(self.word):
            self._hang_up(stranger)
        return None

    def send_away(self, before: float = float("inf")) -> None:
        """Hang up on the strangers whose time is up by then, or on all."""
        for late in [each for each in self.strangers if each.deadline < before]:
            self._hang_up(late)

    def _hang_up(self, stranger: Caller) -> None:
        self._forget(stranger)
        stranger.connection.close()

    def _forget(self, stranger: Caller) -> None:
        self.strangers.discard(stranger)
        self.selector.unregister(stranger.connection)


def accept_known(
    server: socket.socket, count: int, token: str, within_s: float
) -> list[socket.socket]:
    """The first connections on which the token comes, in blocking mode.

    Args:
        server: listens.

    Raises:
        TimeoutError: there are fewer within so many seconds.
    """
    deadline = time.monotonic() + within_s
    known: list[socket.socket] = []
    with selectors.DefaultSelector() as selector:
        entrance = Entrance(server, token.encode(), selector, within_s)
        while len(known) < count and (left := deadline - time.monotonic()) > 0:
            heard = [entrance.serve(key) for key, _ in selector.select(left)]
            known += [each.connection for each in heard if each is not None]
        entrance.send_away()
    is_complete = len(known) >= count
    for each in known[count if is_complete else 0 :]:
        each.close()
    if not is_complete:
        raise TimeoutError(f"{len(known)} of {count} hosts called in time")
    return known[:count]
