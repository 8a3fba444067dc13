"""The real fork server with made-up jobs: what it forks is reported and logged; however it or its
launcher ends, nothing that it forked or wrote survives.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ps_allreduce.fork_server import messages
from ps_allreduce.fork_server.messages import FileRead, ReadFile
from tests.pretend import fake_server, fake_task
from tests.talk import ENDLESS, PATIENCE_S, Server, assert_gone, is_gone, start_two


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """For tests that leave the server as they found it."""
    server = Server(tmp_path_factory.mktemp("shared"))
    yield server
    server.program.end()


def test_a_fork_server_says_where_it_is_before_anything_else(shared: Server) -> None:
    ready = shared.ready
    assert ready.version == messages.VERSION
    assert psutil.Process(ready.pid).ppid() == shared.program.process.pid  # its guard
    assert ready.facts.name == socket.gethostname()
    assert ready.facts.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert Path(ready.scratch).is_dir()


def test_a_run_gets_its_place_and_its_files_are_read(shared: Server) -> None:
    shared.send(messages.PrepareRun(num_ports=2))
    place = shared.expect(messages.RunPrepared)
    assert (len(place.ports), place.problem) == (2, "")
    assert Path(place.folder).parent == Path(shared.ready.scratch)
    (Path(place.folder) / "x").write_bytes(b"\x00\xff")
    shared.send(ReadFile(path=f"{place.folder}/x", offset=1, length=100), messages.FinishRun())
    assert shared.expect(FileRead) == FileRead(content="/w==", size=2)
    shared.send(ReadFile(path=f"{place.folder}/x", offset=0, length=100))
    assert shared.expect(FileRead) == FileRead()


def test_a_job_is_started_reports_and_exits(shared: Server) -> None:
    before = time.time()
    exited, (event,), _ = shared.run("worker:0", "report('connected')")
    started = next(m for m in shared.seen if isinstance(m, messages.Started))
    assert started.name == event.name == exited.name == "worker:0"
    assert started.pid == exited.pid
    assert event.event == "connected"
    assert before <= event.time <= time.time()
    assert exited.status == 0
    assert exited.peak_memory_bytes > 1_000_000
    assert exited.cpu_s >= 0


def test_last_words_come_before_the_exit_and_whole(shared: Server) -> None:
    code = "for i in range(300): report(f'progress {i}', text='y' * 1000 * i)"
    exited, events, _ = shared.run("worker:0", code)
    assert exited.status == 0
    assert [event.event for event in events] == [f"progress {i}" for i in range(300)]
    assert [len(event.text) for event in events] == [1000 * i for i in range(300)]


def test_output_goes_to_the_log_even_from_below_python(shared: Server) -> None:
    code = "import os, sys; print('out'); print('err', file=sys.stderr); os.write(1, b'raw')"
    _, _, log = shared.run("worker:0", code)
    assert sorted(log.split()) == ["err", "out", "raw"]


def test_a_log_is_its_owners_and_no_link_is_followed(shared: Server, tmp_path: Path) -> None:
    log = shared.start("worker:9", "pass")
    assert shared.expect(messages.Exited).status == 0
    assert log.stat().st_mode & 0o777 == 0o600
    log.unlink()
    log.symlink_to(tmp_path / "elsewhere")
    shared.start("worker:9", "pass")
    assert shared.expect(messages.Exited).status == 1
    assert not (tmp_path / "elsewhere").exists()


def test_a_log_is_continued(shared: Server) -> None:
    shared.run("worker:7", "print('first')")
    _, _, log = shared.run("worker:7", "print('second')")
    assert log == "first\nsecond\n"


def test_a_job_has_nothing_to_read_and_leads_a_session_of_its_own(shared: Server) -> None:
    code = (
        "import os, sys; place = os.readlink('/proc/self/fd/0') + sys.stdin.read()\n"
        "report('x', text=f'{place} {os.getsid(0)}')"
    )
    exited, (event,), _ = shared.run("worker:0", code)
    assert event.text == f"/dev/null {exited.pid}"


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


def test_a_log_that_cannot_be_written_fails_the_job(shared: Server, tmp_path: Path) -> None:
    shared.seen.clear()
    log = tmp_path / "missing" / "x.log"
    shared.send(fake_task("worker:0", "report('connected')", log))
    assert shared.expect(messages.Exited).status == 1
    (event,) = [m for m in shared.seen if isinstance(m, messages.Event)]
    assert event.event == "failed"
    assert str(log) in event.text


def test_jobs_are_sampled_while_they_run(shared: Server) -> None:
    shared.start("worker:3", ENDLESS)
    sampled = shared.expect(messages.Sampled, lambda message: "worker:3" in message.sample.cpu_s)
    assert sampled.sample.memory_bytes["worker:3"] > 1_000_000
    assert set(sampled.sample.sent_bytes) == set(sampled.sample.received_bytes)
    assert sampled.sample.host == socket.gethostname()
    later = shared.expect(messages.Sampled).sample
    spent = [getattr(later, n) - getattr(sampled.sample, n) for n in ("busy_s", "idle_s")]
    cores, passed = len(os.sched_getaffinity(0)), later.time - sampled.sample.time
    assert min(spent) >= 0
    assert sum(spent) == pytest.approx(cores * passed, rel=0.5)
    assert later.suite_s is not None
    assert later.suite_s > later.cpu_s["worker:3"]  # with the fork server's own
    shared.send(messages.EndAll())
    shared.expect(messages.Exited)


def test_end_all_kills_every_job_and_says_so(shared: Server) -> None:
    pids = start_two(shared)
    shared.send(messages.EndAll())
    exited = [shared.expect(messages.Exited) for _ in pids]
    assert {message.pid for message in exited} == set(pids)
    assert {message.status for message in exited} == {-signal.SIGKILL}
    assert_gone(pids)
    assert shared.run("worker:0", "pass")[0].status == 0


def test_jobs_are_sampled_once_more_before_they_are_killed(shared: Server) -> None:
    shared.start("worker:3", ENDLESS)
    shared.expect(messages.Sampled, lambda message: "worker:3" in message.sample.cpu_s)
    asked = time.time()
    shared.seen.clear()
    shared.send(messages.EndAll())
    shared.expect(messages.Sampled, lambda message: message.sample.time >= asked)
    assert not any(isinstance(message, messages.Exited) for message in shared.seen)
    shared.expect(messages.Exited)


def test_end_all_kills_what_a_job_started(shared: Server) -> None:
    code = (
        "import subprocess; child = subprocess.Popen(['sleep', '600'])\n"
        "report('up', text=str(child.pid)); child.wait()"
    )
    shared.start("worker:0", code)
    grandchild = int(shared.expect(messages.Event).text)
    shared.send(messages.EndAll())
    shared.expect(messages.Exited)
    assert_gone([grandchild])


#: A job that ends and leaves a process running, which tells its number first.
HELPER = """
import os, time
told, tells = os.pipe()
if os.fork() == 0:
    {leave}
    os.write(tells, str(os.getpid()).encode())
    report('nobody hears this')
    time.sleep(600)
    os._exit(0)
report('up', text=os.read(told, 20).decode())
"""

#: How it leaves its group and its session, and its parent ends.
DAEMON = "os.setsid(); os.fork() and os._exit(0)"


def leave_running(server: Server, leave: str) -> int:
    """Have a job end that leaves a process; its number."""
    exited, events, _ = server.run("worker:5", HELPER.format(leave=leave))
    assert (exited.status, [event.event for event in events]) == (0, ["up"])
    return int(events[0].text)


@pytest.mark.parametrize("leave", ["pass", DAEMON], ids=["helper", "daemon"])
def test_what_a_job_leaves_running_holds_up_nobody_and_ends(shared: Server, leave: str) -> None:
    left = leave_running(shared, leave)
    assert is_gone(left)
    shared.send(messages.AskTime())
    shared.expect(messages.TimeTold)


def test_a_daemon_goes_on_as_long_as_other_jobs_may_need_it(shared: Server) -> None:
    shared.start("worker:3", ENDLESS)
    shared.expect(messages.Event)
    left = leave_running(shared, DAEMON)
    assert not is_gone(left)
    shared.send(messages.EndAll())
    shared.expect(messages.Exited)
    assert is_gone(left)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """For tests that end it."""
    server = Server(tmp_path)
    yield server
    server.program.end()


def test_end_all_kills_what_has_only_just_been_forked(tmp_path: Path) -> None:
    server = Server(tmp_path, fake_server("--slow-to-detach"))
    try:
        server.send(server.request("worker:0", ENDLESS), messages.EndAll())
        assert server.expect(messages.Exited).status == -signal.SIGKILL
    finally:
        server.program.end()


def scratch_folders(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("ps-allreduce-*")]


def hang_up(server: Server) -> None:
    server.program.connection.close()


def kill(server: Server) -> None:
    os.kill(server.ready.pid, signal.SIGKILL)


def terminate(server: Server) -> None:
    os.kill(server.ready.pid, signal.SIGTERM)


def talk_nonsense(server: Server) -> None:
    server.program.connection.sendall(b"nonsense\n")


@pytest.mark.parametrize(
    ("end", "status", "told"),
    [
        (hang_up, 0, ""),
        (terminate, 0, ""),
        (talk_nonsense, 1, "not a message"),
        (kill, 128 + signal.SIGKILL, ""),
    ],
)
def test_nothing_survives_a_fork_server(
    server: Server, tmp_path: Path, end: Callable[[Server], None], status: int, told: str
) -> None:
    pids = [*start_two(server), leave_running(server, DAEMON)]
    end(server)
    assert server.program.process.wait(timeout=PATIENCE_S) == status
    assert_gone(pids)
    assert scratch_folders(tmp_path) == []
    assert told in server.log.read_text()


def delete_scratch(server: Server) -> None:
    shutil.rmtree(server.ready.scratch)


def take_file_handles(server: Server) -> None:
    resource.prlimit(server.ready.pid, resource.RLIMIT_NOFILE, (1, 1))
    server.start("worker:2", ENDLESS)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (delete_scratch, "its temporary folder was deleted"),
        (take_file_handles, "Too many open files"),
    ],
)
def test_a_fork_server_that_cannot_go_on_says_why_and_leaves(
    server: Server, tmp_path: Path, fault: Callable[[Server], None], reason: str
) -> None:
    pids = start_two(server)
    fault(server)
    assert server.expect(messages.Leaving).reason == reason
    server.program.process.wait(timeout=PATIENCE_S)
    assert_gone(pids)
    # Without a file handle no folder is removed; the guard does it, or the next server.
    assert fault is take_file_handles or scratch_folders(tmp_path) == []
    assert "Traceback" not in server.log.read_text()


def test_a_job_on_a_full_disk_blames_its_host(shared: Server) -> None:
    _, (event,), _ = shared.run("worker:0", "raise OSError(28, 'No space left on device')")
    assert event.host_fault
    _, (event,), _ = shared.run("worker:0", "raise OSError(2, 'No such file or directory')")
    assert not event.host_fault


def test_a_job_whose_last_words_nobody_takes_ends_nevertheless(shared: Server) -> None:
    code = "import sys; sys.stdout = sys.stderr = open('/dev/full', 'w'); print('x')"
    exited, events, _ = shared.run("worker:0", code)
    assert (exited.status, events) == (0, [])


def is_about_stopping(event: messages.Event) -> bool:
    return event.event in ("stopped", "continued")


@pytest.mark.parametrize(
    "code",
    ["import sys; sys.stdout.close(); sys.stderr.close()", "import os; os.closerange(1, 3)"],
)
def test_a_job_that_closes_its_streams_ends_alone(shared: Server, code: str) -> None:
    shared.start("worker:3", ENDLESS)
    shared.expect(messages.Event)
    assert shared.run("worker:0", code)[0].status == 0
    assert Path(shared.ready.scratch).is_dir()
    shared.send(messages.EndAll())
    assert shared.expect(messages.Exited).name == "worker:3"


def test_a_crash_where_address_space_is_limited_is_explained(server: Server) -> None:
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    exited, events, _ = server.run("worker:0", crash)
    assert (exited.status, events) == (-signal.SIGSEGV, [])
    resource.prlimit(server.ready.pid, resource.RLIMIT_AS, (10**13, -1))
    exited, (event,), _ = server.run("worker:0", crash)
    assert (event.event, event.text) == (
        "failed",
        "it crashed (SIGSEGV) where a process may have 10000.0 GB of address space: raise the "
        "limit (ulimit -v), as TensorFlow maps more than it uses",
    )


def test_a_job_that_is_stopped_and_continued_is_told(shared: Server) -> None:
    shared.start("worker:0", ENDLESS)
    pid = shared.expect(messages.Started).pid
    for number, told in ((signal.SIGSTOP, "stopped"), (signal.SIGCONT, "continued")):
        os.kill(pid, number)
        assert shared.expect(messages.Event, is_about_stopping).event == told
    os.kill(pid, signal.SIGSTOP)
    shared.send(messages.EndAll())
    shared.expect(messages.Exited)


def test_ports_of_a_run_are_let_go_with_the_launcher(server: Server) -> None:
    server.send(messages.PrepareRun(num_ports=1))
    (port,) = server.expect(messages.RunPrepared).ports
    server.program.connection.close()
    server.program.process.wait(timeout=PATIENCE_S)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


def test_what_a_killed_fork_server_wrote_is_removed_by_the_next_one(
    server: Server, tmp_path: Path
) -> None:
    server.send(messages.PrepareRun(num_ports=1))
    server.expect(messages.RunPrepared)
    os.kill(server.program.process.pid, signal.SIGKILL)  # its guard, and with it the server
    assert_gone([server.ready.pid])
    assert scratch_folders(tmp_path) == [Path(server.ready.scratch).name]
    another = Server(tmp_path)
    assert scratch_folders(tmp_path) == [Path(another.ready.scratch).name]
    another.program.end()


def test_a_guard_that_is_stopped_does_not_outlive_the_line(server: Server) -> None:
    os.kill(server.program.process.pid, signal.SIGSTOP)
    server.program.connection.close()
    assert server.program.process.wait(10) == 0
    assert_gone([server.ready.pid])


def test_two_fork_servers_on_a_host_leave_each_other_alone(server: Server, tmp_path: Path) -> None:
    another = Server(tmp_path)
    assert Path(server.ready.scratch).exists()
    another.program.end()
    assert scratch_folders(tmp_path) == [Path(server.ready.scratch).name]
