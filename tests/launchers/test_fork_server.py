"""The launcher's end of the line, with the real fork server and made-up jobs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from launchers import fork_server
from launchers.fork_server import ForkServerClient, fork_server_environment, last_lines
from launchers.processes import run_quietly, start_with_socket
from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.runner.messages import Event
from tests.fakes import FORK_SERVER_SCRIPT, fake_task

WORDS = (sys.executable, "-c", FORK_SERVER_SCRIPT)

PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "grpc_proxy")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServerClient]:
    client = ForkServerClient(tmp_path_factory.mktemp("client") / "server.log", WORDS)
    yield client
    client.close()


def test_an_answer_is_handed_out(client: ForkServerClient, tmp_path: Path) -> None:
    answer = client.ask(
        fake_task("x", "report('input', counts={'records': 3})", tmp_path / "log"), 10
    )
    assert answer.counts == {"records": 3}


@pytest.mark.parametrize(("name", "kind"), [("UserError", UserError), ("LaunchError", LaunchError)])
def test_a_mistake_of_the_users_stays_one(
    client: ForkServerClient, tmp_path: Path, name: str, kind: type[Exception]
) -> None:
    code = f"from ps_allreduce import errors; raise errors.{name}('a.tfrecord is truncated.')"
    with pytest.raises(kind, match=r"^a.tfrecord is truncated\.$"):
        client.ask(fake_task("x", code, tmp_path / "log"), 10)


def test_a_job_that_says_nothing_has_failed(client: ForkServerClient, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="x ended with status 3 and no answer"):
        client.ask(fake_task("x", "import os; os._exit(3)", tmp_path / "log"), 10)


def test_a_job_that_crashes_after_its_answer_has_failed(
    client: ForkServerClient, tmp_path: Path
) -> None:
    code = "report('input'); import os; os.kill(os.getpid(), 9)"
    with pytest.raises(LaunchError, match="ended with status -9"):
        client.ask(fake_task("x", code, tmp_path / "log"), 10)


def test_a_job_that_takes_too_long_is_ended(client: ForkServerClient, tmp_path: Path) -> None:
    code = "report('up', text=str(__import__('os').getpid())); __import__('time').sleep(600)"
    with pytest.raises(LaunchError, match="StartTask took longer than 0 s"):
        client.ask(fake_task("x", code, tmp_path / "log"), 0.4)
    assert client.ask(fake_task("x", "report('fine')", tmp_path / "log"), 10).event == "fine"


def test_silence_is_none(client: ForkServerClient) -> None:
    assert client.receive(0.01) is None


def test_closing_ends_everything(tmp_path: Path) -> None:
    client = ForkServerClient(tmp_path / "server.log", WORDS)
    code = "report('up', text=str(__import__('os').getpid())); __import__('time').sleep(600)"
    client.send(fake_task("x", code, tmp_path / "log"))
    while not isinstance(message := client.receive(10), Event):
        pass
    client.close()
    deadline = time.monotonic() + 10
    while psutil.pid_exists(int(message.text)) and time.monotonic() < deadline:
        if psutil.Process(int(message.text)).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.01)
    assert time.monotonic() < deadline


def listen_to_the_end(client: ForkServerClient) -> NoReturn:
    while True:
        client.receive(10)


def test_a_server_that_dies_is_quoted(tmp_path: Path) -> None:
    client = ForkServerClient(tmp_path / "server.log", WORDS)
    code = "import os; os.kill(os.getppid(), 9); __import__('time').sleep(600)"
    client.send(fake_task("x", code, tmp_path / "log"))
    with pytest.raises(
        LaunchError, match="the fork server, from which all tasks are forked, ended"
    ):
        listen_to_the_end(client)
    with pytest.raises(LaunchError, match="the fork server is gone"):
        client.send(fake_task("x", code, tmp_path / "log"))
    client.close()


def test_an_import_that_fails_is_quoted(tmp_path: Path) -> None:
    script = "raise ImportError('libcudnn.so.9: cannot open shared object file')"
    with pytest.raises(
        LaunchError, match=r"TensorFlow could not be imported(.|\n)*libcudnn.so.9: cannot open"
    ):
        ForkServerClient(tmp_path / "server.log", (sys.executable, "-c", script))


def test_an_import_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "START_DEADLINE_S", 0.2)
    script = "import socket, sys; socket.socket(fileno=int(sys.argv[-1])).recv(1)"
    with pytest.raises(LaunchError, match="could not be imported"):
        ForkServerClient(tmp_path / "server.log", (sys.executable, "-S", "-c", script))


def test_a_server_of_another_version_is_refused(tmp_path: Path) -> None:
    script = FORK_SERVER_SCRIPT.replace("messages.VERSION", "99")
    with pytest.raises(LaunchError, match="speaks version 99"):
        ForkServerClient(tmp_path / "server.log", (sys.executable, "-c", script))


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"/no/python cannot be started: No such file"):
        start_with_socket(("/no/python",), tmp_path / "log", {})


@pytest.mark.parametrize("name", [*PROXIES, "TF_CONFIG"])
def test_what_would_mislead_a_task_is_dropped(name: str) -> None:
    environment = fork_server_environment({name: "x", "HOME": "/home", "LD_LIBRARY_PATH": "/lib"})
    assert name not in environment
    assert environment["HOME"] == "/home"
    assert environment["LD_LIBRARY_PATH"] == "/lib"


def test_the_suite_is_found_from_everywhere() -> None:
    root = str(Path(__file__).resolve().parents[2])
    assert fork_server_environment({})["PYTHONPATH"] == root
    path = fork_server_environment({"PYTHONPATH": "/mine"})["PYTHONPATH"]
    assert path == f"{root}{os.pathsep}/mine"


def test_the_end_of_a_log_is_quoted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_lines(log) == "(no log)"
    log.write_bytes("\n".join(map(str, range(100))).encode() + b"\n\xff\n")
    assert last_lines(log, 3) == "98\n99\n\ufffd"


def test_a_short_command_is_run_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_quietly(["sh", "-c", "echo out; echo err >&2; exit 3"], 10) == (3, "out\n")
    assert capfd.readouterr() == ("", "")


def test_a_command_that_is_missing_or_hangs_is_none() -> None:
    assert run_quietly(["/no/such/command"], 10) is None
    assert run_quietly(["sleep", "60"], 0.05) is None
