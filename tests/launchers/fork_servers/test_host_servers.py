"""Several fork servers as one, with real ones that stand for hosts and speak over the loopback."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import pytest

from launchers.fork_servers import host_servers
from launchers.fork_servers.host_servers import HostServers, clock_offset, measure_links
from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.messages import EndAll, Event, Exited, Started
from tests.pretend import FAKE_SERVER, fake_server, fake_task
from tests.talk import ENDLESS, assert_gone, serving

#: Any address that begins with 127 is this machine's.
ADDRESSES = {"n10": "127.0.0.10", "n1": "127.0.0.1", "n9": "127.0.0.9"}

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


def test_every_link_of_a_ring_is_measured_at_once(three: HostServers) -> None:
    begin = time.monotonic()
    links = measure_links(three, RING, ADDRESSES.__getitem__, seconds=0.2)
    assert time.monotonic() - begin < 10
    assert [(link.source, link.target) for link in links] == RING
    for link in links:
        assert 1e7 < link.bits_per_s < 1e13
        assert 0 < link.round_trip_s < 0.5


def test_a_single_link_is_measured(three: HostServers) -> None:
    (link,) = measure_links(three, RING[:1], ADDRESSES.__getitem__, seconds=0.1)
    assert (link.source, link.target) == ("n10", "n1")


def test_measuring_leaves_no_process_and_no_word_behind(three: HostServers) -> None:
    for _ in range(2):
        measure_links(three, RING, ADDRESSES.__getitem__, seconds=0.05)
    while (heard := three.receive(0.3)) is not None:
        assert not isinstance(heard[1], Event | Exited | Started)


def test_an_address_that_a_host_does_not_have_is_told_and_the_others_are_ended(
    three: HostServers,
) -> None:
    wrong = ADDRESSES | {"n1": "192.0.2.1"}
    with pytest.raises(LaunchError, match=r"the links of n1 cannot be measured: OSError: .*assign"):
        measure_links(three, RING, wrong.__getitem__, seconds=0.1)
    # The receivers of the other hosts are gone, and the servers can be used again.
    ended = {"n10", "n9", "n1"}
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


def test_hosts_that_say_nothing_are_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_servers, "LINK_DEADLINE_S", 0.5)
    servers = start(n10=FAKE_SERVER, n1=fake_server("--job", "ReceiveStream", "hang"))
    links = [("n10", "n1"), ("n1", "n10")]
    with pytest.raises(LaunchError, match=r"nothing more is heard from n1\."):
        measure_links(servers, links, ADDRESSES.__getitem__, seconds=0.1)


def test_a_host_that_is_lost_while_links_are_measured_is_named(start: Start) -> None:
    servers = start(n10=FAKE_SERVER, n1=fake_server("--job", "ReceiveStream", "die"))
    links = [("n10", "n1"), ("n1", "n10")]
    with pytest.raises(LaunchError, match="the fork server on n1, from which its tasks are forked"):
        measure_links(servers, links, ADDRESSES.__getitem__, seconds=0.1)
    assert [servers.clients[host].lost for host in ("n10", "n1")] == [False, True]


def test_clocks_of_one_machine_agree(three: HostServers) -> None:
    assert all(abs(clock_offset(client)) < 0.1 for client in three.clients.values())


@pytest.mark.parametrize("ahead", [100.0, -100.0])
def test_a_clock_that_is_wrong_is_found(start: Start, ahead: float) -> None:
    servers = start(n1=fake_server(f"--ahead={ahead}"))
    assert clock_offset(servers.clients["n1"]) == pytest.approx(ahead, abs=0.1)


def test_the_quickest_answer_counts(start: Start) -> None:
    servers = start(n10=fake_server("--busy"))
    assert clock_offset(servers.clients["n10"]) == pytest.approx(0.0, abs=0.05)


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


def test_silence_of_all_is_none(three: HostServers) -> None:
    assert three.receive(0.01) is None


def listen_to_the_end(servers: HostServers) -> NoReturn:
    while True:
        servers.receive(10)


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
