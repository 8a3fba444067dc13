"""Background traffic arrives, is counted, and keeps its rate; lost time is made up for in part."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from queue import Queue
from types import SimpleNamespace

import pytest

from ps_allreduce.fork_server import streams
from ps_allreduce.fork_server.streams import BACKLOG_S, MOST_AT_ONCE, PAYLOAD, at_once
from ps_allreduce.inspection.questions import (
    Answer,
    Listening,
    ReceiveTraffic,
    SendTraffic,
    TrafficCarried,
)

PATIENCE_S = 20.0

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
