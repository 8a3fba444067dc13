"""The real fork server with made-up jobs: what it forks is reported, logged, and never survives."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps_allreduce.fork_server import messages
from ps_allreduce.fork_server.messages import (
    AskTime,
    EndAll,
    Event,
    Exited,
    FileRead,
    FinishRun,
    PrepareRun,
    ReadFile,
    RunPrepared,
    Sampled,
    Started,
    TimeTold,
)
from tests.pretend import fake_task
from tests.talk import ENDLESS, Server, assert_gone, start_two


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """For tests that leave the server as they found it."""
    server = Server(tmp_path_factory.mktemp("shared"))
    yield server
    server.program.end()


def test_a_fork_server_says_where_it_is_before_anything_else(shared: Server) -> None:
    ready = shared.ready
    assert (ready.version, ready.pid) == (messages.VERSION, shared.program.process.pid)
    assert ready.facts.name == socket.gethostname()
    assert ready.facts.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert Path(ready.scratch).is_dir()


def test_a_run_gets_its_place_and_its_files_are_read(shared: Server) -> None:
    shared.send(PrepareRun(num_ports=2))
    place = shared.expect(RunPrepared)
    assert (len(place.ports), place.problem) == (2, "")
    assert Path(place.folder).parent == Path(shared.ready.scratch)
    (Path(place.folder) / "x").write_bytes(b"\x00\xff")
    shared.send(ReadFile(path=f"{place.folder}/x", offset=1, length=100), FinishRun())
    assert shared.expect(FileRead) == FileRead(content="/w==", size=2)
    shared.send(ReadFile(path=f"{place.folder}/x", offset=0, length=100))
    assert shared.expect(FileRead) == FileRead()


def test_the_time_is_told_while_jobs_run(shared: Server) -> None:
    shared.start("worker:0", ENDLESS)
    shared.expect(Event)
    before = time.time()
    shared.send(AskTime())
    assert before <= shared.expect(TimeTold).time <= time.time()
    shared.send(EndAll())
    shared.expect(Exited)


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
    shared.start("worker:3", ENDLESS)
    sampled = shared.expect(Sampled, lambda message: "worker:3" in message.sample.cpu_s)
    assert sampled.sample.memory_bytes["worker:3"] > 1_000_000
    assert set(sampled.sample.sent_bytes) == set(sampled.sample.received_bytes)
    assert sampled.sample.host == socket.gethostname()
    later = shared.expect(Sampled).sample
    spent = [getattr(later, n) - getattr(sampled.sample, n) for n in ("busy_s", "idle_s")]
    cores, passed = os.cpu_count() or 1, later.time - sampled.sample.time
    assert min(spent) >= 0
    assert sum(spent) == pytest.approx(cores * passed, rel=0.5)
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
