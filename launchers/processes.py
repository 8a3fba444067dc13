"""The only module of the launchers that starts processes.

Decides that a program is given as a list of words, never as a shell line, that it leads a session
of its own, and that it is ended by its process group.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ps_allreduce.errors import LaunchError

FORK_SERVER_MODULE = ("-m", "ps_allreduce.fork_server.server")

FORK_SERVER = (sys.executable, *FORK_SERVER_MODULE)


def fork_server_words(container: Sequence[str]) -> tuple[str, ...]:
    """The command of a fork server; inside a container it runs on the container's own Python."""
    return (*container, "python3", *FORK_SERVER_MODULE) if container else FORK_SERVER


@dataclass(frozen=True, slots=True)
class Program:
    """A program that was started, with a socket to speak to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket

    def status(self, within_s: float = 0.0) -> int | None:
        """Its exit status; None if it still runs after some seconds."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(timeout=within_s)
        return None

    def end(self) -> None:
        """Close the socket, which ends a fork server and all it forked; kill what does not obey."""
        self.connection.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the program, and what it forked with it, at once."""
        self.connection.close()
        kill_group(self.process.pid)
        self.process.wait()


def start_with_socket(words: Sequence[str], log: Path, environment: Mapping[str, str]) -> Program:
    """Start a program that takes `--socket FD`; its output goes to a log.

    Raises:
        LaunchError: the program cannot be started.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        descriptor = theirs.fileno()
        command = [*words, "--socket", str(descriptor)]
        return _start_spoken_to(ours, command, log, environment, inherited=[descriptor])


def start_with_standard_streams(
    words: Sequence[str], log: Path, environment: Mapping[str, str]
) -> Program:
    """Start a program that is spoken to over its standard streams; its complaints go to a log.

    Raises:
        LaunchError: the program cannot be started.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        return _start_spoken_to(ours, words, log, environment, standard=theirs.fileno())


def _start_spoken_to(
    ours: socket.socket,
    words: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    *,
    standard: int | None = None,
    inherited: Sequence[int] = (),
) -> Program:
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                list(words),
                stdin=subprocess.DEVNULL if standard is None else standard,
                stdout=output if standard is None else standard,
                stderr=output,
                pass_fds=inherited,
                env=dict(environment),
                start_new_session=True,
            )
    except OSError as error:
        ours.close()
        raise LaunchError(f"{words[0]} cannot be started: {error.strerror}.") from error
    return Program(process, ours)


@dataclass(frozen=True, slots=True)
class Background:
    """A program that was started and is not spoken to."""

    process: subprocess.Popen[bytes]

    def status(self) -> int | None:
        """Its exit status; None as long as it runs."""
        return self.process.poll()

    def wait(self, seconds: float) -> None:
        """Give it time to end by itself."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=seconds)

    def end(self) -> None:
        """Ask it to end, and kill its process group if it does not."""
        if self.process.poll() is None:
            self.process.terminate()
            self.wait(5)
        if self.process.poll() is None:
            kill_group(self.process.pid)
            self.process.wait()


def start_in_background(
    words: Sequence[str], log: Path, environment: Mapping[str, str]
) -> Background:
    """Start a program whose output goes to a log.

    Raises:
        LaunchError: the program cannot be started.
    """
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment),
                start_new_session=True,
            )
    except OSError as error:
        raise LaunchError(f"{words[0]} cannot be started: {error.strerror}.") from error
    return Background(process)


def kill_group(pid: int) -> None:
    """Kill the process group that a process started by us leads; none is fine."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@dataclass(frozen=True, slots=True)
class Answer:
    """What a short command answered."""

    status: int
    out: str
    err: str


def run_quietly(
    words: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None
) -> Answer | None:
    """Run a short command; None if it is missing or does not answer."""
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            text=True,
            errors="replace",
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Answer(done.returncode, done.stdout, done.stderr)
