"""One command on one host, from its start to its end.

Decides how long a host may be silent, and that a command that is given up ends there, too.  All
that it and ssh say goes to a log.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event

import psutil

from launchers.processes import start_with_input
from launchers.sites.ssh.command_line import REACHED, ssh_command
from launchers.sites.ssh.hostfile import SshHost
from ps_allreduce.errors import HostFault, LaunchError

#: Until the shell of a host says that it is there.
ANSWER_DEADLINE_S = 15.0

#: Without a sign of life from a command that works.
SILENCE_S = 600.0

POLL_S = 0.1

#: Of tar, where a file is gone or changes meanwhile, as those of editors.  Source: tar(1).
VANISHED = 1


class HostCall:
    """A command on a host while it runs.

    Args:
        command: for the shell there.
        log: what is said is appended.
        stop: set when everybody is to end.
        source: the command here whose output is its input; none: its input stays open and empty.
    """

    def __init__(
        self, host: SshHost, command: str, log: Path, stop: Event, source: Sequence[str]
    ) -> None:
        self._host = host
        self._log = log
        self._stop = stop
        self._begin = log.stat().st_size if log.exists() else 0
        self._seen = (0, 0)
        self._answered = False
        self._started = self._moved = time.monotonic()
        self._words = source
        words = ssh_command(host, command)
        self._program, self._source = start_with_input(words, log, os.environ, source)

    def status(self) -> int:
        """Wait for the end of the command: the status that ssh ends with.

        Raises:
            HostFault: the host does not answer or is silent for too long, or the source failed.
            LaunchError: everybody is to end.
        """
        while (status := self._program.status(within_s=POLL_S)) is None:
            self._look_after()
        failed = 0 if status or self._source is None else self._source.process.wait()
        if failed not in (0, VANISHED):
            raise HostFault(
                f"what {self._host.name} is to get cannot be read: '{shlex.join(self._words)}' "
                f"ended with status {failed} here."
            )
        return status

    def said(self) -> str:
        """What ssh and the command have said."""
        with self._log.open("rb") as stream:
            stream.seek(self._begin)
            return stream.read().decode(errors="replace")

    def end(self) -> None:
        """Cut the line if it is still there; what runs at its other end ends as well."""
        if self._source is not None and self._source.status() is None:
            self._source.kill()
        self._program.end()

    def _look_after(self) -> None:
        if self._stop.is_set():
            raise LaunchError(f"the work on {self._host.name} was given up.")
        now, seen = time.monotonic(), (self._log.stat().st_size, self._num_sent())
        if seen != self._seen:
            self._seen, self._moved = seen, now
        self._answered = self._answered or REACHED in self.said()
        if now - self._started > ANSWER_DEADLINE_S and not self._answered:
            raise HostFault(
                f"{self._host.name} does not answer within {ANSWER_DEADLINE_S:g} s: see that "
                f"'ssh {self._host.destination}' works by hand."
            )
        if now - self._moved > SILENCE_S:
            raise HostFault(f"{self._host.name} was silent for {SILENCE_S / 60:g} minutes.")

    def _num_sent(self) -> int:
        """Bytes that the source has written: what is sent is a sign of life."""
        try:
            pid = 0 if self._source is None else self._source.process.pid
            return psutil.Process(pid).io_counters().write_chars if pid else 0
        except psutil.Error:
            return 0


def run_on(
    host: SshHost, command: str, log: Path, stop: Event, source: Sequence[str] = ()
) -> tuple[int, str]:
    """Run a command on a host: the status that ssh ends with, and what was said.

    Args:
        source: the command here whose output is its input; none: its input stays open and empty.

    Raises:
        HostFault: the host does not answer or is silent for too long, or the source failed.
        LaunchError: everybody is to end.
    """
    call = HostCall(host, command, log, stop, source)
    try:
        return call.status(), call.said()
    finally:
        call.end()
