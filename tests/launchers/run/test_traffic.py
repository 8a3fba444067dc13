"""Background traffic of a run: its ends, what arrived in the window, and what is said of it."""

from __future__ import annotations

import pytest

from launchers.run.state import RunMonitor
from launchers.run.traffic import streams_of, traffic_records, traffic_warnings
from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.fork_server.messages import Exited, Started
from ps_allreduce.inspection.questions import TrafficCarried
from ps_allreduce.point.network import EmulatedNetwork, Traffic
from ps_allreduce.point.strategies import AllReduce
from ps_allreduce.record.records import TrafficRecord
from tests.fakes import make_experiment

NETWORK = EmulatedNetwork(
    num_hosts=3,
    bits_per_s=1e9,
    traffic=(
        Traffic(bits_per_s=1e6, source=0, target=2),
        Traffic(bits_per_s=2e6, source=2, target=1),
    ),
)

STREAMS = streams_of(make_experiment(AllReduce, 2, network=NETWORK), ["a", "b", "c"])

WORKERS = [TaskId(TaskType.WORKER, 0), TaskId(TaskType.WORKER, 1)]


def monitor(*messages: object) -> RunMonitor:
    made = RunMonitor(WORKERS, WORKERS, streams=STREAMS)
    for message in messages:
        made.take(message)
    return made


def carried(time: float, size: int, stream: int = 0) -> TrafficCarried:
    name = STREAMS[stream].receiver
    return TrafficCarried(name=name, time=time, num_bytes=size)


def test_streams_have_the_hosts_of_the_network() -> None:
    assert [(each.source, each.target, each.bits_per_s) for each in STREAMS] == [
        *(("a", "c", 1e6), ("c", "b", 2e6)),
    ]
    assert streams_of(make_experiment(AllReduce, 2), ["a"]) == ()


def test_an_end_goes_on_until_the_run_is_over() -> None:
    sender = STREAMS[0].sender
    run = monitor(Started(name=sender, pid=7))
    assert run.alive == {sender}
    run.take(Exited(name=sender, pid=7, status=-9, cpu_s=0.1, peak_memory_bytes=1))
    assert run.has_failed
    assert run.culprit() == (sender, f"{sender} was killed by SIGKILL")


def test_what_arrived_around_the_window_counts() -> None:
    marks = [(0.0, 0), (1.0, 1000), (2.0, 100_000), (3.0, 250_000), (4.0, 400_000), (5.0, 10**9)]
    run = monitor(*(carried(time, size) for time, size in marks))
    # From 1 to 4 s; of the other stream nothing is known.
    (record,) = traffic_records(run, (1.5, 3.5))
    assert (record.source, record.target) == ("a", "c")
    assert record.bits_per_s == pytest.approx(8 * 399_000 / 3)
    assert traffic_records(monitor(carried(1.0, 5)), (0.5, 2.0)) == ()


def test_a_stream_that_falls_behind_is_a_doubt() -> None:
    steady, slower, slow = (
        TrafficRecord(source="c", target="b", bits_per_s=rate) for rate in (1.9e6, 1.7e6, 1.6e6)
    )
    other = TrafficRecord(source="a", target="c", bits_per_s=1e6)
    assert traffic_warnings(STREAMS, [other, steady]) == ()
    assert traffic_warnings(STREAMS, [other, slower, slow]) == (
        "2 of 3 streams of background traffic fell behind: from c to b came 1.6mbit of 2mbit",
    )
