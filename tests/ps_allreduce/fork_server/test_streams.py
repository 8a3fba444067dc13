"""A link is measured by plain TCP; background traffic arrives, is counted, and keeps its rate."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from queue import Queue
from types import SimpleNamespace

import numpy as np
import pytest

from ps_allreduce.errors import HostFault
from ps_allreduce.fork_server import streams
from ps_allreduce.fork_server.streams import (
    BACKLOG_S,
    MOST_AT_ONCE,
    PART_SHARE,
    PAYLOAD,
    ROUND_TRIPS,
    at_once,
    fast_part,
    receive_stream,
    send_stream,
    together,
)
from ps_allreduce.inspection.questions import (
    Answer,
    Listening,
    ReceiveStream,
    ReceiveTraffic,
    SendStream,
    SendTraffic,
    StreamReceived,
    StreamSent,
    TrafficCarried,
)
from tests.fakes import Ear

PATIENCE_S = 20.0


TOKEN = "0123456789abcdef"


def receiving(address: str = "127.0.0.1") -> ReceiveStream:
    return ReceiveStream(address=address, token=TOKEN)


def sending(address: str, port: int) -> SendStream:
    return SendStream(address=address, port=port, token=TOKEN, seconds=0.2)


@pytest.fixture
def listening() -> Iterator[tuple[Ear, int]]:
    """A receiver that waits in a thread of its own, and its port."""
    ear = Ear()
    receiver = threading.Thread(target=receive_stream, args=(receiving("127.0.0.2"), ear))
    receiver.start()
    yield ear, ear.expect(Listening).port
    receiver.join(PATIENCE_S)
    assert not receiver.is_alive()


def test_a_stream_is_measured_at_both_ends(listening: tuple[Ear, int]) -> None:
    ear, port = listening
    mouth = Ear()
    send_stream(sending("127.0.0.2", port), mouth)
    received = ear.expect(StreamReceived)
    assert received.num_bytes > PART_SHARE * 1_000_000
    # The fastest part of a stream that waited in front of a busy receiver comes at once.
    assert 0 < received.ns / PART_SHARE < 5e9
    assert 0 < mouth.expect(StreamSent).round_trip_ns < 1e9


def answered(connection: socket.socket) -> None:
    """Be a sender until its questions are answered."""
    connection.sendall(TOKEN.encode())
    for _ in range(ROUND_TRIPS):
        connection.sendall(b"?")
        assert connection.recv(1) == b"?"


def test_the_beginning_does_not_count(listening: tuple[Ear, int]) -> None:
    ear, port = listening
    with socket.create_connection(("127.0.0.2", port), timeout=PATIENCE_S) as connection:
        answered(connection)
        connection.sendall(bytes(1_000_000))  # a bucket that was full
        time.sleep(0.4)
        connection.sendall(b"x" * 1000)
        time.sleep(0.2)
        connection.sendall(b"x" * 1000)
    received = ear.expect(StreamReceived)
    # Between the last moment before a quarter of the stream was over and its end: 1000 bytes.
    assert received.num_bytes <= 1000
    assert received.ns >= 0.15e9 * PART_SHARE


@pytest.mark.parametrize("stalled_at", range(20, 80, 7))
def test_lost_packets_do_not_change_the_rate(stalled_at: int) -> None:
    """They stop a stream for half of its time, anywhere in it, and slow it down afterwards."""
    step_ns, step_bytes = 5_000_000, 40_000
    pauses_ns = np.zeros(80, int)
    pauses_ns[stalled_at] = 40 * step_ns
    pauses_ns[stalled_at + 1 : stalled_at + 20] = step_ns // 2
    moments = np.cumsum(step_ns + pauses_ns)
    marks = [(int(moment), step_bytes * number) for number, moment in enumerate(moments)]
    num_bytes, duration_ns = fast_part(marks)
    assert num_bytes / duration_ns == pytest.approx(step_bytes / step_ns, rel=0.01)


def test_streams_at_the_same_time_add_up() -> None:
    """One begins later, and ends earlier."""
    long = [(10 * number, 3 * number) for number in range(5)]
    short = [(12, 0), (22, 7)]
    assert together([long, short]) == [
        *((0, 0), (10, 3), (12, 3), (20, 6), (22, 13)),
        *((30, 16), (40, 19)),
    ]


def test_what_was_saved_up_in_pauses_does_not_change_the_rate() -> None:
    """Three times in a stream, what would have come in two steps comes at once after them."""
    step_ns, step_bytes = 5_000_000, 40_000
    marks = [(step_ns * number, step_bytes * number) for number in range(81)]
    for stop in (33, 47, 61):
        marks[stop] = (step_ns * (stop + 2), step_bytes * stop)
        marks[stop + 1] = (step_ns * (stop + 2), step_bytes * (stop + 1))
        marks[stop + 2] = (step_ns * (stop + 2) + 1, step_bytes * (stop + 2))
    num_bytes, duration_ns = fast_part(marks)
    assert num_bytes / duration_ns == pytest.approx(step_bytes / step_ns, rel=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_a_receiver_that_is_held_up_does_not_change_the_rate(seed: int) -> None:
    """A third of the time, at random, it takes in nothing, and then all that waited at once."""
    step_ns, step_bytes, packets = 1_600_000, 10_000, 250
    draw = np.random.default_rng(seed)
    moments = step_ns * np.arange(packets)
    for begin in np.sort(draw.integers(0, moments[-1], 8)):
        end = begin + draw.exponential(20e6)
        waited = (moments >= begin) & (moments < end)
        moments[waited] = end + 10_000 * np.arange(np.count_nonzero(waited))
    arrivals = np.maximum.accumulate(moments)
    marks = [(int(moment), step_bytes * number) for number, moment in enumerate(arrivals)]
    num_bytes, duration_ns = fast_part(marks)
    assert num_bytes / duration_ns == pytest.approx(step_bytes / step_ns, rel=0.01)


def test_a_receiver_that_is_held_up_to_the_end_tells_a_rate_all_the_same() -> None:
    num_bytes, duration_ns = fast_part([(0, 0), (1_000_000, 100_000), (400_000_000, 4_090_000)])
    assert num_bytes / duration_ns == pytest.approx(0.01, rel=0.01)


def test_a_sender_that_sends_nothing_is_no_crash(listening: tuple[Ear, int]) -> None:
    ear, port = listening
    with socket.create_connection(("127.0.0.2", port), timeout=PATIENCE_S) as connection:
        answered(connection)
    received = ear.expect(StreamReceived)
    assert (received.num_bytes, received.ns) == (0, 1)


def test_a_sender_that_hangs_up_early_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ear, raised = Ear(), Queue[ConnectionError]()

    def receive() -> None:
        try:
            receive_stream(receiving(), ear)
        except ConnectionError as error:
            raised.put(error)

    receiver = threading.Thread(target=receive)
    receiver.start()
    port = ear.expect(Listening).port
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(TOKEN.encode())
    assert "the other end hung up" in str(raised.get(timeout=PATIENCE_S))
    receiver.join(PATIENCE_S)


def test_strangers_get_no_answer_and_hold_up_nobody(listening: tuple[Ear, int]) -> None:
    ear, port = listening
    place = ("127.0.0.2", port)
    with (
        socket.create_connection(place, timeout=PATIENCE_S) as silent,
        socket.create_connection(place, timeout=PATIENCE_S) as wrong,
        socket.create_connection(place, timeout=PATIENCE_S) as short,
    ):
        wrong.sendall(b"?" * len(TOKEN))
        short.sendall(TOKEN[:-1].encode())
        assert wrong.recv(1) == b""
        send_stream(sending(*place), Ear())
        assert ear.expect(StreamReceived).num_bytes > PART_SHARE * 1_000_000
        assert (silent.recv(1), short.recv(1)) == (b"", b"")


def test_without_anybody_at_the_other_end_both_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CONNECT_TIMEOUT_S", 0.05)
    with pytest.raises(TimeoutError):
        receive_stream(receiving(), Ear())
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        send_stream(sending("127.0.0.1", port), Ear())


def test_bytes_that_do_not_come_through_are_told_with_what_may_keep_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "CONNECT_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(HostFault, match=r"nothing came through .*firewall.*--bandwidth"):
            send_stream(sending("127.0.0.1", port), Ear())


RATE = 1e6


class Over(Exception):
    """Ends what would go on until it is killed."""


def test_what_arrives_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "REPORT_S", 0.05)
    told: Queue[str | Answer] = Queue()

    def report(what: str | Answer) -> None:
        told.put(what)
        if isinstance(what, TrafficCarried) and what.num_bytes:
            raise Over

    def receive() -> None:
        with pytest.raises(Over):
            streams.receive_traffic(ReceiveTraffic(task="r", address="127.0.0.1"), report)

    receiver = threading.Thread(target=receive, daemon=True)
    receiver.start()
    listening = told.get(timeout=PATIENCE_S)
    assert isinstance(listening, Listening)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_UDP, streams.UDP_SEGMENT, PAYLOAD)
        sender.sendto(bytes(3 * PAYLOAD), ("127.0.0.1", listening.port))
    receiver.join(PATIENCE_S)
    assert not receiver.is_alive()
    *_, last = told.queue
    assert last == TrafficCarried(num_bytes=3 * PAYLOAD)


@pytest.fixture
def port() -> Iterator[int]:
    """A port at which somebody listens."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        yield listener.getsockname()[1]


@pytest.mark.parametrize("stalled_s", [0.0, 10.0])
def test_a_sender_keeps_its_rate_and_makes_up_for_little(
    stalled_s: float, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, moments = [0.0], []

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        moments.append(clock[0])
        if len(moments) == 10:
            clock[0] += stalled_s
        if len(moments) == 100:
            raise Over

    fake = SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0])
    monkeypatch.setattr(streams, "time", fake)
    request = SendTraffic(task="s", address="127.0.0.1", port=port, bits_per_s=RATE)
    with pytest.raises(Over):
        streams.send_traffic(request, lambda *_, **__: None)
    pause_s = 8 * PAYLOAD / RATE
    made_up_s = min(stalled_s, BACKLOG_S + pause_s)
    assert moments[-1] == pytest.approx(100 * pause_s + stalled_s - made_up_s, abs=pause_s)


def test_bursts_are_short_and_few() -> None:
    assert [at_once(rate) for rate in (1e3, 1e6, 1e8, 1e9, 3e10)] == [1, 1, 17, 44, 44]
    assert MOST_AT_ONCE * PAYLOAD < 65_507  # the largest datagram
