"""The real fork server with made-up jobs: what it forks is reported, logged, and never survives."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from launchers.fork_server import fork_server_environment
from launchers.processes import start_with_socket
from ps_allreduce.runner.messages import (
    EndAll,
    Event,
    Exited,
    Ready,
    Sampled,
    Started,
    StartTask,
    decode,
    encode,
)
from tests.fakes import FORK_SERVER_SCRIPT, fake_task

PATIENCE_S = 10.0

M = TypeVar("M")

FOREVER = "report('up'); import time; time.sleep(600)"


class Server:
    """A fork server and this end of its socket."""

    def __init__(self, folder: Path, script: str = FORK_SERVER_SCRIPT) -> None:
        self.log = folder / "server.log"
        words = (sys.executable, "-c", script)
        self.program = start_with_socket(words, self.log, fork_server_environment(os.environ))
        self.seen: list[Any] = []
        self._partial = b""
        self._folder = folder
        self.pid = self.expect(Ready).pid

    def start(self, name: str, code: str) -> Path:
        """Send a job; return its log."""
        request = self.request(name, code)
        self.send(request)
        return Path(request.log)

    def request(self, name: str, code: str) -> StartTask:
        return fake_task(name, code, self._folder / f"{name}.log")

    def send(self, *requests: object) -> None:
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


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """For tests that leave the server as they found it."""
    server = Server(tmp_path_factory.mktemp("shared"))
    yield server
    server.program.end()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """For tests that end it."""
    server = Server(tmp_path)
    yield server
    server.program.end()


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def assert_gone(pids: Iterable[int]) -> None:
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
        server.start(name, FOREVER)
        pids.append(server.expect(Started).pid)
        server.expect(Event)
    return pids


def test_a_job_is_started_reports_and_exits(shared: Server) -> None:
    before = time.time()
    exited, (event,), _ = shared.run("worker:0", "report('connected')")
    started = next(m for m in shared.seen if isinstance(m, Started))
    assert started.name == event.name == exited.name == "worker:0"
    assert started.pid == exited.pid
    assert event.event == "connected"
    assert before <= event.time <= time.time()
    assert exited.status == 0
    assert exited.peak_memory_bytes > 1_000_000
    assert exited.cpu_s >= 0


def test_last_words_come_before_the_exit(shared: Server) -> None:
    code = "for i in range(300): report('progress', counts={'images': i})"
    exited, events, _ = shared.run("worker:0", code)
    assert exited.status == 0
    assert [event.counts["images"] for event in events] == list(range(300))


def test_a_long_report_arrives_whole(shared: Server) -> None:
    _, (event,), _ = shared.run("worker:0", "report('x', text='y' * 300_000)")
    assert event.text == "y" * 300_000


def test_output_goes_to_the_log_even_from_below_python(shared: Server) -> None:
    code = "import os, sys; print('out'); print('err', file=sys.stderr); os.write(1, b'raw')"
    _, _, log = shared.run("worker:0", code)
    assert sorted(log.split()) == ["err", "out", "raw"]


def test_a_log_is_continued(shared: Server) -> None:
    shared.run("worker:7", "print('first')")
    _, _, log = shared.run("worker:7", "print('second')")
    assert log == "first\nsecond\n"


def test_there_is_nothing_to_read(shared: Server) -> None:
    code = "import os, sys; report('x', text=os.readlink('/proc/self/fd/0') + sys.stdin.read())"
    _, (event,), _ = shared.run("worker:0", code)
    assert event.text == "/dev/null"


def test_a_job_leads_a_session_of_its_own(shared: Server) -> None:
    exited, (event,), _ = shared.run("x", "import os; report('x', text=str(os.getsid(0)))")
    assert event.text == str(exited.pid)


def test_a_failure_is_reported_in_one_line_and_logged_in_full(shared: Server) -> None:
    exited, (event,), log = shared.run("worker:0", "raise RuntimeError('no\\nluck')")
    assert exited.status == 1
    assert (event.event, event.text, event.user_error) == ("failed", "RuntimeError: no", False)
    assert "Traceback" in log
    assert "luck" in log


@pytest.mark.parametrize(
    ("name", "user_error"),
    [("UserError", True), ("InputDataError", True), ("LaunchError", False)],
)
def test_an_understood_failure_is_reported_word_by_word(
    shared: Server, name: str, user_error: bool
) -> None:
    code = f"from ps_allreduce import errors\nraise errors.{name}('file a.tfrecord is truncated.')"
    exited, (event,), log = shared.run("worker:0", code)
    assert (event.text, event.user_error) == ("file a.tfrecord is truncated.", user_error)
    assert exited.status == 1
    assert "Traceback" in log


@pytest.mark.parametrize(
    ("code", "status"),
    [("import os; os._exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL)],
)
def test_an_end_without_a_word_has_a_status(shared: Server, code: str, status: int) -> None:
    exited, events, _ = shared.run("worker:0", code)
    assert (exited.status, events) == (status, [])


def test_a_log_that_cannot_be_written_fails_the_job(shared: Server) -> None:
    shared.seen.clear()
    shared.send(fake_task("worker:0", "report('connected')", Path("/nonexistent/x.log")))
    assert shared.expect(Exited).status == 1
    (event,) = [m for m in shared.seen if isinstance(m, Event)]
    assert event.event == "failed"
    assert "/nonexistent" in event.text


def test_jobs_are_sampled_while_they_run(shared: Server) -> None:
    shared.start("worker:3", FOREVER)
    sampled = shared.expect(Sampled, lambda message: "worker:3" in message.sample.cpu_s)
    assert sampled.sample.memory_bytes["worker:3"] > 1_000_000
    assert set(sampled.sample.sent_bytes) == set(sampled.sample.received_bytes)
    shared.send(EndAll())
    shared.expect(Exited)


def test_end_all_kills_every_job_and_says_so(shared: Server) -> None:
    pids = start_two(shared)
    shared.send(EndAll())
    exited = [shared.expect(Exited) for _ in pids]
    assert {message.pid for message in exited} == set(pids)
    assert {message.status for message in exited} == {-signal.SIGKILL}
    assert_gone(pids)
    assert shared.run("worker:0", "pass")[0].status == 0


def test_end_all_kills_what_a_job_started(shared: Server) -> None:
    code = (
        "import subprocess; child = subprocess.Popen(['sleep', '600'])\n"
        "report('up', text=str(child.pid)); child.wait()"
    )
    shared.start("worker:0", code)
    grandchild = int(shared.expect(Event).text)
    shared.send(EndAll())
    shared.expect(Exited)
    assert_gone([grandchild])


#: As on a machine so busy that a forked process gets no processor for a while.
SLOW_TO_DETACH = """
import os, time
own_session = os.setsid
os.setsid = lambda: (time.sleep(0.3), own_session())
"""


def test_end_all_kills_what_has_only_just_been_forked(tmp_path: Path) -> None:
    server = Server(tmp_path, SLOW_TO_DETACH + FORK_SERVER_SCRIPT)
    try:
        server.send(server.request("worker:0", FOREVER), EndAll())
        assert server.expect(Exited).status == -signal.SIGKILL
    finally:
        server.program.end()


def test_nothing_survives_the_launcher(server: Server) -> None:
    pids = start_two(server)
    server.program.connection.close()
    assert server.program.process.wait(timeout=PATIENCE_S) == 0
    assert_gone(pids)


def test_nothing_survives_a_fork_server_that_is_killed(server: Server) -> None:
    pids = start_two(server)
    os.kill(server.pid, signal.SIGKILL)
    assert server.program.process.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    assert_gone(pids)


def test_nothing_survives_a_fork_server_that_is_terminated(server: Server) -> None:
    pids = start_two(server)
    os.kill(server.pid, signal.SIGTERM)
    assert server.program.process.wait(timeout=PATIENCE_S) == 1
    assert_gone(pids)


def test_nothing_survives_nonsense_from_the_launcher(server: Server) -> None:
    pids = start_two(server)
    server.program.connection.sendall(b"nonsense\n")
    assert server.program.process.wait(timeout=PATIENCE_S) == 1
    assert_gone(pids)
    assert "not a message" in server.log.read_text()
