"""What samples tell: what others used of the processors of hosts, and what TCP sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from launchers.run.samples import load_warnings, with_foreign_loads, with_tcp
from ps_allreduce.record.hosts import HostRecord, TcpCounters
from ps_allreduce.record.provenance import running_system
from ps_allreduce.record.records import Sample
from tests.fakes import make_facts, make_host, make_sample

WINDOW = (10.0, 20.0)


def looks(
    host: str = "n9",
    *,
    idle: float = 0.0,
    suite: float = 0.0,
    stolen: float = 0.0,
    interrupts: float = 0.0,
    times: tuple[float, ...] = (8.0, 12.0, 22.0),
) -> list[Sample]:
    """Looks at a host of four cores; the rest are seconds that pass in each second."""
    rates = {"idle_s": idle, "suite_s": suite, "stolen_s": stolen, "interrupts_s": interrupts}
    return [
        make_sample(time, host, **{name: 1e4 + rate * time for name, rate in rates.items()})
        for time in times
    ]


def loads(
    samples: list[Sample], *hosts: HostRecord, launcher_s: Mapping[float, float] | None = None
) -> list[tuple[float | None, float | None]]:
    with_loads = with_foreign_loads(hosts or (make_host(),), samples, WINDOW, launcher_s or {})
    return [(host.foreign_load, host.stolen_load) for host in with_loads]


def test_others_used_what_is_neither_idle_nor_ours() -> None:
    # Of four cores: 1 idle, 2 ours, 0.1 for interrupts, 0.3 stolen; 0.6 are left.
    found = looks(idle=1.0, suite=2.0, interrupts=0.1, stolen=0.3)
    assert loads(found) == [pytest.approx((0.6 / 4, 0.3 / 4))]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        pytest.param((8.0, 9.0, 15.0, 22.0), 0.2 / 4, id="around the window"),
        pytest.param((8.0, 15.0, 19.0), 0.9 / 4, id="not at its end"),
        pytest.param((), 0.9 / 4, id="never"),
    ],
)
def test_where_processes_of_others_are_seen_they_alone_are_foreign_load(
    times: tuple[float, ...], expected: float
) -> None:
    # Of four cores: 2 idle, 1 ours, 0.1 the launcher's, 0.2 of others, and 0.7 for interrupts that
    # the kernel did not see.
    found = looks(idle=2.0, suite=1.0, times=(8.0, 9.0, 15.0, 19.0, 22.0))
    seen = [replace(e, others_s=0.3 * e.time) if e.time in times else e for e in found]
    here = make_host(facts=make_facts(machine=running_system()))
    launcher_s = {0.0: 5.0, 30.0: 8.0}
    assert loads(seen, here, launcher_s=launcher_s) == [pytest.approx((expected, 0.0))]


def test_a_suite_that_saturates_its_cores_is_no_foreign_load() -> None:
    assert loads(looks(suite=4.0)) == [pytest.approx((0.0, 0.0), abs=1e-9)]
    # The kernel counts in hundredths of seconds: what is ours may seem a little more than there is.
    assert loads(looks(suite=4.01)) == [(0.0, 0.0)]


def test_hosts_that_share_a_machine_are_of_one_suite() -> None:
    sharing = [make_host(name, facts=make_facts(name, machine="one")) for name in ("n1", "n2")]
    both = [*looks("n1", idle=1.0, suite=1.0), *looks("n2", idle=1.0, suite=1.6)]
    assert loads(both, *sharing) == [pytest.approx((0.1, 0.0))] * 2
    apart = [make_host(name, facts=make_facts(name)) for name in ("n1", "n2")]
    assert loads(both, *apart) == [pytest.approx((0.5, 0.0)), pytest.approx((0.35, 0.0))]


def test_hosts_that_call_themselves_the_same_are_told_apart() -> None:
    both = [make_host(name, facts=make_facts("ubuntu", machine=name)) for name in ("n1", "n2")]
    found = [*looks("n1", idle=3.0, suite=1.0), *looks("n2", idle=2.0, suite=1.6)]
    assert loads(found, *both) == [pytest.approx((0.0, 0.0)), pytest.approx((0.1, 0.0))]


def test_hosts_that_only_carry_background_traffic_are_of_the_suite() -> None:
    with_tasks = make_host("n1", facts=make_facts("n1", machine="one"))
    both = [*looks("n1", idle=1.0, suite=2.0), *looks("n2", idle=1.0, suite=0.6)]
    assert loads(both, with_tasks) == [pytest.approx((0.1, 0.0))]


def test_the_launcher_is_ours_on_its_own_machine() -> None:
    used = {time: 5.0 + 0.4 * time for time in (0.0, 15.0, 30.0)}
    found = looks(idle=1.0, suite=2.0)
    here = make_host(facts=make_facts(machine=running_system()))
    assert loads(found, here, launcher_s=used) == [pytest.approx((0.6 / 4, 0.0))]
    assert loads(found, launcher_s=used) == [pytest.approx((1.0 / 4, 0.0))]


def test_looks_are_put_on_the_launchers_clock() -> None:
    ahead = make_host(clock_offset_s=1000.0)
    found = [replace(look, time=look.time + 1000.0) for look in looks(idle=2.0, suite=1.0)]
    assert loads(found, ahead) == [pytest.approx((0.25, 0.0))]


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param([], id="none"),
        pytest.param(looks(times=(15.0,)), id="one"),
        pytest.param(looks(times=(8.0, 14.0)), id="less than half of the window"),
        pytest.param(
            [make_sample(time) for time in (8.0, 22.0)], id="without the suite's own time"
        ),
    ],
)
def test_too_few_looks_tell_nothing(samples: list[Sample]) -> None:
    assert loads(samples) == [(None, None)]


def test_a_load_above_the_limit_is_a_warning_that_names_the_host() -> None:
    quiet, loaded = make_host("n1", foreign_load=0.05), make_host("n2", foreign_load=0.12)
    assert load_warnings([quiet, loaded]) == (
        "other programs took 12% of the processor time of n2 while measuring",
    )
    assert load_warnings([make_host("n1", stolen_load=0.3)]) == (
        "the hypervisor took 30% of the processor time of n1 while measuring",
    )
    assert load_warnings([quiet, make_host("n3")]) == load_warnings([]) == ()


def counters(base: int) -> TcpCounters:
    return TcpCounters(sent=1000 * base, sent_again=10 * base, probes=2 * base, timeouts=base)


def counted(*times: float, host: str = "n9") -> list[Sample]:
    """In every second 1000 segments are sent, 10 again, 2 of them as probes, and 1 timer ends."""
    return [make_sample(time, host, tcp=counters(int(time))) for time in times]


def sent(samples: list[Sample], *hosts: HostRecord) -> list[TcpCounters | None]:
    return [host.tcp for host in with_tcp(hosts or (make_host(),), samples, WINDOW)]


def test_segments_count_from_the_last_look_before_the_window_to_the_first_after_it() -> None:
    assert sent(counted(1.0, 8.0, 12.0, 19.0, 23.0, 40.0)) == [counters(15)]
    assert sent(counted(10.0, 20.0)) == [counters(10)]


def test_segments_of_every_host_count_on_its_own_clock() -> None:
    here = make_host("n1", facts=make_facts("node1"))
    ahead = make_host("n2", facts=make_facts("node2"), clock_offset_s=1000.0)
    samples = [*counted(9.0, 21.0, host="n1"), *counted(1004.0, 1008.0, 1025.0, host="n2")]
    assert sent(samples, here, ahead) == [counters(12), counters(17)]


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param([], id="none"),
        pytest.param(counted(8.0, 12.0, 19.0), id="none after"),
        pytest.param(counted(12.0, 23.0), id="none before"),
        pytest.param(counted(8.0, 23.0, host="n1"), id="of another host"),
        pytest.param([*counted(8.0), make_sample(23.0)], id="a kernel that does not tell"),
        pytest.param(
            [*counted(8.0), replace(counted(23.0)[0], tcp=counters(1))],
            id="a counter that began anew",
        ),
    ],
)
def test_too_few_looks_tell_nothing_of_tcp(samples: list[Sample]) -> None:
    assert sent(samples) == [None]


def test_probes_are_no_losses() -> None:
    assert counters(1).lost == 8
    assert TcpCounters(sent=9, sent_again=1, probes=3, timeouts=0).lost == 0
