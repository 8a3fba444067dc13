"""Several hosts send to one at the same moments, and tell what their TCP did."""

from __future__ import annotations

import socket
import threading

import pytest

from ps_allreduce.inspection import check_up
from ps_allreduce.inspection.check_up import BURST_BYTES, send_bursts, take_bursts
from ps_allreduce.inspection.questions import BurstsSent, Listening, SendBursts, TakeBursts
from tests.fakes import Ear

SENDERS = 3

TOKEN = "0123456789abcdef"


def exchange(seconds: float) -> list[BurstsSent]:
    """What every sender reports when all of them send to one."""
    taker, ears = Ear(), [Ear() for _ in range(SENDERS)]
    request = TakeBursts(address="127.0.0.1", token=TOKEN, senders=SENDERS, seconds=seconds)
    taking = threading.Thread(target=take_bursts, args=(request, taker))
    taking.start()
    port = taker.expect(Listening).port
    sending = SendBursts(address="127.0.0.1", port=port, token=TOKEN)
    senders = [threading.Thread(target=send_bursts, args=(sending, ear)) for ear in ears]
    for thread in senders:
        thread.start()
    for thread in [taking, *senders]:
        thread.join(timeout=20.0)
    return [ear.expect(BurstsSent) for ear in ears]


def test_all_send_until_the_time_is_over_and_tell_what_their_host_counted() -> None:
    short, long = exchange(0.01), exchange(0.5)
    for told in [*short, *long]:
        with socket.socket() as fresh:
            used = fresh.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert told.congestion == used.rstrip(b"\0").decode()
    # A segment over loopback holds 64 KB at most.
    few, many = ([each.tcp.sent for each in told if each.tcp] for told in (short, long))
    assert len(few) == len(many) == SENDERS
    assert min(few) > BURST_BYTES / 65536
    assert min(many) > max(few)


def test_a_kernel_that_counts_nothing_still_tells_the_congestion_control(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check_up, "look_at_tcp", lambda: None)
    assert [told.tcp for told in exchange(0.01)] == [None] * SENDERS


def test_a_sender_that_hangs_up_ends_the_bursts() -> None:
    ear, failed = Ear(), []
    request = TakeBursts(address="127.0.0.1", token=TOKEN, senders=1, seconds=5.0)

    def take() -> None:
        with pytest.raises(ConnectionError):
            take_bursts(request, ear)
        failed.append(True)

    taking = threading.Thread(target=take)
    taking.start()
    place = ("127.0.0.1", ear.expect(Listening).port)
    with socket.create_connection(place) as connection:
        connection.sendall(TOKEN.encode())
    taking.join(timeout=10.0)
    assert failed == [True]
