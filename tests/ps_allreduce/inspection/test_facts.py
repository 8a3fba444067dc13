"""What a fork server finds on its host."""

from __future__ import annotations

import os
import socket
from collections import namedtuple
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce.inspection.facts import (
    TCP_COUNTERS,
    interfaces,
    look_around,
    parse_tcp,
    take_sample,
)
from ps_allreduce.record.hosts import Interface, TcpCounters

Address = namedtuple("Address", "family address netmask")

Stats = namedtuple("Stats", "isup speed")


def link(address: str, netmask: str) -> Address:
    return Address(socket.AF_INET, address, netmask)


def with_interfaces(
    monkeypatch: pytest.MonkeyPatch, addresses: dict[str, list[Address]], stats: dict[str, Stats]
) -> None:
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: stats)


def test_this_host_is_described_as_this_process_sees_it() -> None:
    facts = look_around({"SLURMD_NODENAME": "n9", "SLURM_TOPOLOGY_ADDR": "root.leaf3.n9"})
    assert facts.name == socket.gethostname()
    assert facts.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert facts.memory_bytes == psutil.virtual_memory().total
    assert {"python", "numpy", "kernel"} <= set(facts.versions)
    assert (facts.scheduler_name, facts.switch) == ("n9", "root.leaf3.n9")
    assert (look_around({}).scheduler_name, look_around({}).switch) == ("", "")
    assert any(one.address == "127.0.0.1" for one in facts.interfaces)
    assert facts.machine == look_around({}).machine != ""
    with socket.socket() as fresh:
        used = fresh.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    assert facts.congestion == used.rstrip(b"\0").decode()


def test_only_what_is_up_and_has_an_address_is_an_interface(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mac = Address(psutil.AF_LINK, "00:11:22:33:44:55", None)
    six = Address(socket.AF_INET6, "fe80::1", "ffff::")
    with_interfaces(
        monkeypatch,
        {
            "lo": [link("127.0.0.1", "255.0.0.0"), mac],
            "ib0": [six, link("10.1.2.3", "255.255.0.0")],
            "eth0": [link("192.168.7.9", "255.255.255.0"), link("192.168.8.9", "255.255.255.128")],
            "eth1": [link("192.168.9.9", "255.255.255.0")],
            "eth2": [six],
            "gone": [link("192.168.9.9", "255.255.255.0")],
        },
        {
            "lo": Stats(True, 0),
            "ib0": Stats(True, 100_000),
            "eth0": Stats(True, 1000),
            "eth1": Stats(False, 1000),
            "eth2": Stats(True, 1000),
        },
    )
    assert interfaces() == (
        Interface(name="lo", address="127.0.0.1", prefix_length=8, bits_per_s=None),
        Interface(name="ib0", address="10.1.2.3", prefix_length=16, bits_per_s=1e11),
        Interface(name="eth0", address="192.168.7.9", prefix_length=24, bits_per_s=1e9),
        Interface(name="eth0", address="192.168.8.9", prefix_length=25, bits_per_s=1e9),
    )


class FakeTask:
    """A process as psutil tells of it; its time with that of children it has waited for."""

    def oneshot(self) -> nullcontext[None]:
        return nullcontext()

    def cpu_times(self) -> SimpleNamespace:
        return SimpleNamespace(user=3.0, system=1.0, children_user=0.25, children_system=0.25)

    def memory_info(self) -> SimpleNamespace:
        return SimpleNamespace(rss=7)


Core = namedtuple("Core", "user nice system idle iowait irq softirq steal guest guest_nice")


def core(**seconds: float) -> Core:
    return Core(*(seconds.get(name, 0.0) for name in Core._fields))


def test_a_sample_tells_the_suites_time_from_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = [
        core(user=99.0),
        core(user=5.0, nice=1.0, system=2.0, idle=10.0, iowait=4.0, softirq=0.5, steal=0.25),
    ]
    ours = SimpleNamespace(user=2.0, system=1.0, children_user=20.0, children_system=10.0)
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: cores)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1})
    monkeypatch.setattr(os, "times", lambda: ours)
    tasks: Any = {"worker:0": FakeTask(), "worker:1": FakeTask()}
    sample = take_sample(1.0, tasks, ())
    assert sample.suite_s == 33.0 + 2 * 4.5
    assert sample.cpu_s == {"worker:0": 4.0, "worker:1": 4.0}
    # Of the cores that the run may use.
    assert (sample.busy_s, sample.idle_s) == (8.75, 14.0)
    assert (sample.interrupts_s, sample.stolen_s) == (0.5, 0.25)


NUMBERS = st.integers(min_value=0, max_value=2**63 - 1)

#: Counters that are none of ours, by name; kernels add some in every place.
OTHERS = st.dictionaries(st.from_regex(r"[A-Z][A-Za-z0-9]{0,9}", fullmatch=True), NUMBERS)


def two_lines(family: str, counters: dict[str, int]) -> str:
    """As the kernel writes them, below and above those of other families."""
    lines = [" ".join([f"{family}:", *map(str, words)]) for words in (counters, counters.values())]
    return "\n".join(["Ip: InReceives", "Ip: 7", *lines, "UdpLite: A", "UdpLite: 1", ""])


@given(OTHERS, OTHERS, st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), st.sampled_from(TCP_COUNTERS))
def test_counters_of_tcp_are_found_among_others_and_all_or_none(
    before: dict[str, int], after: dict[str, int], numbers: tuple[int, ...], missing: str
) -> None:
    sent, again, probes, timeouts = numbers
    ours = dict(zip(TCP_COUNTERS, numbers, strict=True))

    def texts(counters: dict[str, int]) -> tuple[str, str]:
        tcp = {name: n for name, n in counters.items() if not name.startswith("TCP")}
        extended = {name: n for name, n in counters.items() if name.startswith("TCP")}
        return two_lines("Tcp", before | tcp | after), two_lines("TcpExt", extended | after)

    told = parse_tcp(*texts(ours))
    assert told == TcpCounters(sent=sent, sent_again=again, probes=probes, timeouts=timeouts)
    del ours[missing]
    assert parse_tcp(*texts(ours)) is None


@given(st.text() | st.text(alphabet="Tcp:Ext \n019-"), st.text())
def test_whatever_a_kernel_tells_of_tcp_is_no_error(snmp: str, netstat: str) -> None:
    assert parse_tcp(snmp, netstat) is None


def test_a_sample_counts_what_tcp_of_this_host_sends() -> None:
    before = take_sample(1.0, {}, ()).tcp
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as sender,
        server.accept()[0] as taker,
    ):
        sender.sendall(b"x")
        assert taker.recv(1) == b"x"
    after = take_sample(2.0, {}, ()).tcp
    assert before is not None
    assert after is not None
    assert after.sent > before.sent
