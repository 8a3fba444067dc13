"""Bytes from many hosts to one at the same moments, as workers send to a server.

Decides how much is sent at once, and when.  The launchers decide which hosts send, and what of what
was lost is bad.
"""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from ps_allreduce.entrance import accept_known
from ps_allreduce.inspection.facts import look_at_tcp
from ps_allreduce.inspection.questions import BurstsSent, Listening, Report, SendBursts, TakeBursts

#: What a host sends at once: two messages of the size in which gradients travel by default.
BURST_BYTES = 1_000_000

CHUNK = 1 << 16

#: At 10 Mbit/s a burst of 20 hosts takes so long.
PATIENCE_S = 20.0

CONNECT_TIMEOUT_S = 10.0

#: Room for the kernel's name of a congestion control (TCP_CA_NAME_MAX in linux/tcp.h).
NAME_BYTES = 16


def take_bursts(request: TakeBursts, report: Report) -> None:
    """Report the port; then have all senders send at once, again and again."""
    with ExitStack() as stack:
        server = stack.enter_context(
            socket.create_server((request.address, 0), backlog=request.senders)
        )
        report(Listening(port=server.getsockname()[1]))
        senders = accept_known(server, request.senders, request.token, CONNECT_TIMEOUT_S)
        for sender in senders:
            stack.enter_context(sender)
        pool = stack.enter_context(ThreadPoolExecutor(len(senders)))
        end = time.monotonic() + request.seconds
        while time.monotonic() < end:
            list(pool.map(_take_burst, senders))


def _take_burst(connection: socket.socket) -> None:
    """Ask for one burst and take it in, while other threads take in those of others."""
    connection.settimeout(PATIENCE_S)
    connection.sendall(b"?")
    left = BURST_BYTES
    while left:
        count = len(connection.recv(min(left, CHUNK)))
        if not count:
            raise ConnectionError("the other side hung up")
        left -= count


def send_bursts(request: SendBursts, report: Report) -> None:
    """Send a burst for every byte that comes; report what this host's TCP counted."""
    before, place = look_at_tcp(), (request.address, request.port)
    with socket.create_connection(place, timeout=CONNECT_TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(PATIENCE_S)
        connection.sendall(request.token.encode())
        content = bytes(BURST_BYTES)
        while connection.recv(1):
            connection.sendall(content)
        name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, NAME_BYTES)
    after = look_at_tcp()
    sent = after.since(before) if after and before else None
    report(BurstsSent(congestion=name.rstrip(b"\0").decode(), tcp=sent))
