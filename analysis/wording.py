"""How networks, rates and comparisons are spelled in tables and sentences."""

from __future__ import annotations

from analysis.stats.statistics import Comparison
from ps_allreduce.point.network import EmulatedNetwork, render_rate

_PREFIXES = (("G", 1e9), ("M", 1e6), ("k", 1e3))


def network_text(network: EmulatedNetwork) -> str:
    """What an emulated network was asked to be, without its number of hosts: `1gbit`."""
    parts = [_limit_text(network.bits_per_s)]
    if network.delay_s:
        parts.append(f"delay {network.delay_s * 1e3:g}ms")
    if network.slow_host is not None:
        parts.append(f"host {network.slow_host} {_limit_text(network.slow_bits_per_s)}")
    if network.racks > 1:
        parts.append(f"{network.racks} racks")
    if network.uplink_bits_per_s is not None:
        parts.append(f"uplink {render_rate(network.uplink_bits_per_s)}")
    return ", ".join(parts)


def _limit_text(bits_per_s: float | None) -> str:
    return "no limit" if bits_per_s is None else render_rate(bits_per_s)


def rate_text(bits_per_s: float) -> str:
    """`190 Mbit/s`, three digits."""
    for prefix, size in _PREFIXES:
        if bits_per_s >= size:
            return f"{bits_per_s / size:.3g} {prefix}bit/s"
    return f"{bits_per_s:.3g} bit/s"


def count_text(count: int, what: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {what}{'s' * (count != 1)}"


def workers_text(count: int) -> str:
    """`1 worker`, `2 workers`."""
    return count_text(count, "worker")


def transports_label(first: str | None, second: str | None) -> str:
    """`different transports (grpc, nccl)`; empty where both are the same."""
    return "" if first == second else f"different transports ({first}, {second})"


def interval_text(found: Comparison) -> str:
    """`1.80x [1.60, 2.05]`, or the ratio alone where there is no interval."""
    if found.ratio is None:
        return "unknown"
    if found.low is None or found.high is None:
        return f"{found.ratio:.2f}x"
    return f"{found.ratio:.2f}x [{found.low:.2f}, {found.high:.2f}]"


def launches_text(found: Comparison) -> str:
    """How many launches a comparison rests on."""
    if found.n_first == found.n_second:
        return f"{found.n_first} launch{'es' * (found.n_first != 1)} each"
    return f"{found.n_first} and {found.n_second} launches"


def capital(text: str) -> str:
    """A sentence from words that begin small."""
    return text[:1].upper() + text[1:]
