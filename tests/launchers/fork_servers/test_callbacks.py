"""Fork servers that call back: whoever knows the token is let in, from a host that was asked."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from launchers.fork_servers import bring_up
from launchers.fork_servers.bring_up import let_in, own_addresses
from launchers.fork_servers.client import ForkServerClient
from ps_allreduce.entrance import Entrance
from ps_allreduce.errors import HostFault
from ps_allreduce.fork_server.messages import VERSION, Hello, Ready, encode
from ps_allreduce.record.provenance import program_digest
from tests.fakes import make_facts

TOKEN = "secret"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def call(listener: socket.socket) -> Iterator[Callable[[bytes], socket.socket]]:
    """Calls the launcher, says something, and stays on the line."""
    lines: list[socket.socket] = []

    def call(content: bytes) -> socket.socket:
        lines.append(socket.create_connection(listener.getsockname()))
        lines[-1].sendall(content)
        return lines[-1]

    yield call
    for line in lines:
        line.close()


Call = Callable[[bytes], socket.socket]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bring_up, "GONE_DEADLINE_S", 0.5)


def hello(host: str, token: str = TOKEN, scheduler_name: str = "") -> bytes:
    facts = make_facts(host, scheduler_name=scheduler_name)
    ready = Ready(
        version=VERSION,
        program=program_digest(),
        import_s=0.0,
        pid=1,
        scratch="/tmp",
        facts=facts,
    )
    return encode(Hello(token=token)) + encode(ready)


def nobody_is_gone() -> str:
    return ""


def wait(
    listener: socket.socket, *hosts: str, gone: Callable[[], str] = nobody_is_gone
) -> dict[str, ForkServerClient]:
    clients = let_in(listener, hosts, TOKEN, Path("step.log"), gone)
    for client in clients.values():
        client.close()
    return clients


def test_callers_come_in_any_order_and_are_known_in_the_hosts(
    listener: socket.socket, call: Call
) -> None:
    for host in ("n1", "n9", "n10"):
        call(hello(host))
    clients = wait(listener, "n10", "n1", "n9")
    assert list(clients) == ["n10", "n1", "n9"]
    assert [client.host for client in clients.values()] == ["n10", "n1", "n9"]


def test_the_scheduler_names_a_host_where_there_is_one(listener: socket.socket, call: Call) -> None:
    call(hello("ip-10-0-0-9", scheduler_name="n9"))
    assert wait(listener, "n9")["n9"].ready.facts.name == "ip-10-0-0-9"


@pytest.mark.parametrize(
    "content",
    [hello("n9", token="guess"), hello("n9", token=""), b"GET / HTTP/1.1\r\n\r\n", b""],
    ids=["another token", "no token", "something else", "nothing"],
)
def test_strangers_are_sent_away_and_do_not_stop_others(
    listener: socket.socket, call: Call, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(bring_up, "HELLO_DEADLINE_S", 0.2)
    stranger = call(content)
    call(content).close()
    call(hello("n9"))
    assert list(wait(listener, "n9")) == ["n9"]
    assert not is_open(stranger)


def test_why_all_are_gone_tells_more_than_who_fell_silent(
    listener: socket.socket, call: Call
) -> None:
    others = [call(encode(Hello(token=TOKEN))), call(b"")]
    call(encode(Hello(token=TOKEN))).close()

    def gone() -> str:
        """The program ends with the last of those it started, which end with their lines."""
        assert listener.fileno() == -1  # nobody calls in vain
        return "" if any(map(is_open, others)) else "the step ended: node n9 is down"

    with pytest.raises(HostFault, match="node n9 is down"):
        wait(listener, "n9", "n10", gone=gone)


def is_open(line: socket.socket) -> bool:
    line.settimeout(5)
    with suppress(ConnectionResetError):  # more was said than anybody has read
        return bool(line.recv(1))
    return False


def test_who_fell_silent_is_told_if_the_others_go_on(listener: socket.socket, call: Call) -> None:
    call(encode(Hello(token=TOKEN))).close()
    with pytest.raises(HostFault, match="no fork server came up on 127"):
        wait(listener, "n9")


def test_silent_strangers_delay_nobody(listener: socket.socket, call: Call) -> None:
    for _ in range(20):
        call(b"")
    call(hello("n9"))
    begin = time.monotonic()
    assert list(wait(listener, "n9")) == ["n9"]
    assert time.monotonic() - begin < bring_up.HELLO_DEADLINE_S / 2


def test_a_stranger_may_say_so_much_and_no_more(listener: socket.socket, call: Call) -> None:
    stranger = call(b"[" * 4096)

    def call_when_the_stranger_is_gone() -> None:
        assert not is_open(stranger)
        call(hello("n9"))

    late = threading.Thread(target=call_when_the_stranger_is_gone)
    late.start()
    wait(listener, "n9")
    late.join()


def test_a_fork_server_that_has_called_may_import_or_end(
    listener: socket.socket, call: Call
) -> None:
    word, ready = hello("n9").splitlines(keepends=True)
    line = call(word)
    late = threading.Timer(0.3, line.sendall, [ready])
    late.start()
    assert list(wait(listener, "n9")) == ["n9"]
    late.join()
    call(word).close()
    with pytest.raises(HostFault, match="no fork server came up"):
        wait(listener, "n9")


@pytest.mark.parametrize("host", ["n90", "n", "another"])
def test_a_host_that_was_not_asked_for_ends_the_launch(
    listener: socket.socket, call: Call, host: str
) -> None:
    good, wrong = call(hello("n1")), call(hello(host))
    with pytest.raises(HostFault, match=f"came up on {host}, where none was asked for"):
        wait(listener, "n1", "n9")
    for line in (good, wrong):
        line.settimeout(5)
        assert line.recv(1) == b""


def test_a_host_that_calls_twice_is_not_two_hosts(listener: socket.socket, call: Call) -> None:
    call(hello("n1"))
    call(hello("n1"))
    with pytest.raises(HostFault, match="came up on n1, where none was asked for; expected: n9"):
        wait(listener, "n1", "n9")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        pytest.param(b"", "no fork server called from n10, n9 within", id="nothing"),
        pytest.param(
            encode(Hello(token=TOKEN)),
            "on n10, n9, 1 called and are not ready within",
            id="imports",
        ),
    ],
)
def test_hosts_that_do_not_come_up_are_named(
    listener: socket.socket, call: Call, monkeypatch: pytest.MonkeyPatch, said: bytes, told: str
) -> None:
    monkeypatch.setattr(bring_up, "START_DEADLINE_S", 0.3)
    call(hello("n1"))
    call(said)
    with pytest.raises(HostFault, match=told):
        wait(listener, "n10", "n1", "n9")


def test_when_nobody_is_to_be_expected_the_reason_is_told_at_once(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HostFault, match="srun ended with status 1"):
        wait(listener, "n9", gone=lambda: "srun ended with status 1")


def test_a_caller_who_comes_late_is_waited_for(listener: socket.socket, call: Call) -> None:
    late = threading.Timer(0.4, lambda: call(hello("n9")))
    late.start()
    assert list(wait(listener, "n9")) == ["n9"]
    late.join()


def test_the_loopback_is_the_last_address_to_try() -> None:
    found = own_addresses()
    assert "127.0.0.1" in found
    loops = [address.startswith("127.") for address in found]
    assert loops == sorted(loops)


class Listener(socket.socket):
    is_full = False

    def accept(self) -> tuple[socket.socket, Any]:
        if self.is_full:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


def test_the_stranger_who_has_waited_longest_makes_room() -> None:
    with Listener() as listener, selectors.DefaultSelector() as selector:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        entrance = Entrance(listener, b"word", selector, 5.0)
        at_listener = selector.get_key(listener)
        with socket.create_connection(listener.getsockname()) as caller:
            entrance.serve(at_listener)
            (stranger,) = entrance.strangers
            said = selector.get_key(stranger.connection)
            listener.is_full = True
            entrance.serve(at_listener)
            assert caller.recv(1) == b""
            # What the selector told of it in the same moment is heard no more.
            assert entrance.serve(said) is None
        with pytest.raises(HostFault, match="no caller can be let in"):
            entrance.serve(at_listener)
