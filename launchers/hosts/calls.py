"""One command on one host, from its start to its end.

Decides how long a host may be silent, and that a command that is given up ends there, too.  What it
needs comes on its standard input, and all that it and ssh say goes to a log.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from socket import SHUT_WR
from threading import Event
from typing import TYPE_CHECKING

from launchers.processes import start_with_standard_streams
from launchers.sites.ssh.command_line import REACHED, ssh_command
from launchers.sites.ssh.hostfile import SshHost
from ps_allreduce.errors import HostFault, LaunchError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

#: Until the shell of a host says that it is there.
ANSWER_DEADLINE_S = 15.0

#: Without a sign of life from a command that works.
SILENCE_S = 600.0

POLL_S = 0.1

NUM_BYTES_READ = 65536


class HostCall(io.BufferedIOBase):
    """A command on a host while it runs; what is written goes to its standard input.

    Args:
        command: for the shell there.
        log: what is said is appended.
        stop: set when everybody is to end.
    """

    def __init__(self, host: SshHost, command: str, log: Path, stop: Event) -> None:
        self._host = host
        self._log = log
        self._stop = stop
        self._begin = log.stat().st_size if log.exists() else 0
        self._heard = 0
        self._answered = False
        self._started = self._moved = time.monotonic()
        self._program = start_with_standard_streams(ssh_command(host, command), log, os.environ)
        self._program.connection.settimeout(POLL_S)

    def write(self, data: ReadableBuffer, /) -> int:
        """Send something to the command's standard input.

        Raises:
            ConnectionError: the command has ended.
            HostFault: the host does not answer, or takes nothing for too long.
            LaunchError: everybody is to end.
        """
        rest = memoryview(data).cast("B")
        while rest:
            self._look_after()
            with suppress(TimeoutError):
                rest = rest[self._program.connection.send(rest) :]
                self._moved = time.monotonic()
        return memoryview(data).nbytes

    def status(self) -> int:
        """Wait for the end of the command: the status that ssh ends with.

        Raises:
            HostFault: the host does not answer, or is silent for too long.
            LaunchError: everybody is to end.
        """
        while (status := self._program.status()) is None:
            self._look_after()
            self._pass_over_greeting()
        return status

    def _pass_over_greeting(self) -> None:
        """Read what a shell prints of its own accord, as it would fill the line; or wait a bit."""
        try:
            is_over = not self._program.connection.recv(NUM_BYTES_READ)
        except TimeoutError:
            return
        except ConnectionError:
            is_over = True
        if is_over:
            time.sleep(POLL_S)

    def close_input(self) -> None:
        """Say that there is no more to come."""
        with suppress(OSError):  # it has ended
            self._program.connection.shutdown(SHUT_WR)

    def said(self) -> str:
        """What ssh and the command have said."""
        with self._log.open("rb") as stream:
            stream.seek(self._begin)
            return stream.read().decode(errors="replace")

    def end(self) -> None:
        """Cut the line if it is still there; what runs at its other end ends as well."""
        self._program.end()

    def _look_after(self) -> None:
        if self._stop.is_set():
            raise LaunchError(f"the work on {self._host.name} was given up.")
        now, heard = time.monotonic(), self._log.stat().st_size
        if heard != self._heard:
            self._heard, self._moved = heard, now
        self._answered = self._answered or REACHED in self.said()
        if now - self._started > ANSWER_DEADLINE_S and not self._answered:
            raise HostFault(
                f"{self._host.name} does not answer within {ANSWER_DEADLINE_S:g} s: see that "
                f"'ssh {self._host.destination}' works by hand."
            )
        if now - self._moved > SILENCE_S:
            raise HostFault(f"{self._host.name} was silent for {SILENCE_S / 60:g} minutes.")


def run_on(
    host: SshHost,
    command: str,
    log: Path,
    stop: Event,
    feed: Callable[[io.BufferedIOBase], object] | None,
) -> tuple[int, str]:
    """Run a command on a host: the status that ssh ends with, and what was said.

    Args:
        feed: writes what the command reads; None if its input stays open until it ends.

    Raises:
        HostFault: the host does not answer, or is silent for too long.
        LaunchError: everybody is to end.
    """
    call = HostCall(host, command, log, stop)
    try:
        if feed is not None:
            with suppress(ConnectionError):  # it has ended early, and its status says so
                feed(call)
            call.close_input()
        return call.status(), call.said()
    finally:
        call.end()
