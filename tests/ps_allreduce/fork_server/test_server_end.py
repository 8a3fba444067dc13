"""However a fork server or its launcher ends: nothing that it forked or wrote survives."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps_allreduce.fork_server.messages import (
    EndAll,
    Exited,
    PrepareRun,
    RunPrepared,
)
from tests.pretend import fake_server
from tests.talk import ENDLESS, PATIENCE_S, Server, assert_gone, start_two


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """For tests that end it."""
    server = Server(tmp_path)
    yield server
    server.program.end()


def test_end_all_kills_what_has_only_just_been_forked(tmp_path: Path) -> None:
    server = Server(tmp_path, fake_server("--slow-to-detach"))
    try:
        server.send(server.request("worker:0", ENDLESS), EndAll())
        assert server.expect(Exited).status == -signal.SIGKILL
    finally:
        server.program.end()


def scratch_folders(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("ps-allreduce-*")]


def test_nothing_survives_the_launcher(server: Server, tmp_path: Path) -> None:
    pids = start_two(server)
    server.program.connection.close()
    assert server.program.process.wait(timeout=PATIENCE_S) == 0
    assert_gone(pids)
    assert scratch_folders(tmp_path) == []


def test_nothing_survives_a_fork_server_that_is_killed(server: Server) -> None:
    pids = start_two(server)
    os.kill(server.ready.pid, signal.SIGKILL)
    assert server.program.process.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    assert_gone(pids)


def test_nothing_survives_a_fork_server_that_is_terminated(server: Server, tmp_path: Path) -> None:
    pids = start_two(server)
    os.kill(server.ready.pid, signal.SIGTERM)
    assert server.program.process.wait(timeout=PATIENCE_S) == 0
    assert_gone(pids)
    assert scratch_folders(tmp_path) == []


def test_nothing_survives_nonsense_from_the_launcher(server: Server, tmp_path: Path) -> None:
    pids = start_two(server)
    server.program.connection.sendall(b"nonsense\n")
    assert server.program.process.wait(timeout=PATIENCE_S) == 1
    assert_gone(pids)
    assert scratch_folders(tmp_path) == []
    assert "not a message" in server.log.read_text()


def test_ports_of_a_run_are_let_go_with_the_launcher(server: Server) -> None:
    server.send(PrepareRun(num_ports=1))
    (port,) = server.expect(RunPrepared).ports
    server.program.connection.close()
    server.program.process.wait(timeout=PATIENCE_S)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


def test_what_a_killed_fork_server_wrote_is_removed_by_the_next_one(
    server: Server, tmp_path: Path
) -> None:
    server.send(PrepareRun(num_ports=1))
    server.expect(RunPrepared)
    os.kill(server.ready.pid, signal.SIGKILL)
    server.program.process.wait(timeout=PATIENCE_S)
    assert scratch_folders(tmp_path) == [Path(server.ready.scratch).name]
    another = Server(tmp_path)
    assert scratch_folders(tmp_path) == [Path(another.ready.scratch).name]
    another.program.end()


def test_two_fork_servers_on_a_host_leave_each_other_alone(server: Server, tmp_path: Path) -> None:
    another = Server(tmp_path)
    assert Path(server.ready.scratch).exists()
    another.program.end()
    assert scratch_folders(tmp_path) == [Path(server.ready.scratch).name]
