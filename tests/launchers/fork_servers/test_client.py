"""The launcher's ends of the lines: one fork server with made-up jobs, and several as one."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from launchers.fork_servers import client as client_module
from launchers.fork_servers.asking import Answers, ask_each, clock_offset, in_turns, measure_links
from launchers.fork_servers.client import ForkServerClient, last_lines, readable
from launchers.fork_servers.host_servers import HostServers
from launchers.processes import (
    CommandAnswer,
    fork_server_environment,
    run_quietly,
    start_with_socket,
)
from ps_allreduce.errors import LaunchError, TookTooLong, UserError
from ps_allreduce.fork_server.messages import AskTime, EndAll, Event, Exited, Started, TimeTold
from ps_allreduce.inspection.questions import Listening, StreamReceived
from ps_allreduce.record.hosts import Interface
from tests.cluster import ADDRESSES
from tests.fakes import make_facts
from tests.pretend import FAKE_SERVER, fake_server, fake_task
from tests.talk import ENDLESS, assert_gone, serving

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


class Answered(NamedTuple):
    """What a task asks for that is a job."""

    client: ForkServerClient
    folder: Path

    def __call__(self, code: str, deadline_s: float = 10.0) -> Listening:
        servers = HostServers({self.client.host: self.client})
        request = fake_task("StartTask", code, self.folder)
        (answer,) = ask_each(servers, request, Listening, deadline_s)
        return answer


@pytest.fixture
def ask(client: ForkServerClient, tmp_path: Path) -> Answered:
    return Answered(client, tmp_path / "log")


ANSWERING = "from ps_allreduce.inspection.questions import Listening; report(Listening(port=3))"


def test_an_answer_is_handed_out(ask: Answered) -> None:
    assert ask(ANSWERING).port == 3


@pytest.mark.parametrize(("name", "kind"), [("UserError", UserError), ("LaunchError", LaunchError)])
def test_a_mistake_of_the_users_stays_one(ask: Answered, name: str, kind: type[Exception]) -> None:
    code = f"from ps_allreduce import errors; raise errors.{name}('a.tfrecord is truncated.')"
    with pytest.raises(kind, match=r"^a.tfrecord is truncated\.$"):
        ask(code)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("", r"\(StartTask\) ended with status 0 and gave no answer"),
        ("import os; os._exit(3)", r"\(StartTask\) ended with status 3 and gave no answer"),
        (f"{ANSWERING}; import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
    ],
)
def test_a_job_that_says_nothing_or_crashes_has_failed(ask: Answered, code: str, told: str) -> None:
    with pytest.raises(LaunchError, match=told):
        ask(code)


def test_a_job_that_takes_too_long_is_ended(ask: Answered) -> None:
    with pytest.raises(TookTooLong, match="StartTask took longer than 0 s"):
        ask(f"{ANSWERING}; __import__('time').sleep(600)", 0.4)
    assert ask(ANSWERING.replace("3", "4")).port == 4


def listen_to_the_end(client: ForkServerClient | HostServers) -> NoReturn:
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


def test_an_import_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "START_DEADLINE_S", 0.2)
    script = "import socket, sys; socket.socket(fileno=int(sys.argv[-1])).recv(1)"
    with (
        serving(tmp_path, words=(sys.executable, "-S", "-c", script)) as client,
        pytest.raises(LaunchError, match="within 0 s: TensorFlow's import takes longer there"),
    ):
        client.wait_ready()


def test_a_server_of_another_version_is_refused(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "n10", fake_server("--version", "99")) as client,
        pytest.raises(
            LaunchError, match=r"on n10 speaks version 99 .* use the same checkout on all hosts"
        ),
    ):
        client.wait_ready()


def test_a_server_with_another_program_is_refused_whatever_its_host_is(tmp_path: Path) -> None:
    told = r"/ps_allreduce on n10 is not the program that this command began with: .* same checkout"
    with (
        serving(tmp_path, "n10", fake_server("--program", "0badcafe")) as client,
        pytest.raises(UserError, match=told),
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
    client.fetch(str(tmp_path / "gone"), tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


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


def test_an_interrupt_beside_a_command_that_has_just_ended_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def communicate(program: subprocess.Popen[str], timeout: float) -> NoReturn:
        program.wait(timeout)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", communicate)
    with pytest.raises(KeyboardInterrupt):
        run_quietly(["true"], 10)


def test_descriptors_from_1024_on_are_heard() -> None:
    with ExitStack() as stack:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
        lines = [socket.socketpair() for _ in range(3)]
        for line in (each for pair in lines for each in pair):
            stack.enter_context(line)
        high = [fcntl.fcntl(here, fcntl.F_DUPFD_CLOEXEC, 1024) for here, _ in lines]
        for descriptor in high:
            stack.callback(os.close, descriptor)
        assert min(high) >= 1024
        assert readable(high, 0) == []
        lines[1][1].sendall(b"x")
        lines[2][1].close()
        assert readable(high, 5) == high[1:]


def test_a_short_command_is_run_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    answer = run_quietly(["sh", "-c", "echo out; echo err >&2; exit 3"], 10)
    assert answer == CommandAnswer(status=3, out="out\n", err="err\n")
    assert capfd.readouterr() == ("", "")


def test_a_command_that_is_missing_or_hangs_is_none() -> None:
    assert run_quietly(["/no/such/command"], 10) is None
    assert run_quietly(["sleep", "60"], 0.05) is None


def test_what_a_command_that_hangs_has_started_ends_with_it(tmp_path: Path) -> None:
    started = tmp_path / "started"
    assert run_quietly(["sh", "-c", f"sleep 60 & echo $! > {started}; wait"], 1) is None
    assert_gone([int(started.read_text())])


RING = [("n10", "n1"), ("n1", "n9"), ("n9", "n10")]

Start = Callable[..., HostServers]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts fork servers, one per host, from a script each."""
    with ExitStack() as stack:

        def start(**words: Sequence[str]) -> HostServers:
            clients = {}
            for host, command in words.items():
                (tmp_path / host).mkdir()
                clients[host] = stack.enter_context(serving(tmp_path / host, host, command))
            for client in clients.values():
                client.wait_ready()
            return HostServers(clients)

        yield start


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostServers]:
    """For tests that leave the servers as they found them."""
    with ExitStack() as stack:
        clients = {
            host: stack.enter_context(serving(tmp_path_factory.mktemp(host), host))
            for host in ADDRESSES
        }
        for client in clients.values():
            client.wait_ready()
        yield HostServers(clients)


def test_every_link_of_a_ring_is_measured(three: HostServers) -> None:
    begin = time.monotonic()
    links = measure_links(three, RING, ADDRESSES.__getitem__, seconds=0.2)
    took = time.monotonic() - begin
    assert [(link.source, link.target) for link in links] == RING
    for link in links:
        assert 1e7 < link.bits_per_s < 1e13
        assert 0 < link.round_trip_s < took


@pytest.mark.parametrize(
    ("links", "turns"),
    [
        ([(0, 1), (1, 0)], 2),
        *[([(host, (host + 1) % size) for host in range(size)], 3) for size in (3, 4, 5, 8)],
        ([(0, 3), (3, 0), (2, 1), (1, 2)], 2),
        ([(3, 0), (2, 0), (1, 0)], 1),
        ([], 0),
    ],
)
def test_no_cable_carries_data_both_ways_in_a_turn(
    links: list[tuple[int, int]], turns: int
) -> None:
    """Neither that of a host, nor one between hosts that follow each other."""
    named = [(str(source), str(target)) for source, target in links]
    found = in_turns(named, [str(host) for host in range(8)])
    assert len(found) == turns
    assert sorted(link for turn in found for link in turn) == sorted(named)
    for turn in found:
        assert not {source for source, _ in turn} & {target for _, target in turn}
        assert len({source < target for source, target in turn}) == 1


def test_what_several_send_to_one_counts_for_each_in_equal_shares(
    three: HostServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[StreamReceived] = []
    of = Answers.of

    def note(answers: Answers, kind: Any) -> Any:
        found = of(answers, kind)
        taken.extend(found.values() if kind is StreamReceived else ())
        return found

    monkeypatch.setattr(Answers, "of", note)
    target, *others = ADDRESSES
    pairs = [(source, target) for source in others]
    first, second = measure_links(three, pairs, ADDRESSES.__getitem__, seconds=0.2)
    assert [(each.source, each.target) for each in (first, second)] == pairs
    (whole,) = taken
    assert 1e7 < first.bits_per_s == second.bits_per_s
    assert 2 * first.bits_per_s == pytest.approx(8e9 * whole.num_bytes / whole.ns)


def test_measuring_leaves_no_process_and_no_word_behind(three: HostServers) -> None:
    for _ in range(2):
        measure_links(three, RING, ADDRESSES.__getitem__, seconds=0.05)
    while (heard := three.receive(0.3)) is not None:
        assert not isinstance(heard[1], Event | Exited | Started)


def test_an_address_that_a_host_does_not_have_is_told_and_the_others_are_ended(
    three: HostServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = ADDRESSES | {"n1": "192.0.2.1"}
    ready = three.clients["n1"].ready
    bridge = Interface(name="docker0", address="192.0.2.1", prefix_length=16)
    interfaces = (bridge, *make_facts().interfaces)
    facts = replace(ready.facts, interfaces=interfaces)
    monkeypatch.setattr(three.clients["n1"], "_ready", replace(ready, facts=facts))
    with pytest.raises(
        LaunchError,
        match=r"the links of n1 cannot be measured: OSError: .*assign.*; n1 is called at 192.0.2.1 "
        r"\(docker0\), and --interface chooses another network \(eth0\)$",
    ):
        measure_links(three, [("n10", "n9"), ("n10", "n1")], wrong.__getitem__, seconds=0.1)
    # The other receiver is gone, and the servers can be used again.
    ended = {"n9", "n1"}
    while ended:
        heard = three.receive(10)
        assert heard is not None
        if isinstance(heard[1], Exited):
            ended.discard(heard[0])
    measure_links(three, RING, ADDRESSES.__getitem__, seconds=0.05)


def test_a_host_that_cannot_reach_another_is_told(start: Start) -> None:
    servers = start(n10=fake_server("--job", "SendStream", "no_route"), n1=FAKE_SERVER)
    links = [("n10", "n1"), ("n1", "n10")]
    with pytest.raises(LaunchError, match=r"the links of n10 cannot be measured: .*No route to h"):
        measure_links(servers, links, ADDRESSES.__getitem__, seconds=0.1)


@pytest.mark.parametrize("ahead", [0.0, 100.0, -100.0])
def test_a_clock_that_is_wrong_is_found(start: Start, ahead: float) -> None:
    servers = start(n1=fake_server(f"--ahead={ahead}"))
    begin = time.monotonic()
    offset = clock_offset(servers.clients["n1"])
    # Whatever the load: what a question takes bounds the error of its answer.
    assert abs(offset - ahead) < time.monotonic() - begin


def test_the_quickest_answer_counts(start: Start) -> None:
    servers = start(n10=fake_server("--busy"))
    assert abs(clock_offset(servers.clients["n10"])) < 0.2


def test_whoever_speaks_is_heard_with_the_host(three: HostServers, tmp_path: Path) -> None:
    for host, client in three.clients.items():
        client.send(fake_task(f"task of {host}", "report('hello')", tmp_path / host))
    heard: set[tuple[str, str]] = set()
    while len(heard) < 3:
        answer = three.receive(10)
        assert answer is not None
        host, message = answer
        if isinstance(message, Exited):
            heard.add((host, message.name))
    assert heard == {(host, f"task of {host}") for host in ADDRESSES}


def test_silence_is_none(client: ForkServerClient, three: HostServers) -> None:
    assert client.receive(0.01) is None
    assert three.receive(0.01) is None


def test_a_request_reaches_all_hosts_that_are_left(start: Start, tmp_path: Path) -> None:
    servers = start(n10=FAKE_SERVER, n1=FAKE_SERVER, n9=FAKE_SERVER)
    pids = []
    for host, client in servers.clients.items():
        client.send(fake_task("x", ENDLESS, tmp_path / f"{host}.log"))
        while not isinstance(message := client.receive(10), Started):
            pass
        pids.append(message.pid)
    os.kill(servers.clients["n1"].ready.pid, signal.SIGKILL)
    with pytest.raises(LaunchError, match="the fork server on n1"):
        listen_to_the_end(servers)
    servers.send_all(EndAll())
    assert_gone(pids)
