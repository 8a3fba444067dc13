"""What hosts send each other besides training: TCP that measures a link, and background traffic.

Decides how a link is measured, by one sender or by several at once: how fast bytes get through, and
how long an answer takes.  TensorFlow is not used, so that its transport can be compared with the
link itself.  The launchers decide which hosts measure, and when.

Background traffic is datagrams at a steady rate, whatever else a link carries.  A TCP stream would
give way: on a link of 1 Gbit/s, one that was to send 300 Mbit/s kept 167 against four others,
datagrams 256 (both measured on emulated hosts).  Both ends are killed with the run.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import accumulate, pairwise

import numpy as np

from ps_allreduce.entrance import accept_known
from ps_allreduce.errors import HostFault
from ps_allreduce.inspection.questions import (
    Listening,
    ReceiveStream,
    ReceiveTraffic,
    Report,
    SendStream,
    SendTraffic,
    StreamReceived,
    StreamSent,
    TrafficCarried,
)

CHUNK = 1 << 20

ROUND_TRIPS = 21

#: The first part of a stream is left out: TCP's window still opens, and a shaper lets a burst pass.
SETTLING_SHARE = 0.25

#: Of the rest, so many parts are looked at, each of this share of its bytes, wherever they begin.
PARTS, PART_SHARE = 57, 1 / 8

#: Such a share of the parts is faster than the one that counts.  Lost packets can slow TCP down for
#: half of a stream: that says nothing about what the link can carry.  A part that begins where
#: a token bucket has saved up seems too fast.
FASTER_SHARE = 0.2

#: A stream is looked at so many times.  A receiver that was held up takes in at once what waited:
#: between two looks it has the rate of the link again.
LOOKS = 80

CONNECT_TIMEOUT_S = 10.0

#: Moments in nanoseconds, ascending, each with the bytes that had come by then.
Marks = Sequence[tuple[int, int]]


def receive_stream(request: ReceiveStream, report: Report) -> None:
    """Listen at an address, answer single bytes of senders, then take in the streams that follow.

    Reports the port, then the rate of all streams together (`fast_part`).
    """
    with ExitStack() as stack:
        place = (request.address, 0)
        server = stack.enter_context(socket.create_server(place, backlog=request.senders))
        report(Listening(port=server.getsockname()[1]))
        senders = accept_known(server, request.senders, request.token, 2 * CONNECT_TIMEOUT_S)
        for sender in senders:
            stack.enter_context(sender)
        pool = stack.enter_context(ThreadPoolExecutor(request.senders))
        num_bytes, duration_ns = fast_part(together(list(pool.map(_take_in, senders))))
    report(StreamReceived(num_bytes=num_bytes, ns=duration_ns))


def together(streams: Sequence[Marks]) -> Marks:
    """The marks of streams that came at the same time, as if they were one."""
    pieces = [
        (moment, total - before)
        for marks in streams
        for (_, before), (moment, total) in pairwise([(0, 0), *marks])
    ]
    moments, counts = zip(*sorted(pieces), strict=True)
    return list(zip(moments, accumulate(counts), strict=True))


def fast_part(marks: Marks) -> tuple[int, int]:
    """Bytes and nanoseconds of a fast part of a stream without its beginning."""
    settled = marks[0][0] + SETTLING_SHARE * (marks[-1][0] - marks[0][0])
    looks = _looks(marks)
    # A receiver that was held up may have taken in all that counts between two looks.
    later = [mark for mark in looks[:-2] if mark[0] >= settled] + looks[-2:]
    moments, sizes = np.asarray(later, float).T
    part = PART_SHARE * (sizes[-1] - sizes[0])
    begins = np.linspace(sizes[0], sizes[-1] - part, PARTS)
    durations = np.interp(begins + part, sizes, moments) - np.interp(begins, sizes, moments)
    return round(part), max(1, round(float(np.quantile(durations, FASTER_SHARE))))


def _looks(marks: Marks) -> list[tuple[int, int]]:
    """The last mark of each of `LOOKS` parts of the time."""
    begin, period = marks[0][0], max(1, (marks[-1][0] - marks[0][0]) / LOOKS)
    return list({int((mark[0] - begin) / period): mark for mark in marks}.values())


def _take_in(connection: socket.socket) -> list[tuple[int, int]]:
    """Answer single bytes, then take in the stream that follows, with its marks."""
    connection.settimeout(CONNECT_TIMEOUT_S)
    with _silence_explained():
        for _ in range(ROUND_TRIPS):
            connection.sendall(_exactly_one(connection))
        buffer = bytearray(CHUNK)
        total, marks = 0, [(time.monotonic_ns(), 0)]
        while count := connection.recv_into(buffer):
            total += count
            marks.append((time.monotonic_ns(), total))
    return marks


@contextmanager
def _silence_explained() -> Iterator[None]:
    """Say what may keep bytes from coming through.

    Raises:
        HostFault: nothing came in time.
    """
    try:
        yield
    except TimeoutError as error:
        raise HostFault(
            f"nothing came through in {CONNECT_TIMEOUT_S:g} s; a firewall may stop it, or emulated "
            "links are too slow (--bandwidth) or too full (--loss, --traffic)"
        ) from error


def _exactly_one(connection: socket.socket) -> bytes:
    byte = connection.recv(1)
    if not byte:
        raise ConnectionError("the other end hung up")
    return byte


def send_stream(request: SendStream, report: Report) -> None:
    """Send to `receive_stream` for some seconds; report the median round trip."""
    place = (request.address, request.port)
    with (
        _silence_explained(),
        socket.create_connection(place, timeout=CONNECT_TIMEOUT_S) as connection,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(request.token.encode())
        trips = [_round_trip_ns(connection) for _ in range(ROUND_TRIPS)]
        content = bytes(CHUNK)
        end = time.monotonic() + request.seconds
        connection.sendall(content)  # a sender that is held up sends something all the same
        while time.monotonic() < end:
            connection.sendall(content)
    report(StreamSent(round_trip_ns=int(statistics.median(trips))))


def _round_trip_ns(connection: socket.socket) -> int:
    begin = time.monotonic_ns()
    connection.sendall(b"?")
    _exactly_one(connection)
    return time.monotonic_ns() - begin


#: Bytes of a datagram, which with its headers fills an Ethernet packet.
PAYLOAD = 1472

#: So many are handed to the kernel at once at most: 64 KB, as TCP does.
MOST_AT_ONCE = 44

#: What is handed over at once takes about so long at the stated rate, if it is enough for that.
SPACING_S = 0.002

#: A sender that was kept from sending makes up for so much.
BACKLOG_S = 0.02

#: The kernel cuts what is sent into datagrams, and joins those that come (linux/udp.h, Linux 5.0).
UDP_SEGMENT, UDP_GRO = 103, 104

BUFFER_BYTES = 1 << 21

REPORT_S = 0.5


def receive_traffic(request: ReceiveTraffic, report: Report) -> None:
    """Report the port, then twice a second what has come so far."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        receiver.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        receiver.bind((request.address, 0))
        receiver.settimeout(REPORT_S)
        report(Listening(port=receiver.getsockname()[1]))
        buffer, total, due = bytearray(1 << 16), 0, time.monotonic()
        while True:
            with suppress(TimeoutError):
                total += receiver.recv_into(buffer)
            if time.monotonic() >= due:
                report(TrafficCarried(num_bytes=total))
                due = time.monotonic() + REPORT_S


def send_traffic(request: SendTraffic, report: Report) -> None:
    """Send to `receive_traffic` at the stated rate; there is nothing to report."""
    content = bytes(PAYLOAD * at_once(request.bits_per_s))
    pause_s = 8 * len(content) / request.bits_per_s
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, PAYLOAD)
        due = time.monotonic()
        while True:
            sender.sendto(content, (request.address, request.port))
            due = max(due + pause_s, time.monotonic() - BACKLOG_S)
            time.sleep(max(0.0, due - time.monotonic()))


def at_once(bits_per_s: float) -> int:
    """How many datagrams are handed to the kernel at once."""
    wanted = bits_per_s * SPACING_S / 8 / PAYLOAD
    return max(1, min(MOST_AT_ONCE, round(wanted)))
