"""How fast a link sends: the kernel's token bucket, and its delay where the kernel has one.

Decides burst and queue from a rate, and nothing about which links there are.
"""

from __future__ import annotations

from typing import Any

#: Tokens saved up while a link was idle: so much of its time is sent at once.
BURST_S = 1e-3

MIN_BURST_BYTES = 2 * 65536

QUEUE_S = 0.05

ROOT = 0x10000

NETEM_PACKETS = 100_000


def burst_bytes(bits_per_s: float) -> int:
    """What a link may send at once after a pause."""
    return max(MIN_BURST_BYTES, round(bits_per_s / 8 * BURST_S))


def queue_bytes(bits_per_s: float) -> int:
    """What may wait before packets are lost."""
    return burst_bytes(bits_per_s) + round(bits_per_s / 8 * QUEUE_S)


def limit_rate(ip: Any, index: int, bits_per_s: float | None) -> None:
    """Limit what an interface sends."""
    if bits_per_s is not None:
        ip.tc(
            "add",
            "tbf",
            index,
            ROOT,
            rate=round(bits_per_s / 8),
            burst=burst_bytes(bits_per_s),
            limit=queue_bytes(bits_per_s),
        )
