"""Background traffic between two hosts: datagrams at a steady rate, whatever else a link carries.

Decides how traffic is sent and counted.  The launchers decide which hosts have some; both ends are
killed with the run.  A TCP stream would give way: on a link of 1 Gbit/s, one that was to send 300
Mbit/s kept 167 against four others, datagrams 256 (both measured on emulated hosts).
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from ps_allreduce.inspection.questions import (
    Listening,
    ReceiveTraffic,
    Report,
    SendTraffic,
    TrafficCarried,
)

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
