"""What watches over a fork server while it imports, and afterwards: it never outlives its line."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launchers.processes import ChildProcess, start_with_socket
from ps_allreduce.fork_server import guard
from tests.talk import assert_gone

#: A fork server in a long import, or one that serves and does not listen.
PROGRAM = """
import os, sys, time
from ps_allreduce.fork_server.guard import go_on_guarded
from ps_allreduce.fork_server.line import Line
from ps_allreduce.process import handle_ending
handle_ending(lambda *_: sys.exit(0))
line = Line(int(sys.argv[-1]), int(sys.argv[-1]))
serving = go_on_guarded(line)
if sys.argv[1] == "serves":
    os.close(serving)
line.sendall(f"{os.getpid()}\\n".encode())
if sys.argv[1] != "ends":
    time.sleep(600)
sys.exit(3)
"""

Start = Callable[[str], tuple[ChildProcess, int]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a guarded program; its process, and that of its child."""
    started = []

    def start(state: str) -> tuple[ChildProcess, int]:
        words = (sys.executable, "-c", PROGRAM, state)
        started.append(start_with_socket(words, tmp_path / "log", os.environ))
        return started[-1], int(started[-1].connection.recv(100))

    yield start
    for program in started:
        program.kill()
        program.connection.close()


def test_a_line_that_is_cut_ends_an_import_at_once(start: Start) -> None:
    program, child = start("imports")
    begin = time.monotonic()
    program.connection.close()
    assert program.process.wait(10) == 0
    assert time.monotonic() - begin < 2
    assert_gone([child])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_import_that_is_to_end_does(start: Start, number: signal.Signals) -> None:
    program, child = start("imports")
    os.kill(program.process.pid, number)
    assert program.process.wait(10) == 0
    assert_gone([child])


def test_a_child_that_is_stopped_does_not_outlive_its_line(start: Start) -> None:
    program, child = start("serves")
    os.kill(child, signal.SIGSTOP)
    program.connection.close()
    assert program.process.wait(guard.END_S + 10) == 0
    assert_gone([child])


def test_a_guard_that_is_killed_takes_its_child_with_it(start: Start) -> None:
    program, child = start("imports")
    os.kill(program.process.pid, signal.SIGKILL)
    assert_gone([child])


def test_the_status_of_a_child_is_handed_on(start: Start) -> None:
    assert start("ends")[0].process.wait(10) == 3


def test_who_was_started_with_nohup_hears_no_hanging_up(
    start: Start,
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        program, child = start("imports")
    finally:
        signal.signal(signal.SIGHUP, before)
    for pid in (program.process.pid, child):
        os.kill(pid, signal.SIGHUP)
    assert program.status(0.5) is None
