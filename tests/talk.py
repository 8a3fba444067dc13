"""A fork server with made-up jobs, and this end of its line."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil

from launchers.fork_servers.client import ForkServerClient
from launchers.processes import fork_server_environment, start_with_socket
from ps_allreduce.fork_server.messages import (
    Event,
    Exited,
    Ready,
    Started,
    StartTask,
    decode,
    encode,
)
from tests.pretend import FAKE_SERVER, fake_task

PATIENCE_S = 10.0

M = TypeVar("M")

#: A job that says that it is there, and goes on for ever.
ENDLESS = "report('up'); import time; time.sleep(600)"


@contextmanager
def serving(
    folder: Path, host: str = "n9", words: Sequence[str] = FAKE_SERVER
) -> Iterator[ForkServerClient]:
    """The launcher's line to a fork server that writes below a folder."""
    log = folder / "server.log"
    environment = fork_server_environment(os.environ) | {"TMPDIR": str(folder)}
    program = start_with_socket(words, log, environment)
    try:
        yield ForkServerClient(program.connection, log, host)
    finally:
        program.end()


class Server:
    """A fork server that writes below a folder, and this end of its socket."""

    def __init__(self, folder: Path, words: Sequence[str] = FAKE_SERVER) -> None:
        self.log = folder / "server.log"
        environment = fork_server_environment(os.environ) | {"TMPDIR": str(folder)}
        self.program = start_with_socket(words, self.log, environment)
        self.seen: list[Any] = []
        self._partial = b""
        self._folder = folder
        self.ready = self.expect(Ready)

    def start(self, name: str, code: str) -> Path:
        """Send a task; return its log."""
        request = self.request(name, code)
        self.send(request)
        return Path(request.log)

    def request(self, name: str, code: str) -> StartTask:
        """A task that executes some Python text."""
        return fake_task(name, code, self._folder / f"{name}.log")

    def send(self, *requests: object) -> None:
        """Send requests all at once."""
        self.program.connection.sendall(b"".join(map(encode, requests)))

    def expect(self, kind: type[M], wanted: Callable[[M], bool] = lambda _: True) -> M:
        """The next message of a kind; earlier ones are kept in `seen`."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            message = self._receive()
            self.seen.append(message)
            if isinstance(message, kind) and wanted(message):
                return message
        raise AssertionError(f"no {kind.__name__} within {PATIENCE_S} s; seen: {self.seen}")

    def run(self, name: str, code: str) -> tuple[Exited, list[Event], str]:
        """Have one job done: how it ended, what it reported, its log."""
        self.seen.clear()
        log = self.start(name, code)
        exited = self.expect(Exited)
        return exited, [m for m in self.seen if isinstance(m, Event)], log.read_text()

    def _receive(self) -> Any:
        while b"\n" not in self._partial:
            readable, _, _ = select.select([self.program.connection], [], [], PATIENCE_S)
            content = self.program.connection.recv(1 << 16) if readable else b""
            assert content, f"the fork server is silent or gone:\n{self.log.read_text()}"
            self._partial += content
        line, self._partial = self._partial.split(b"\n", 1)
        return decode(line)


def is_gone(pid: int) -> bool:
    """A process has ended, whether or not somebody has asked for its status."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def assert_gone(pids: Iterable[int]) -> None:
    """All processes end soon."""
    deadline = time.monotonic() + PATIENCE_S
    left = set(pids)
    while left and time.monotonic() < deadline:
        left = {pid for pid in left if not is_gone(pid)}
        time.sleep(0.01)
    assert not left


def start_two(server: Server) -> list[int]:
    """Two jobs that never end; their processes."""
    pids = []
    for name in ("worker:0", "worker:1"):
        server.start(name, ENDLESS)
        pids.append(server.expect(Started).pid)
        server.expect(Event)
    return pids
