"""A launcher's end of the line to one fork server.

Decides nothing about runs: it sends requests and hands out what comes back.  Who starts the server,
and where, is the sites' business.
"""

from __future__ import annotations

import base64
import select
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from ps_allreduce.errors import HostFault, LaunchError, UserError, in_a_sentence
from ps_allreduce.fork_server import messages
from ps_allreduce.fork_server.messages import AskTime, FileRead, Leaving, ReadFile, Ready, TimeTold
from ps_allreduce.model_files import PIECE_BYTES
from ps_allreduce.record.provenance import PROGRAM, ROOT, program_digest

START_DEADLINE_S = 120.0

ANSWER_DEADLINE_S = 30.0

#: A fork server that does nothing else answers within thousandths of a second.
SILENT_S = 4.0

#: So much may a login shell print before the fork server, whose standard output it has as well.
MAX_GREETING_LINES = 1000

FIRST_BYTES = b'{"type":'

T = TypeVar("T")


def readable(descriptors: Iterable[int], timeout_s: float) -> list[int]:
    """Those at which something has come, or whose other end is closed, within some seconds.

    Not `select`, which knows no descriptor from 1024 on.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(max(timeout_s, 0) * 1e3)]


class ForkServerClient:
    """The line to a fork server that runs.

    Whatever is sent or awaited raises a `HostFault` if the server is gone.

    Attributes:
        host: its host's name, as the launcher calls it.
        log: what its program prints.
        lost: the line is cut.
        silent: it is lost because nothing was heard of the server.
        greeting: what came before the first message, and is no message.
    """

    def __init__(self, connection: socket.socket, log: Path, host: str) -> None:
        self.host = host
        self.lost = self.silent = False
        self.greeting = b""
        self._ready: Ready | None = None
        self._connection = connection
        # A server that is stopped reads nothing, and at some time no more can be sent.
        patience = struct.pack("ll", int(ANSWER_DEADLINE_S), 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        self.log = log
        self._partial = b""

    def wait_ready(self) -> None:
        """Take in the server's first message.

        Raises:
            HostFault: it does not come, or speaks of another version.
            UserError: its host has another program than this one, or has one now.
        """
        try:
            message = self._first_message()
        except TimeoutError as error:
            raise HostFault(
                f"no fork server came up on {self.host} within {START_DEADLINE_S:.0f} s: "
                "TensorFlow's import takes longer there, or something before it waits for an "
                "answer."
            ) from error
        except LaunchError:
            message = None
        self._take_first(message)

    def take_ready(self) -> bool:
        """Take in the server's first message if it has come; wait for nothing."""
        try:
            message = self.receive(0)
        except LaunchError:
            self.silent = True
            self._take_first(None)
        if message is not None:
            self._take_first(message)
        return message is not None

    def _take_first(self, message: object) -> None:
        if isinstance(message, Leaving):
            self.lost = True
            raise HostFault(f"no fork server came up on {self.host}: {message.reason}.")
        if not isinstance(message, Ready):
            raise HostFault(
                f"no fork server came up on {self.host}: TensorFlow could not be imported there."
                f"\nThe last lines of {self.log}:\n{last_lines(self.log)}"
            )
        self._ready = message
        if message.version != messages.VERSION:
            self.lost = True
            raise HostFault(
                f"the fork server on {self.host} speaks version {message.version} of the protocol "
                f"and this one {messages.VERSION}: use the same checkout on all hosts."
            )
        if message.program != program_digest():
            raise UserError(
                f"{ROOT / PROGRAM} on {self.host} is not the program that this command began with: "
                "all hosts need the same checkout, with the same changes ('make hosts' copies it), "
                "and nobody may change it while runs are made. The same command goes on with the "
                "program that is there now, and pools nothing of both."
            )

    def _first_message(self) -> Any | None:
        deadline = time.monotonic() + START_DEADLINE_S
        for _ in range(MAX_GREETING_LINES):
            line = self._next_line(deadline - time.monotonic())
            if line is None:
                raise TimeoutError
            greeting, begin, rest = line.partition(FIRST_BYTES)
            self.greeting += greeting if begin else line + b"\n"
            if begin:
                return messages.decode(begin + rest)
        return None

    @property
    def is_ready(self) -> bool:
        """Its first message has come."""
        return self._ready is not None

    @property
    def ready(self) -> Ready:
        """What it said of itself; `wait_ready` comes first."""
        if self._ready is None:
            raise ValueError(f"the fork server on {self.host} is not ready")
        return self._ready

    def fileno(self) -> int:
        """Readable when something has come."""
        return self._connection.fileno()

    @property
    def has_message(self) -> bool:
        """A whole message has been read already."""
        return b"\n" in self._partial

    def send(self, request: object) -> None:
        """Send one request."""
        try:
            self._connection.sendall(messages.encode(request))
        except OSError as error:
            raise self._gone(f" ({error.strerror})") from error

    def receive(self, timeout_s: float) -> Any | None:
        """The next message, or None if there is none within the time."""
        line = self._next_line(timeout_s)
        message = None if line is None else messages.decode(line)
        if isinstance(message, Leaving) and self.is_ready:
            self.lost = True
            raise HostFault(f"the fork server on {self.host} ended: {message.reason}.")
        return message

    def _next_line(self, timeout_s: float) -> bytes | None:
        deadline = time.monotonic() + timeout_s
        while not self.has_message:
            left = deadline - time.monotonic()
            if not readable([self.fileno()], left):
                return None
            try:
                content = self._connection.recv(1 << 18)
            except OSError:
                content = b""
            if not content:
                raise self._gone("")
            self._partial += content
        line, self._partial = self._partial.split(b"\n", 1)
        return line

    def _gone(self, detail: str) -> HostFault:
        self.lost = True
        return HostFault(
            f"the fork server on {self.host}, from which its tasks are forked, ended{detail}.\n"
            f"The last lines of its log:\n{last_lines(self.log)}"
        )

    def answer(self, request: object, kind: type[T]) -> T:
        """Send a request and return the answer, passing over reports that come in between.

        Raises:
            HostFault: there is no answer.
        """
        self.send(request)
        for message in self._messages(ANSWER_DEADLINE_S):
            if isinstance(message, kind):
                return message
        self.give_up()
        raise HostFault(
            f"the fork server on {self.host} does not answer within {ANSWER_DEADLINE_S:.0f} s."
        )

    def _messages(self, within_s: float) -> Iterator[Any]:
        deadline = time.monotonic() + within_s
        while (left := deadline - time.monotonic()) > 0:
            if (message := self.receive(left)) is not None:
                yield message

    def fetch(self, source: str, target: Path) -> None:
        """Copy a file from the server's host; none is written where there is none."""
        offset, size = 0, None
        while size is None or offset < size:
            request = ReadFile(path=source, offset=offset, length=PIECE_BYTES)
            piece = self.answer(request, FileRead)
            content = base64.b64decode(piece.content)
            if piece.size is None or (not content and piece.size):
                return
            try:
                with target.open("ab") as stream:
                    stream.write(content)
            except OSError as error:
                raise in_a_sentence(error) from error
            offset, size = offset + len(content), piece.size

    def is_well(self) -> bool:
        """It imports still, or answers; one that is silent is given up."""
        if self.lost or not self.is_ready:
            return not self.lost
        try:
            self.send(AskTime())
            return any(isinstance(message, TimeTold) for message in self._messages(SILENT_S))
        except LaunchError:
            return False

    def give_up(self) -> None:
        """Expect nothing more of a server that is silent; its guard kills it with the line."""
        self.silent = True
        self.close()

    def close(self) -> None:
        """Cut the line, which ends the server and everything it forked."""
        self.lost = True
        self._connection.close()


def last_lines(path: Path, count: int = 12) -> str:
    """The end of a log, for a message."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-count:])
    except OSError:
        return "(no log)"
