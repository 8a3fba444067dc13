"""What a host's TCP sent around the measured window of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launchers.run.samples import with_tcp
from ps_allreduce.record.hosts import HostRecord, TcpCounters
from ps_allreduce.record.records import Sample
from tests.fakes import make_facts, make_host, make_sample

WINDOW = (10.0, 20.0)


def counters(base: int) -> TcpCounters:
    return TcpCounters(sent=1000 * base, sent_again=10 * base, probes=2 * base, timeouts=base)


def looks(*times: float, host: str = "n9") -> list[Sample]:
    """In every second 1000 segments are sent, 10 again, 2 of them as probes, and 1 timer ends."""
    return [make_sample(time, host, tcp=counters(int(time))) for time in times]


def sent(samples: list[Sample], *hosts: HostRecord) -> list[TcpCounters | None]:
    return [host.tcp for host in with_tcp(hosts or (make_host(),), samples, WINDOW)]


def test_segments_count_from_the_last_look_before_the_window_to_the_first_after_it() -> None:
    assert sent(looks(1.0, 8.0, 12.0, 19.0, 23.0, 40.0)) == [counters(15)]
    assert sent(looks(10.0, 20.0)) == [counters(10)]


def test_every_host_counts_for_itself_on_its_own_clock() -> None:
    here = make_host("n1", facts=make_facts("node1"))
    ahead = make_host("n2", facts=make_facts("node2"), clock_offset_s=1000.0)
    samples = [*looks(9.0, 21.0, host="n1"), *looks(1004.0, 1008.0, 1025.0, host="n2")]
    assert sent(samples, here, ahead) == [counters(12), counters(17)]


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param([], id="none"),
        pytest.param(looks(8.0, 12.0, 19.0), id="none after"),
        pytest.param(looks(12.0, 23.0), id="none before"),
        pytest.param(looks(8.0, 23.0, host="n1"), id="of another host"),
        pytest.param([*looks(8.0), make_sample(23.0)], id="a kernel that does not tell"),
        pytest.param(
            [*looks(8.0), replace(looks(23.0)[0], tcp=counters(1))], id="a counter that began anew"
        ),
    ],
)
def test_too_few_looks_tell_nothing(samples: list[Sample]) -> None:
    assert sent(samples) == [None]


def test_probes_are_no_losses() -> None:
    assert counters(1).lost == 8
    assert TcpCounters(sent=9, sent_again=1, probes=3, timeouts=0).lost == 0
