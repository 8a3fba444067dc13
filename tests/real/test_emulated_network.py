"""Emulated networks in real namespaces: reached, shaped, and gone afterwards.

Rates are upper bounds that always hold and lower bounds that a busy machine must get a chance to
reach; the best of several attempts counts.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from launchers.sites.emulated.emulated_site import EmulatedSite, measure_flows
from launchers.sites.emulated.held_network import EmulatedHost, Holder, hold_network
from ps_allreduce.errors import UserError
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.record.provenance import ROOT
from tests.real.machines import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("namespaces")]

#: Of tests that measure rates.
timed = pytest.mark.timed

PORT = "7000"

ATTEMPTS = 6

#: Of a link's rate, TCP's payload in packets of 1500 bytes is 0.957.
PAYLOAD = 0.96

#: Serves any number of clients, one after the other, and tells each who answered.
SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("ready", flush=True)
    while True:
        client, _ = server.accept()
        client.sendall(socket.gethostname().encode())
        client.close()
"""

ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10) as connection:
    print(connection.recv(100).decode())
"""

#: Takes one connection and prints the bits per second that came between 0.3 s and the end.
RECEIVE = """
import socket, sys, time
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("ready", flush=True)
    client, _ = server.accept()
buffer, begin, received = bytearray(1 << 20), None, 0
first = time.monotonic()
while count := client.recv_into(buffer):
    now = time.monotonic()
    if begin is not None:
        received += count
    elif now - first > 0.3:
        begin = now
print(received * 8 / (now - begin))
"""

SEND = """
import socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10) as connection:
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        connection.sendall(bytes(1 << 18))
"""

#: Holds a network, prints its hosts, and waits to be ended.
HOLD = """
import json, sys
from dataclasses import asdict
from launchers.sites.emulated.held_network import hold_network
from ps_allreduce.errors import SuiteError
from ps_allreduce.point.network import EmulatedNetwork
try:
    with hold_network(EmulatedNetwork(num_hosts=3, bits_per_s=1e8), ["n1", "n2", "n3"]) as held:
        print(json.dumps([asdict(host) for host in held.hosts]), flush=True)
        sys.stdin.read()
except SuiteError as error:
    print(json.dumps(f"{type(error).__name__}: {error}"))
"""


def python(program: str, *words: str) -> list[str]:
    return [sys.executable, "-c", program, *words]


@contextmanager
def running(words: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def output(words: Sequence[str]) -> str:
    return subprocess.run(
        words, stdout=subprocess.PIPE, text=True, timeout=60, check=True
    ).stdout.strip()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(1, count + 1)]


def check_all_reach_all(hosts: Sequence[EmulatedHost]) -> None:
    with ExitStack() as stack:
        for host in hosts:
            words = [*host.enter, *python(SERVER, host.address, PORT)]
            assert line(stack.enter_context(running(words))) == "ready"
        for client, server in permutations(hosts, 2):
            words = [*client.enter, *python(ASK, server.address, PORT)]
            assert output(words) == server.name


Pair = tuple[EmulatedHost, EmulatedHost]


def rates(pairs: Sequence[Pair]) -> list[float]:
    """Bits per second from the first to the second of every pair, all at once."""
    with ExitStack() as stack:
        receivers = []
        for number, (_, receiver) in enumerate(pairs, int(PORT)):
            words = [*receiver.enter, *python(RECEIVE, receiver.address, str(number))]
            receivers.append(stack.enter_context(running(words)))
        assert [line(receiver) for receiver in receivers] == ["ready"] * len(pairs)
        for number, (sender, receiver) in enumerate(pairs, int(PORT)):
            words = [*sender.enter, *python(SEND, receiver.address, str(number))]
            stack.enter_context(running(words))
        return [float(line(receiver)) for receiver in receivers]


def check_rates(pairs: Sequence[Pair], expected: Sequence[float]) -> None:
    """The links limit every time, and let each pair through at least once.

    What is lost where both directions are busy and trains are cut is a third (see `switch`).
    """
    best = [0.0] * len(pairs)
    for _ in range(ATTEMPTS):
        ratios = [found / limit for found, limit in zip(rates(pairs), expected, strict=True)]
        assert max(ratios) < PAYLOAD + 0.02
        best = [max(seen) for seen in zip(best, ratios, strict=True)]
        if min(best) > 0.75:
            return
    pytest.fail(f"reached {best} of the rates")


def check_shared(pairs: Sequence[Pair], limit: float) -> None:
    """All pairs together get the rate of the link that they share.

    Their own rates are added up although they do not begin and end together, so one attempt can be
    off in both directions.
    """
    shares = []
    for _ in range(ATTEMPTS):
        shares.append(sum(rates(pairs)) / limit)
        if 0.7 < shares[-1] < PAYLOAD + 0.05:
            return
    pytest.fail(f"together they reached {shares} of the rate")


def test_every_host_has_its_name_and_its_link_and_nothing_else_and_reaches_every_other() -> None:
    show = "import socket; print(socket.gethostname(), *dict(socket.if_nameindex()).values())"
    with hold_network(EmulatedNetwork(num_hosts=4, bits_per_s=1e9), names(4)) as held:
        assert [host.address for host in held.hosts] == [f"10.77.0.{i}" for i in (1, 2, 3, 4)]
        assert {host.interface for host in held.hosts} == {"eth0"}
        for host in held.hosts:
            assert output([*host.enter, *python(show)]) == f"{host.name} lo eth0"
        check_all_reach_all(held.hosts)


@timed
def test_links_are_limited_in_both_directions_at_once_and_can_be_changed() -> None:
    network = EmulatedNetwork(num_hosts=2, bits_per_s=1e8)
    with hold_network(network, names(2)) as held:
        a, b = held.hosts
        for bits_per_s in (1e8, 1e9):
            held.change_links(replace(network, bits_per_s=bits_per_s))
            check_rates([(a, b), (b, a)], [bits_per_s, bits_per_s])


ALGORITHM = """
import socket, sys
option = (socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("ready", flush=True)
    client, _ = server.accept()
    print(client.getsockopt(*option).rstrip(b"\\0").decode())
"""

ASK_ALGORITHM = """
import socket, sys
option = (socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10) as connection:
    print(connection.getsockopt(*option).rstrip(b"\\0").decode())
"""


def algorithms(hosts: Sequence[EmulatedHost]) -> set[str]:
    """What both ends of a connection use."""
    server, client = hosts
    with running([*server.enter, *python(ALGORITHM, server.address, PORT)]) as listening:
        assert line(listening) == "ready"
        asked = output([*client.enter, *python(ASK_ALGORITHM, server.address, PORT)])
        return {asked, line(listening)}


def test_both_ends_use_the_stated_congestion_control_whatever_this_machine_uses() -> None:
    network = EmulatedNetwork(num_hosts=2, bits_per_s=1e9)
    with hold_network(network, names(2)) as held:
        apart, alone = held.hosts, [held.hosts[0]] * 2
        assert [algorithms(ends) for ends in (apart, alone)] == [{"cubic"}] * 2
        held.change_links(replace(network, congestion="reno"))
        assert [algorithms(ends) for ends in (apart, alone)] == [{"reno"}] * 2
        with pytest.raises(UserError, match=r"no congestion control swift: choose one of .*reno"):
            held.change_links(replace(network, congestion="swift"))


@timed
def test_a_shallow_port_loses_packets_of_several_senders_and_counts_them() -> None:
    network = EmulatedNetwork(num_hosts=4, bits_per_s=1e8, port_buffer_bytes=30_000)
    with hold_network(network, names(4)) as held:
        assert list(held.dropped()) == [0, 0, 0, 0]
        target, *senders = held.hosts
        rates([(sender, target) for sender in senders])
        lost = held.dropped()
        assert lost[0] > 0
        assert list(lost[1:]) == [0, 0, 0]


#: Sends so many datagrams with so many bytes, slowly enough for a link of 100 Mbit/s.
DATAGRAMS = """
import socket, sys, time
address, port, count, size = sys.argv[1], *map(int, sys.argv[2:])
sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(count):
    sending.sendto(bytes(size), (address, port))
    if number % 50 == 49:
        time.sleep(0.01)
"""


#: Takes datagrams: a host answers one that nobody takes, and its answers can be lost as well.
TAKE_DATAGRAMS = """
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taking:
    taking.bind((sys.argv[1], int(sys.argv[2])))
    print("ready", flush=True)
    time.sleep(60)
"""


def lost_datagrams(held: Holder, count: int, size: int) -> Sequence[int]:
    """What ports lose of datagrams from the first host to the second."""
    before, (source, target) = held.dropped(), held.hosts
    with running([*target.enter, *python(TAKE_DATAGRAMS, target.address, PORT)]) as taking:
        assert line(taking) == "ready"
        output([*source.enter, *python(DATAGRAMS, target.address, PORT, str(count), str(size))])
    return [after - earlier for after, earlier in zip(held.dropped(), before, strict=True)]


@timed
def test_the_stated_share_of_packets_with_payload_is_lost_at_random_and_counted() -> None:
    network = EmulatedNetwork(num_hosts=2, bits_per_s=1e8)
    with hold_network(network, names(2)) as held:
        assert lost_datagrams(held, 2000, 1000) == [0, 0]
        held.change_links(replace(network, loss=0.1))
        towards_source, towards_target = lost_datagrams(held, 5000, 1000)
        # Packets are drawn: three times in a million so many are further off than this.
        assert towards_target == pytest.approx(500, abs=100)
        assert towards_source == 0
        assert lost_datagrams(held, 2000, 100) == [0, 0]
        held.change_links(network)
        assert lost_datagrams(held, 2000, 1000) == [0, 0]


@timed
def test_links_that_lose_packets_are_limited_all_the_same_and_lose_single_packets_of_tcp() -> None:
    network = EmulatedNetwork(num_hosts=2, bits_per_s=1e8, loss=0.001)
    with hold_network(network, names(2)) as held:
        source, target = held.hosts
        assert 0.2 < rates([(source, target)])[0] / 1e8 < PAYLOAD + 0.02
        # In 1.5 s pass 12,000 packets at most, and at a fifth of the rate 2,400.
        assert 0 < held.dropped()[1] < 50
        held.change_links(replace(network, loss=0.0))
        assert rates([(source, target)])[0] / 1e8 > 0.5
        assert list(held.dropped()) == [0, 0]


@timed
def test_plain_tcp_of_one_host_and_of_all_others_to_one_shares_the_rate_of_its_link() -> None:
    network = EmulatedNetwork(num_hosts=4, bits_per_s=1e8, port_buffer_bytes=30_000)
    one, three = measure_flows(EmulatedSite(network), seconds=1.0)
    assert (one.senders, three.senders) == (1, 3)
    assert one.bits_per_s < (PAYLOAD + 0.02) * 1e8
    assert three.bits_per_s < (PAYLOAD + 0.05) * 1e8
    assert min(one.bits_per_s, three.bits_per_s) > 0.5e8
    assert one.dropped < three.dropped


@timed
def test_a_slow_host_is_slow_in_both_directions_and_the_others_are_not() -> None:
    network = EmulatedNetwork(num_hosts=4, bits_per_s=3e8, slow_host=1, slow_bits_per_s=5e7)
    with hold_network(network, names(4)) as held:
        fast, slow, *others = held.hosts
        check_rates([(fast, slow), (others[0], others[1])], [5e7, 3e8])
        check_rates([(slow, fast), (others[1], others[0])], [5e7, 3e8])


@timed
def test_racks_share_an_uplink() -> None:
    network = EmulatedNetwork(num_hosts=4, bits_per_s=3e8, racks=2, uplink_bits_per_s=1e8)
    with hold_network(network, names(4)) as held:
        check_all_reach_all(held.hosts)
        a, b, c, d = held.hosts
        check_rates([(a, b), (d, c)], [3e8, 3e8])
        check_shared([(a, c), (b, d)], 1e8)


@timed
def test_a_delay_is_kept_or_refused_in_one_sentence() -> None:
    found = round_trip_or_refusal(EmulatedNetwork(num_hosts=2, bits_per_s=1e9, delay_s=0.02))
    if isinstance(found, str):
        assert "cannot emulate delay: its module sch_netem is missing" in found
        assert "\n" not in found
    else:
        assert 0.04 <= found < 0.06


def round_trip_or_refusal(network: EmulatedNetwork) -> float | str:
    try:
        with hold_network(network, names(2)) as held:
            return round_trip(*held.hosts)
    except UserError as error:
        return str(error)


def round_trip(a: EmulatedHost, b: EmulatedHost) -> float:
    program = (
        "import socket, sys, time\n"
        "for _ in range(3):\n"
        "    begin = time.monotonic()\n"
        "    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10).close()\n"
        "    took = time.monotonic() - begin\n"
        "print(took)"
    )
    with running([*b.enter, *python(SERVER, b.address, PORT)]) as server:
        assert line(server) == "ready"
        return float(output([*a.enter, *python(program, b.address, PORT)]))


@timed
def test_networks_with_the_same_addresses_do_not_meet() -> None:
    network = EmulatedNetwork(num_hosts=2, bits_per_s=1e8)
    with (
        hold_network(network, ["first1", "first2"]) as first,
        hold_network(network, ["second1", "second2"]) as second,
    ):
        assert len({host.address for host in [*first.hosts, *second.hosts]}) == 2
        for held in (first, second):
            check_all_reach_all(held.hosts)
        pairs = [(first.hosts[0], first.hosts[1]), (second.hosts[0], second.hosts[1])]
        check_rates(pairs, [1e8, 1e8])


def holder_of(enter: Iterable[str]) -> int:
    (pid,) = {found[1] for word in enter if (found := re.search(r"/proc/(\d+)/fd", word))}
    return int(pid)


def namespaces_of(hosts: Iterable[EmulatedHost]) -> dict[str, int]:
    """The network namespaces of all hosts and of their switch, as the kernel numbers them.

    This process holds each by a descriptor: the kernel would give the number of one that is gone
    to the next one, which another test may make.
    """
    paths = [word.removeprefix("--net=") for host in hosts for word in host.enter if "net=" in word]
    switches = [f"/proc/{holder_of(host.enter)}/ns/net" for host in hosts]
    return {os.readlink(path): os.open(path, os.O_RDONLY) for path in {*paths, *switches}}


def used_namespaces() -> set[str]:
    """The network namespaces that any process but this one is in or holds."""
    used = set()
    for path in Path("/proc").glob("[0-9]*"):
        if path.name == str(os.getpid()):
            continue
        with suppress(OSError):
            links = [path / "ns" / "net", *(path / "fd").iterdir()]
            for link in links:
                with suppress(OSError):
                    used.add(os.readlink(link))
    return used


def outside() -> tuple[set[str], set[str]]:
    """Interfaces and named namespaces that everybody on this machine can see."""
    named = Path("/run/netns")
    interfaces = {name for _, name in socket.if_nameindex()}
    return interfaces, {path.name for path in named.iterdir()} if named.is_dir() else set()


def check_gone(spaces: dict[str, int], pid: int) -> None:
    wait_until(
        lambda: not Path(f"/proc/{pid}").exists() and not spaces.keys() & used_namespaces(),
        30.0,
        lambda: f"left: {spaces.keys() & used_namespaces()}, process {pid}",
    )
    for descriptor in spaces.values():
        os.close(descriptor)


def test_nothing_can_be_seen_outside_and_nothing_is_left_even_after_an_error() -> None:
    before = outside()
    used: list[tuple[dict[str, int], int]] = []

    def look_and_fail() -> None:
        network = EmulatedNetwork(num_hosts=3, bits_per_s=1e9, racks=2)
        with hold_network(network, names(3)) as held:
            seen = zip(outside(), before, strict=True)
            assert [now - earlier for now, earlier in seen] == [set(), set()]
            used.append((namespaces_of(held.hosts), holder_of(held.hosts[0].enter)))
            assert used[0][0].keys() <= used_namespaces()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        look_and_fail()
    ((spaces, pid),) = used
    assert len(spaces) == 4
    check_gone(spaces, pid)


def hosts_printed_by(process: subprocess.Popen[str]) -> list[EmulatedHost]:
    answer = json.loads(line(process))
    assert isinstance(answer, list), answer
    return [EmulatedHost(**host | {"enter": tuple(host["enter"])}) for host in answer]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_when_the_launcher_is_killed(number: signal.Signals) -> None:
    with running(python(HOLD), cwd=ROOT, stdin=subprocess.PIPE) as launcher:
        hosts = hosts_printed_by(launcher)
        spaces, pid = namespaces_of(hosts), holder_of(hosts[0].enter)
        launcher.send_signal(number)
        launcher.wait(10)
        check_gone(spaces, pid)


def test_nothing_is_left_when_the_holder_is_killed() -> None:
    with hold_network(EmulatedNetwork(num_hosts=2, bits_per_s=1e9), names(2)) as held:
        spaces, pid = namespaces_of(held.hosts), holder_of(held.hosts[0].enter)
        os.kill(pid, signal.SIGKILL)
    check_gone(spaces, pid)


def without_privileges() -> list[str]:
    """Words that make an ordinary user of us.

    Where this Python is readable for root only, root without capabilities takes that part; SETFCAP
    remains, without which the kernel does not let anybody be root in a user namespace whom the
    parent knows as root.
    """
    if os.geteuid() != 0:
        return []
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    probe = [*nobody, "env", *python("import click, pyroute2, launchers")]
    if subprocess.run(probe, cwd=ROOT, capture_output=True, check=False).returncode == 0:
        return nobody
    return ["setpriv", "--bounding-set=-all,+setfcap", "--inh-caps=-all"]


@timed
def test_an_ordinary_user_needs_no_root() -> None:
    words = [*without_privileges(), *python(HOLD)]
    with running(words, cwd=ROOT, stdin=subprocess.PIPE) as launcher:
        hosts = hosts_printed_by(launcher)
        assert hosts[0].enter[1].startswith("--user=")
        spaces, pid = namespaces_of(hosts), holder_of(hosts[0].enter)
        same_user = [replace(h, enter=(*without_privileges(), *h.enter)) for h in hosts]
        check_all_reach_all(same_user)
        a, b, _ = same_user
        check_rates([(a, b), (b, a)], [1e8, 1e8])
        launcher.kill()
        launcher.wait(10)
        check_gone(spaces, pid)


@pytest.mark.parametrize(
    ("setting", "privileges", "advice"),
    [
        ("max_net_namespaces", [], "user.max_net_namespaces=10000"),
        (
            "max_user_namespaces",
            ["setpriv", "--bounding-set=-all", "--inh-caps=-all"],
            "user.max_user_namespaces=10000",
        ),
    ],
)
def test_what_forbids_namespaces_is_named(setting: str, privileges: list[str], advice: str) -> None:
    # Inside a user namespace, the settings hold for that namespace only.
    forbid = python(
        "import os, pathlib, sys\n"
        f"pathlib.Path('/proc/sys/user/{setting}').write_text('0')\n"
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )
    words = ["unshare", "--user", "--map-root-user", *forbid, *privileges, *python(HOLD)]
    with running(words, cwd=ROOT, stdin=subprocess.DEVNULL) as launcher:
        answer = json.loads(line(launcher))
    assert answer.startswith("UserError: emulated hosts need namespaces")
    assert advice in answer
