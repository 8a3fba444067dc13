"""The launcher's end of the line, with the real fork server and made-up jobs."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from launchers.fork_servers import client as client_module
from launchers.fork_servers.client import ForkServerClient, fork_server_environment, last_lines
from launchers.processes import Answer, run_quietly, start_with_socket
from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.fork_server.messages import AskTime, EndAll, Event, Exited, TimeTold
from tests.pretend import fake_server, fake_task
from tests.talk import assert_gone, serving

PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "grpc_proxy")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServerClient]:
    with serving(tmp_path_factory.mktemp("client")) as client:
        client.wait_ready()
        yield client


def test_a_server_says_what_it_is_before_it_is_asked(
    client: ForkServerClient, tmp_path: Path
) -> None:
    assert (client.host, client.lost, client.is_ready) == ("n9", False, True)
    assert client.ready.facts.name == socket.gethostname()
    with serving(tmp_path) as unready:
        assert not unready.is_ready
        with pytest.raises(ValueError, match="the fork server on n9 is not ready"):
            _ = unready.ready


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
    with serving(tmp_path) as client:
        client.wait_ready()
        code = "report('up', text=str(__import__('os').getpid())); __import__('time').sleep(600)"
        client.send(fake_task("x", code, tmp_path / "log"))
        while not isinstance(message := client.receive(10), Event):
            pass
        client.close()
        assert client.lost
        assert_gone([int(message.text)])


def listen_to_the_end(client: ForkServerClient) -> NoReturn:
    while True:
        client.receive(10)


def test_a_server_that_dies_is_quoted_with_its_host(tmp_path: Path) -> None:
    with serving(tmp_path, "n10") as client:
        client.wait_ready()
        code = "import os; os.kill(os.getppid(), 9); __import__('time').sleep(600)"
        client.send(fake_task("x", code, tmp_path / "log"))
        told = "the fork server on n10, from which its tasks are forked, ended"
        with pytest.raises(LaunchError, match=told):
            listen_to_the_end(client)
        assert client.lost
        with pytest.raises(LaunchError, match=rf"{told} \(Broken pipe\)"):
            client.send(fake_task("x", code, tmp_path / "log"))


def test_an_import_that_fails_is_quoted(tmp_path: Path) -> None:
    script = "raise ImportError('libcudnn.so.9: cannot open shared object file')"
    with (
        serving(tmp_path, "n10", (sys.executable, "-c", script)) as client,
        pytest.raises(
            LaunchError,
            match=r"no fork server came up on n10: TensorFlow could not be imported there"
            r"(.|\n)*libcudnn.so.9: cannot open",
        ),
    ):
        client.wait_ready()


def test_an_import_that_never_ends_is_given_up(tmp_path: Path) -> None:
    script = "import socket, sys; socket.socket(fileno=int(sys.argv[-1])).recv(1)"
    with (
        serving(tmp_path, words=(sys.executable, "-S", "-c", script)) as client,
        pytest.raises(LaunchError, match="could not be imported"),
    ):
        client.wait_ready(0.2)


def test_a_server_of_another_version_is_refused(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "n10", fake_server("--version", "99")) as client,
        pytest.raises(
            LaunchError, match=r"on n10 speaks version 99 .* use the same checkout on all hosts"
        ),
    ):
        client.wait_ready()


def test_a_question_is_answered_in_spite_of_reports_in_between(
    client: ForkServerClient, tmp_path: Path
) -> None:
    code = "for _ in range(50): report('busy')\n__import__('time').sleep(600)"
    client.send(fake_task("x", code, tmp_path / "log"))
    assert client.answer(AskTime(), TimeTold).time > 1e9
    client.send(EndAll())
    while not isinstance(client.receive(10), Exited):
        pass


def test_a_server_that_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "ANSWER_DEADLINE_S", 0.3)
    with serving(tmp_path, "n10") as client:
        client.wait_ready()
        os.kill(client.ready.pid, signal.SIGSTOP)
        try:
            with pytest.raises(LaunchError, match="the fork server on n10 does not answer within"):
                client.answer(AskTime(), TimeTold)
        finally:
            os.kill(client.ready.pid, signal.SIGCONT)
        assert client.lost


@pytest.mark.parametrize("piece", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 3])
def test_a_file_is_fetched_as_it_is_in_pieces_of_any_size(
    client: ForkServerClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    piece: int,
) -> None:
    monkeypatch.setattr(client_module, "PIECE_BYTES", piece)
    (tmp_path / "there").write_bytes(content)
    client.fetch(str(tmp_path / "there"), tmp_path / "here")
    assert (tmp_path / "here").read_bytes() == content


def test_a_file_that_is_not_there_is_not_made_up(client: ForkServerClient, tmp_path: Path) -> None:
    client.fetch(str(tmp_path / "gone"), tmp_path / "here")
    assert not (tmp_path / "here").exists()


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
    root = str(Path(__file__).resolve().parents[3])
    assert fork_server_environment({})["PYTHONPATH"] == root
    path = fork_server_environment({"PYTHONPATH": "/mine"})["PYTHONPATH"]
    assert path == f"{root}{os.pathsep}/mine"


def test_the_end_of_a_log_is_quoted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_lines(log) == "(no log)"
    log.write_bytes("\n".join(map(str, range(100))).encode() + b"\n\xff\n")
    assert last_lines(log, 3) == "98\n99\n\ufffd"


def test_a_short_command_is_run_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    answer = run_quietly(["sh", "-c", "echo out; echo err >&2; exit 3"], 10)
    assert answer == Answer(status=3, out="out\n", err="err\n")
    assert capfd.readouterr() == ("", "")


def test_a_command_that_is_missing_or_hangs_is_none() -> None:
    assert run_quietly(["/no/such/command"], 10) is None
    assert run_quietly(["sleep", "60"], 0.05) is None
