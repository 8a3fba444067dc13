"""The only module of the launchers that starts processes.

Decides that a program is given as a list of words, never as a shell line, that it leads a session
of its own, and that it is ended by its process group.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ps_allreduce.errors import HostFault
from ps_allreduce.process import kill_group
from ps_allreduce.record.provenance import ROOT

FORK_SERVER_MODULE = ("-m", "ps_allreduce.fork_server.server")

FORK_SERVER = (sys.executable, *FORK_SERVER_MODULE)


def fork_server_words(container: Sequence[str]) -> tuple[str, ...]:
    """The command of a fork server; inside a container it runs on the container's own Python."""
    return (*container, "python3", *FORK_SERVER_MODULE) if container else FORK_SERVER


def fork_server_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the measured program.

    Proxies would be obeyed by gRPC even for a cluster's own addresses; a TF_CONFIG left over in the
    shell would be read by TensorFlow.
    """
    kept = {name: value for name, value in environment.items() if name not in UNWANTED}
    path = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH", "")]))
    return kept | {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "1"}


#: Variables that change how TensorFlow's tasks find and reach each other.
UNWANTED = frozenset(
    {"TF_CONFIG", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "grpc_proxy"}
)


@dataclass(frozen=True, slots=True)
class BackgroundProcess:
    """A program that was started and is not spoken to."""

    process: subprocess.Popen[bytes]

    def status(self, within_s: float = 0.0) -> int | None:
        """Its exit status; None if it still runs after some seconds."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(timeout=within_s)
        return None

    def kill(self) -> None:
        """Kill the program, and what it forked with it, at once."""
        kill_group(self.process.pid)
        self.process.wait()

    def end(self) -> None:
        """Ask it to end, and kill its process group if it does not."""
        self._ask_to_end()
        if self.status(within_s=5) is None:
            self.kill()

    def _ask_to_end(self) -> None:
        self.process.terminate()


@dataclass(frozen=True, slots=True)
class ChildProcess(BackgroundProcess):
    """A program that was started, with a socket to speak to it."""

    connection: socket.socket

    def _ask_to_end(self) -> None:
        """A fork server ends with its line, and all that it forked with it."""
        self.connection.close()


def start_with_socket(
    words: Sequence[str], log: Path, environment: Mapping[str, str]
) -> ChildProcess:
    """Start a program that takes `--socket FD`; its output goes to a log.

    Raises:
        HostFault: the program cannot be started.
    """
    with _line() as (here, there):
        command = [*words, "--socket", str(there.fileno())]
        return ChildProcess(_start(command, log, environment, inherited=[there.fileno()]), here)


def start_with_standard_streams(
    words: Sequence[str], log: Path, environment: Mapping[str, str]
) -> ChildProcess:
    """Start a program that is spoken to over its standard streams; its complaints go to a log.

    Raises:
        HostFault: the program cannot be started.
    """
    with _line() as (here, there):
        stream = there.fileno()
        return ChildProcess(_start(words, log, environment, stdin=stream, stdout=stream), here)


def start_with_input(
    words: Sequence[str], log: Path, environment: Mapping[str, str], source: Sequence[str] = ()
) -> tuple[ChildProcess, BackgroundProcess | None]:
    """Start a program that reads what a source writes; what the program says goes to a log.

    Args:
        source: the command of the source; none: the input stays open, and nothing comes.  It
            complains to nobody: most of what it has to say is that the program has ended.

    Raises:
        HostFault: one of them cannot be started.
    """
    with _line() as (here, there):
        program = ChildProcess(_start(words, log, environment, stdin=there.fileno()), here)
        if not source:
            return program, None
        try:
            writing = _start(source, Path(os.devnull), environment, stdout=here.fileno())
        finally:
            here.close()  # the end of the source is then that of the input
        return program, BackgroundProcess(writing)


@contextmanager
def _line() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a line; the one here stays open unless the program cannot be started."""
    here, there = socket.socketpair()
    with there:
        try:
            yield here, there
        except HostFault:
            here.close()
            raise


def _start(
    words: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
    inherited: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program that leads a session of its own; a `stdout` of None is the log."""
    try:
        with log.open("ab") as output:
            return subprocess.Popen(
                list(words),
                stdin=stdin,
                stdout=output if stdout is None else stdout,
                stderr=output,
                pass_fds=inherited,
                env=dict(environment),
                start_new_session=True,
            )
    except OSError as error:
        raise HostFault(f"{words[0]} cannot be started: {error.strerror}.") from error


def start_in_background(
    words: Sequence[str], log: Path, environment: Mapping[str, str]
) -> BackgroundProcess:
    """Start a program whose output goes to a log.

    Raises:
        HostFault: the program cannot be started.
    """
    return BackgroundProcess(_start(words, log, environment))


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """What a short command answered."""

    status: int
    out: str
    err: str


def run_quietly(
    words: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None
) -> CommandAnswer | None:
    """Run a short command; None if it is missing or does not answer.

    On some sites such a command is a script: what it started ends with it.
    """
    try:
        with subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        ) as program:
            try:
                out, err = program.communicate(timeout=timeout_s)
            except BaseException:
                kill_group(program.pid)  # an interrupted one may have ended in the meantime
                raise
    except (OSError, subprocess.TimeoutExpired):
        return None
    return CommandAnswer(program.returncode, out, err)
