"""Who is slow among equals.  Pure.

Decides by comparison with the median of the others, so that one outlier, however far off, neither
hides itself nor accuses anybody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from ps_allreduce.record.records import LinkRecord

#: Less than this share of what the others reach is slow.
SHARE = 0.8


def slow_ones(rates: Mapping[str, float]) -> tuple[str, ...]:
    """Those that reach less than the share of the median of the others."""
    return tuple(
        name
        for name, rate in rates.items()
        if len(rates) > 1 and rate < SHARE * median(_others(rates, name))
    )


def _others(rates: Mapping[str, float], name: str) -> list[float]:
    return [rate for other, rate in rates.items() if other != name]


def best_rates(links: Iterable[LinkRecord]) -> tuple[dict[str, float], dict[str, float]]:
    """The best rate at which every host sends, and receives: the other end may be the slow one."""
    sent: dict[str, float] = {}
    received: dict[str, float] = {}
    for link in links:
        sent[link.source] = max(sent.get(link.source, 0.0), link.bits_per_s)
        received[link.target] = max(received.get(link.target, 0.0), link.bits_per_s)
    return sent, received


def hosts_with_slow_links(links: Sequence[LinkRecord]) -> tuple[str, ...]:
    """Hosts that are slow towards everybody; of two hosts nobody can tell which it is."""
    sent, received = best_rates(links)
    if len(sent) < 3:
        return ()
    slow = {*slow_ones(sent), *slow_ones(received)}
    return tuple(host for host in sent if host in slow)


def slow_links(links: Sequence[LinkRecord]) -> tuple[LinkRecord, ...]:
    """Links below the share of the median link."""
    if not links:
        return ()
    usual = median(link.bits_per_s for link in links)
    return tuple(link for link in links if link.bits_per_s < SHARE * usual)
