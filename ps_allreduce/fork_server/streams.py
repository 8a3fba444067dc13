"""Plain TCP between two hosts: how fast bytes get through, and how long an answer takes.

Decides how a link is measured.  The launchers decide which hosts measure, and when.  TensorFlow is
not used, so that its transport can be compared with the link itself.
"""

from __future__ import annotations

import socket
import statistics
import time

from ps_allreduce.inspection.questions import ReceiveStream, Report, SendStream

CHUNK = 1 << 20

ROUND_TRIPS = 21

#: The first part of a stream is left out: TCP's window still opens, and a shaper lets a burst pass.
SETTLING_SHARE = 0.25

CONNECT_TIMEOUT_S = 10.0


def receive_stream(request: ReceiveStream, report: Report) -> None:
    """Listen at an address, answer single bytes, then take in the stream that follows.

    Reports `listening` with the port, then `received` with the bytes and nanoseconds of the stream
    without its first part.
    """
    with socket.create_server((request.address, 0)) as server:
        server.settimeout(2 * CONNECT_TIMEOUT_S)
        report("listening", counts={"port": server.getsockname()[1]})
        connection, _ = server.accept()
    with connection:
        connection.settimeout(CONNECT_TIMEOUT_S)
        for _ in range(ROUND_TRIPS):
            connection.sendall(_exactly_one(connection))
        marks = _take_in(connection)
    settled = marks[0][0] + SETTLING_SHARE * (marks[-1][0] - marks[0][0])
    begin = next(mark for mark in marks if mark[0] >= settled)
    counts = {"bytes": marks[-1][1] - begin[1], "ns": max(1, marks[-1][0] - begin[0])}
    report("received", counts=counts)


def _take_in(connection: socket.socket) -> list[tuple[int, int]]:
    """Moments in nanoseconds, each with the bytes that had come by then."""
    buffer = bytearray(CHUNK)
    total, marks = 0, [(time.monotonic_ns(), 0)]
    while count := connection.recv_into(buffer):
        total += count
        marks.append((time.monotonic_ns(), total))
    return marks


def _exactly_one(connection: socket.socket) -> bytes:
    byte = connection.recv(1)
    if not byte:
        raise ConnectionError("the other side hung up")
    return byte


def send_stream(request: SendStream, report: Report) -> None:
    """Send to `receive_stream` for some seconds; report `sent` with the median round trip."""
    place = (request.address, request.port)
    with socket.create_connection(place, timeout=CONNECT_TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips = [_round_trip_ns(connection) for _ in range(ROUND_TRIPS)]
        content = bytes(CHUNK)
        end = time.monotonic() + request.seconds
        while time.monotonic() < end:
            connection.sendall(content)
    report("sent", counts={"round_trip_ns": int(statistics.median(trips))})


def _round_trip_ns(connection: socket.socket) -> int:
    begin = time.monotonic_ns()
    connection.sendall(b"?")
    _exactly_one(connection)
    return time.monotonic_ns() - begin
