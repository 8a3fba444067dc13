from __future__ import annotations

import errno
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launchers.settings import LauncherSettings
from launchers.sites.emulated import held_network
from launchers.sites.emulated.emulated_site import (
    FORK_SERVER_BYTES,
    BuiltNetwork,
    EmulatedSite,
    network_of,
    refuse_crowd,
)
from launchers.sites.emulated.held_network import (
    CountDropped,
    EmulatedHost,
    HeldNetwork,
    HoldNetwork,
    decode,
    decode_request,
    encode,
    enter_words,
    explain_refusal,
    has_capabilities,
    hold_network,
    read_settings,
    unshare_words,
)
from launchers.sites.emulated.network_process import PINNED, pin_tcp
from launchers.sites.emulated.random_loss import lose_at_random
from launchers.sites.emulated.switch import (
    MAX_TRAIN_BYTES,
    burst_bytes,
    longest_train,
    needed_disciplines,
    queue_bytes,
    train_bytes,
)
from ps_allreduce.errors import HostFault, UserError
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.strategies import AllReduce, SynchronousServers
from tests.fakes import make_experiment

RATES = [1e6, 1e8, 1e9, 2.5e9, 1e10, 3.2e10]


class FakeNetlink:
    """Notes what would be asked of the kernel."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def tc(self, *words: Any, **arguments: Any) -> None:
        self.calls.append((*words, arguments))

    @property
    def added(self) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] == "add"]


@pytest.mark.parametrize("rate", RATES)
def test_no_link_gives_away_much_more_than_a_millisecond_or_32_kilobytes(rate: float) -> None:
    assert burst_bytes(rate) <= max(32 * 1024, rate / 8 * 1.2e-3 + 1)


def test_trains_are_as_long_as_fast_links_allow() -> None:
    assert [train_bytes(rate) for rate in (1e9, 1e10, None)] == [MAX_TRAIN_BYTES] * 3
    assert burst_bytes(1e9) < 150_000
    assert burst_bytes(1e10) == round(1e10 / 8 * 0.5e-3)


@pytest.mark.parametrize("own", RATES)
@pytest.mark.parametrize("other", [*RATES, None])
def test_two_trains_of_any_host_fit_into_the_burst_of_any_receiver(
    own: float, other: float | None
) -> None:
    uneven = EmulatedNetwork(num_hosts=2, bits_per_s=other, slow_host=0, slow_bits_per_s=own)
    assert 2 * train_bytes(own) < burst_bytes(own)
    assert 2 * longest_train(uneven) < burst_bytes(own, longest_train(uneven))


@pytest.mark.parametrize(
    ("rate", "wanted", "size"),
    [
        (1e10, 4_000_000, 4_000_000),
        (1e8, 4_000_000, 4_000_000),
        (1e7, 4_000_000, 2_500_000),
        (1e5, 4_000_000, 131_072),
        (1e5, 20_000, 20_000),
    ],
)
def test_a_port_buffers_what_is_stated_whatever_the_rate_but_no_more_than_two_seconds(
    rate: float, wanted: int, size: int
) -> None:
    assert queue_bytes(rate, wanted) == size


def test_settings_of_tcp_are_written_where_they_differ_and_read_back(tmp_path: Path) -> None:
    for name, wanted in PINNED.items():
        (tmp_path / name).write_text(wanted.replace(" ", "\t") + "\n")
    (tmp_path / "tcp_rmem").write_text("4096\t131072\t33554432\n")
    (tmp_path / "tcp_notsent_lowat").unlink()  # an older kernel
    pin_tcp(tmp_path)
    found = {path.name: " ".join(path.read_text().split()) for path in tmp_path.iterdir()}
    assert found == {name: PINNED[name] for name in PINNED if name != "tcp_notsent_lowat"}


def test_a_setting_of_tcp_that_does_not_take_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tcp_wmem").write_text("1 2 3")
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: 0)
    with pytest.raises(UserError, match=r"tcp_wmem to be '4096 16384 4194304'.*stays 1 2 3"):
        pin_tcp(tmp_path)


def test_a_network_without_timers_is_refused() -> None:
    with pytest.raises(UserError, match="least retransmission timeout"):
        EmulatedNetwork(num_hosts=2, bits_per_s=1e9, rto_min_s=0.0)


def test_a_slow_host_may_be_as_fast_as_others_and_a_port_hold_two_packets() -> None:
    equal = {"bandwidth": 1e9, "slow_host": 1, "slow_bandwidth": 1e9, "port_buffer": 3200}
    assert network_of(LauncherSettings(launcher="emulated", hosts=2, **equal))  # type: ignore[arg-type]


def test_another_time_scale_has_other_timers_and_the_same_buffers() -> None:
    slow = EmulatedNetwork(num_hosts=2, bits_per_s=1e9, port_buffer_bytes=50_000).scaled(0.5)
    assert (slow.rto_min_s, slow.port_buffer_bytes) == (0.4, 50_000)


def test_links_whose_change_failed_are_changed_again_before_the_next_run() -> None:
    first = EmulatedNetwork(num_hosts=2, bits_per_s=1e8)
    other = replace(first, bits_per_s=1e9)
    asked: list[EmulatedNetwork] = []

    def change_links(network: EmulatedNetwork) -> None:
        asked.append(network)
        if len(asked) == 1:
            raise HostFault("half of the links are changed")

    site = EmulatedSite(first)
    holder: Any = SimpleNamespace(is_gone=False, change_links=change_links)
    site._built = BuiltNetwork(first, 1, holder, {}, ExitStack())
    with pytest.raises(HostFault):
        site._with_links_of(other)
    site._with_links_of(first)
    assert asked == [other, first]


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({}, []),
        ({"bits_per_s": 1e9}, ["tbf"]),
        ({"slow_host": 0, "slow_bits_per_s": 1e9}, ["tbf"]),
        ({"racks": 2, "uplink_bits_per_s": 1e9}, ["tbf"]),
        ({"delay_s": 0.001}, ["netem"]),
        ({"bits_per_s": 1e9, "delay_s": 0.001}, ["tbf", "netem"]),
    ],
)
def test_only_what_the_network_needs_is_tried(changes: dict[str, Any], needed: list[str]) -> None:
    network = EmulatedNetwork(**({"num_hosts": 2, "bits_per_s": None} | changes))
    assert list(needed_disciplines(network)) == needed


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ("000001ffffffffff", True),
        ("0000000000201000", True),
        ("0000000000200000", False),
        ("00000000a80425fb", False),  # root in a container of Docker's
        ("0000000000000000", False),
    ],
)
def test_both_capabilities_are_needed(capabilities: str, expected: bool) -> None:
    assert has_capabilities(f"Name:\tx\nCapEff:\t{capabilities}\nSeccomp:\t0\n") is expected


def test_a_user_namespace_is_made_and_entered_only_without_the_capabilities() -> None:
    assert unshare_words(False) == ("unshare", "--net", "--")
    assert unshare_words(True)[1:3] == ("--user", "--map-root-user")
    assert enter_words(7, "/n", "/u", False) == ("nsenter", "--net=/n", "--uts=/u", "--")
    assert enter_words(7, "/n", "/u", True)[1:3] == (
        "--user=/proc/7/ns/user",
        "--preserve-credentials",
    )


def test_settings_that_this_kernel_does_not_have_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "max_user_namespaces").write_text("0\n")
    assert read_settings(tmp_path) == {"user.max_user_namespaces": "0"}


def test_a_reached_limit_is_no_lack_of_rights() -> None:
    text = explain_refusal(os.strerror(errno.ENOSPC), {"user.max_net_namespaces": "2"})
    assert "raise the limits of 'sysctl user'" in text


@pytest.mark.parametrize(
    "names", [[], ["a"], ["a", "a"], ["a", ""], ["a", "b c"], ["a", "-b"], ["a", "b" * 65]]
)
def test_bad_names_are_refused_before_anything_is_started(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launchers.sites.emulated.held_network.start_with_socket", pytest.fail)
    network = EmulatedNetwork(num_hosts=2, bits_per_s=None)
    with pytest.raises(UserError, match="name"), hold_network(network, names):
        pass


#: A process that holds a network, and is stopped as soon as it has been asked for one.
STOPPED = """
import os, signal, socket, sys
line = socket.socket(fileno=int(sys.argv[-1]))
line.recv(1)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_process_that_is_stopped_while_it_builds_is_told_and_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_network, "DEADLINE_S", 0.5)
    monkeypatch.setattr(held_network, "unshare_words", lambda _: ())
    monkeypatch.setattr(held_network, "NETWORK_PROCESS", (sys.executable, "-c", STOPPED))
    network = EmulatedNetwork(num_hosts=2, bits_per_s=None)
    began = time.monotonic()
    told = pytest.raises(HostFault, match="process does not answer")
    with told, hold_network(network, ["a", "b"]):
        pass
    assert time.monotonic() - began < 4  # who is asked to end and does not is waited for 5 s


def test_messages_are_lines_that_come_back_the_same() -> None:
    request: HoldNetwork | CountDropped = HoldNetwork(
        network=EmulatedNetwork(num_hosts=2, bits_per_s=1e9),
        names=("node-1", "node-2.local"),
        with_user=True,
    )
    host = EmulatedHost(name="node-1", address="10.77.0.1", interface="eth0", enter=("nsenter",))
    held = HeldNetwork(hosts=(host,))
    assert encode(request).count(b"\n") == 1
    for each in (request, CountDropped()):
        assert decode_request(encode(each)) == each
    assert decode(HeldNetwork, encode(held)) == held


def test_more_hosts_than_memory_holds_are_refused() -> None:
    refuse_crowd(4, 4 * FORK_SERVER_BYTES)
    with pytest.raises(UserError, match=r"5 emulated hosts need about 1.0 GB .* 0.8 GB are free"):
        refuse_crowd(5, 4 * FORK_SERVER_BYTES)


class NotedServer:
    """Notes that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def start(self) -> None:
        self.asked.append("start")

    def client(self) -> object:
        self.asked.append("client")
        return object()


def test_only_hosts_that_a_run_needs_get_a_fork_server() -> None:
    site = EmulatedSite(EmulatedNetwork(num_hosts=200, bits_per_s=None))
    holder: Any = SimpleNamespace(is_gone=False, program=SimpleNamespace(connection=None))
    servers: Any = {host: NotedServer() for host in site.hosts}
    site._built = BuiltNetwork(site.network, 1, holder, servers, ExitStack())
    with site.servers({"emulated0": 1, "emulated7": 1}, None) as found:
        assert list(found.clients) == ["emulated0", "emulated7"]
    asked = {host: server.asked for host, server in servers.items() if server.asked}
    assert asked == {host: ["start", "client"] for host in found.clients}


def test_the_last_emulated_hosts_are_named_for_servers() -> None:
    settings = LauncherSettings(launcher="emulated", hosts=2, ps_hosts=1)
    network = network_of(settings)
    site = EmulatedSite(network, num_ps_hosts=1)
    assert (site.worker_hosts, site.ps_hosts) == (("emulated0", "emulated1"), ("emulated2",))
    one = make_experiment(
        SynchronousServers,
        2,
        num_ps=1,
        layout=LayoutKind.PS_HOSTS,
        launcher="emulated",
        spread=Spread(),
        network=network,
    )
    assert {str(task): host for task, host in site.place(one).items()} == {
        "ps:0": "emulated2",
        "worker:0": "emulated0",
        "worker:1": "emulated1",
        "chief:0": "emulated0",
    }
    for refused in (replace(settings, hosts=0), replace(settings, ps_hosts=0)):
        with pytest.raises(UserError, match="must be at least 1"):
            network_of(refused)


def test_room_is_needed_for_the_hosts_of_an_experiment_and_asked_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = EmulatedNetwork(num_hosts=200, bits_per_s=None)
    site = EmulatedSite(network)
    free = SimpleNamespace(available=2 * FORK_SERVER_BYTES)
    memory = "launchers.sites.emulated.emulated_site.psutil.virtual_memory"
    monkeypatch.setattr(memory, lambda: free)
    two, three = (
        make_experiment(AllReduce, n, launcher="emulated", spread=Spread(), network=network)
        for n in (2, 3)
    )
    site.check(two)
    with pytest.raises(UserError, match="3 emulated hosts need"):
        site.check(three)
    free.available = 0  # they are up
    site.check(two)


def test_only_links_that_lose_packets_get_a_filter() -> None:
    kernel = FakeNetlink()
    lose_at_random(kernel, 7, 0.0)
    assert kernel.added == []
    with pytest.raises(UserError, match=r"cannot lose packets at random .*without --loss"):
        lose_at_random(kernel, 1 << 30, 0.001)  # the real kernel has no such interface
    assert [call[1] for call in kernel.added] == ["clsact"]
