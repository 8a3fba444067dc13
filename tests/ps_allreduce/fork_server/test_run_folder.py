"""A run's place on a host: ports that nobody else can take, files that are read in pieces, and
nothing of either left when the run is over."""

from __future__ import annotations

import base64
import errno
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps_allreduce.fork_server import messages, run_folder
from ps_allreduce.fork_server.messages import FileRead, ReadFile
from ps_allreduce.fork_server.run_folder import RunFolder, read_piece
from ps_allreduce.scratch import PREFIX, remove_left_overs, scratch_folder, scratch_prefix
from tests.pretend import idle_process

NO_PROCESS = 2**22 + 1

HERE = socket.gethostname()

#: What tells processes of this machine.
OURS = scratch_prefix().removeprefix(f"{PREFIX}{os.getpid()}-").removesuffix(f"-{HERE}-")

SPACE = OURS.split("-")[1]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    folder = RunFolder(tmp_path)
    yield folder
    folder.finish_run()


def prepare(folder: RunFolder, num_ports: int) -> messages.RunPrepared:
    answer = folder.serve(messages.PrepareRun(num_ports=num_ports))
    assert isinstance(answer, messages.RunPrepared)
    return answer


def bind(port: int, host: str = "127.0.0.1", reuse: bool = False) -> None:
    with socket.socket() as other:
        if reuse:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind((host, port))


def test_every_task_gets_a_port_of_its_own_and_the_run_an_empty_folder(
    folder: RunFolder, tmp_path: Path
) -> None:
    place = prepare(folder, 5)
    assert (len(set(place.ports)), place.problem) == (5, "")
    assert Path(place.folder).parent == tmp_path
    assert list(Path(place.folder).iterdir()) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "127.0.0.2"])
def test_nobody_else_can_take_a_held_port_or_connect_to_it(folder: RunFolder, host: str) -> None:
    (port,) = prepare(folder, 1).ports
    with pytest.raises(OSError, match="in use") as caught:
        bind(port, host)
    assert caught.value.errno == errno.EADDRINUSE
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_task_that_shares_ports_can_take_it_and_is_the_one_reached(folder: RunFolder) -> None:
    (port,) = prepare(folder, 1).ports
    with socket.socket() as task:
        task.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        task.bind(("127.0.0.1", port))
        task.listen()
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as caller:
                connection, address = task.accept()
                connection.close()
                assert address == caller.getsockname()


def test_a_run_that_is_over_leaves_neither_ports_nor_files(folder: RunFolder) -> None:
    place = prepare(folder, 2)
    (Path(place.folder) / "worker-0.log").write_text("hello")
    assert folder.serve(messages.FinishRun()) is None
    for port in place.ports:
        bind(port)
    assert not Path(place.folder).exists()
    assert folder.serve(messages.FinishRun()) is None


def test_a_new_run_takes_the_place_of_one_that_was_never_finished(folder: RunFolder) -> None:
    before = prepare(folder, 1)
    after = prepare(folder, 1)
    bind(before.ports[0])
    assert not Path(before.folder).exists()
    assert Path(after.folder).exists()


def test_a_host_without_free_ports_says_so_and_holds_none(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[socket.socket] = []
    hold = run_folder.hold_port

    def exhausted() -> socket.socket:
        if taken:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        taken.append(hold())
        return taken[0]

    monkeypatch.setattr(run_folder, "hold_port", exhausted)
    place = prepare(folder, 2)
    assert (place.ports, place.folder) == ((), "")
    assert place.problem.startswith("no free port or no room in ")
    assert taken[0].fileno() == -1


def test_a_disk_without_room_is_told_and_ports_are_let_go(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "gone")
    assert "No such file or directory" in prepare(folder, 1).problem
    assert folder.held == []


def test_an_address_family_that_is_missing_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with run_folder.hold_port() as held:
        assert held.family is socket.AF_INET


def read_all(path: Path, length: int) -> bytes:
    """A file as a launcher puts it together."""
    content = b""
    while True:
        piece = read_piece(path, len(content), length)
        assert piece.size is not None
        content += base64.b64decode(piece.content)
        if len(content) >= piece.size:
            return content


@pytest.mark.parametrize("length", [1, 2, 3, 7, 1000])
def test_a_file_is_the_sum_of_its_pieces(tmp_path: Path, length: int) -> None:
    content = bytes(range(256)) + b"\n\xff\xfe"
    (tmp_path / "raw").write_bytes(content)
    assert read_all(tmp_path / "raw", length) == content


def test_a_piece_tells_how_long_the_file_is_if_there_is_one(
    tmp_path: Path, folder: RunFolder
) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    answer = folder.serve(ReadFile(path=str(tmp_path / "x"), offset=8, length=5))
    assert answer == FileRead(content=base64.b64encode(b"89").decode(), size=10)
    assert read_piece(tmp_path / "x", 10, 5) == FileRead(content="", size=10)
    (tmp_path / "empty").touch()
    assert read_piece(tmp_path / "empty", 0, 5) == FileRead(content="", size=0)
    assert read_piece(tmp_path / "gone", 0, 5) == FileRead()
    assert read_piece(tmp_path, 0, 5) == FileRead()


def left_over(folder: Path, owner: object, host: str = HERE, machine: str = OURS) -> Path:
    path = folder / f"{PREFIX}{owner}-{machine}-{host}-abc"
    (path / "inside").mkdir(parents=True)
    return path


def test_a_scratch_folder_is_private_and_gone_afterwards_and_so_are_left_overs(
    tmp_path: Path,
) -> None:
    dead = left_over(tmp_path, NO_PROCESS)
    with scratch_folder(tmp_path) as scratch:
        assert not dead.exists()
        assert scratch.name.startswith(f"{PREFIX}{os.getpid()}-{OURS}-{HERE}-")
        assert scratch.stat().st_mode & 0o777 == 0o700
        (scratch / "run-x").mkdir()
    assert list(tmp_path.iterdir()) == []


def test_what_dead_processes_of_this_host_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    unasked = subprocess.Popen(["true"])
    os.waitid(os.P_PID, unasked.pid, os.WEXITED | os.WNOWAIT)
    dead = [
        left_over(tmp_path, NO_PROCESS),
        left_over(tmp_path, unasked.pid),  # ended, and nobody has asked for its status
        left_over(tmp_path, NO_PROCESS, "emulated0"),  # another name of this machine
        left_over(tmp_path, os.getpid(), machine=f"00000000-{SPACE}"),  # before it started again
    ]
    others = [
        left_over(tmp_path, os.getpid()),
        left_over(tmp_path, "notes"),
        left_over(tmp_path, NO_PROCESS, machine=OURS + "0"),  # in another container
        left_over(tmp_path, NO_PROCESS, "another-host", machine=f"00000000-{SPACE}"),
        tmp_path / f"{PREFIX}gather-x",
    ]
    others[-1].mkdir()
    remove_left_overs(tmp_path)
    unasked.wait()
    assert [path for path in dead if path.exists()] == []
    assert [path for path in others if not path.exists()] == []


def test_a_copy_of_packages_stays_as_long_as_processes_here_import_from_it(tmp_path: Path) -> None:
    left = left_over(tmp_path, f"packages-{os.getpid()}", "another-host", f"00000000-{SPACE}")
    own = left_over(tmp_path, f"packages-{os.getpid()}")
    environment = {"PYTHONPATH": f"{left}:/elsewhere"}
    with idle_process(environment):
        remove_left_overs(tmp_path)
        assert left.exists()
    remove_left_overs(tmp_path)
    assert not left.exists()
    assert own.exists()


def test_a_link_in_the_place_of_a_left_over_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    link = tmp_path / left_over(tmp_path, NO_PROCESS).name.replace("abc", "link")
    link.symlink_to(tmp_path / "precious")
    remove_left_overs(tmp_path)
    assert (tmp_path / "precious").is_dir()
    assert link.is_symlink()


def test_what_another_user_left_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = left_over(tmp_path, NO_PROCESS)
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    remove_left_overs(tmp_path)
    assert path.exists()
