"""A launcher's end of the line to a fork server.

Decides nothing about runs: it starts the server, sends requests, and hands out what comes back.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from launchers.processes import FORK_SERVER, Program, start_with_socket
from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.runner import messages
from ps_allreduce.runner.messages import Event, Exited, Ready, decode, encode

START_DEADLINE_S = 120.0

END_DEADLINE_S = 10.0

ROOT = Path(__file__).resolve().parent.parent


class ForkServerClient:
    """One running fork server."""

    def __init__(self, log: Path, words: Sequence[str] = FORK_SERVER) -> None:
        self._log = log
        self._partial = b""
        self._program: Program = start_with_socket(words, log, fork_server_environment(os.environ))
        try:
            self._wait_ready()
        except BaseException:
            # Still importing, it would not notice for seconds that nobody listens any more.
            self._program.kill()
            raise

    def _wait_ready(self) -> None:
        try:
            message = self.receive(START_DEADLINE_S)
        except LaunchError:
            message = None
        if not isinstance(message, Ready):
            raise LaunchError(
                "TensorFlow could not be imported. The last lines of "
                f"{self._log}:\n{last_lines(self._log)}"
            )
        if message.version != messages.VERSION:
            raise LaunchError(f"the fork server speaks version {message.version} of the protocol.")

    def send(self, request: object) -> None:
        """Send one request.

        Raises:
            LaunchError: the fork server is gone.
        """
        try:
            self._program.connection.sendall(encode(request))
        except OSError as error:
            raise LaunchError(f"the fork server is gone ({error.strerror}).") from error

    def receive(self, timeout_s: float) -> Any | None:
        """The next message, or None if there is none within the time.

        Raises:
            LaunchError: the fork server is gone.
        """
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._partial:
            left = deadline - time.monotonic()
            readable, _, _ = select.select([self._program.connection], [], [], max(left, 0))
            if not readable:
                return None
            try:
                content = self._program.connection.recv(1 << 16)
            except OSError:
                content = b""
            if not content:
                raise LaunchError(
                    "the fork server, from which all tasks are forked, ended.\n"
                    f"The last lines of its log:\n{last_lines(self._log)}"
                )
            self._partial += content
        line, self._partial = self._partial.split(b"\n", 1)
        return decode(line)

    def ask(
        self,
        request: object,
        deadline_s: float,
        hear: Callable[[Event], None] = lambda _: None,
    ) -> Event:
        """Have one job done and return its answer, its last event; `hear` is told of every one.

        Raises:
            UserError: the job found a mistake of the user's.
            LaunchError: it failed otherwise, or took too long.
        """
        self.send(request)
        answer: Event | None = None
        deadline = time.monotonic() + deadline_s
        while (left := deadline - time.monotonic()) > 0:
            message = self.receive(left)
            if isinstance(message, Event):
                hear(message)
                answer = message
            if isinstance(message, Exited):
                return _checked(answer, message)
        self._end_job()
        raise LaunchError(f"{type(request).__name__} took longer than {deadline_s:.0f} s.")

    def _end_job(self) -> None:
        """Kill a job and take note of its end, so that the next one is not mistaken for it."""
        self.send(messages.EndAll())
        deadline = time.monotonic() + END_DEADLINE_S
        while (left := deadline - time.monotonic()) > 0:
            if isinstance(self.receive(left), Exited):
                return

    def close(self) -> None:
        """End the server and everything it forked."""
        self._program.end()


def _checked(answer: Event | None, exited: Exited) -> Event:
    if answer is not None and answer.event == "failed":
        raise (UserError if answer.user_error else LaunchError)(answer.text)
    if answer is None or exited.status != 0:
        raise LaunchError(f"{exited.name} ended with status {exited.status} and no answer.")
    return answer


def fork_server_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the measured program.

    Proxies would be obeyed by gRPC even for this machine's own addresses; a TF_CONFIG left over in
    the shell would be read by TensorFlow.
    """
    unwanted = {"TF_CONFIG", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "grpc_proxy"}
    kept = {name: value for name, value in environment.items() if name not in unwanted}
    path = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH", "")]))
    return kept | {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "1"}


def last_lines(path: Path, count: int = 12) -> str:
    """The end of a log, for a message."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-count:])
    except OSError:
        return "(no log)"
