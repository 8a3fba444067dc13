"""Is a host slower than the others?  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from launchers.doctor.facts import Facts
from launchers.doctor.findings import Finding, Findings, failure, ok, some, warning
from launchers.doctor.slow import (
    SHARE,
    best_rates,
    hosts_with_slow_links,
    slow_links,
    slow_ones,
)
from ps_allreduce.record.records import LinkRecord

LEAVE_OUT = (
    "a synchronous step waits for the slowest: leave the host out, or have somebody look at it"
)


def computing(facts: Facts) -> Findings:
    """All hosts multiply matrices equally fast."""
    silent = [] if facts.one_machine else [h for h in facts.checked if h not in facts.flops]
    found: list[Finding] = []
    if silent:
        reason = "see whether there is enough memory, and whether somebody else computes there"
        found.append(failure(f"{some(silent)} did not compute", reason, leave_out=silent))
    slow = slow_ones(facts.flops)
    if slow:
        rates = some(f"{host} {facts.flops[host] / 1e9:.1f}" for host in slow)
        usual = median(rate for host, rate in facts.flops.items() if host not in slow)
        text = f"{rates} GFLOP/s, the others {usual / 1e9:.1f}"
        found.append(failure(text, LEAVE_OUT, leave_out=slow))
    return found or _equally_fast(facts)


def _equally_fast(facts: Facts) -> list[Finding]:
    rates = list(facts.flops.values())
    if not rates:
        return []
    if facts.one_machine:
        shared = ", which the hosts of one machine share" if len(facts.hosts) > 1 else ""
        return [ok(f"{rates[0] / 1e9:.1f} GFLOP/s{shared}")]
    return [ok(f"{min(rates) / 1e9:.1f} to {max(rates) / 1e9:.1f} GFLOP/s, all at once")]


def links(facts: Facts) -> Findings:
    """All hosts send and receive equally fast."""
    found: list[Finding] = []
    if facts.links_trouble:
        found.append(failure(facts.links_trouble, "see what the check of ports says"))
    slow = hosts_with_slow_links(facts.links)
    others = [one for one in facts.links if one.source not in slow and one.target not in slow]
    found += [_slow_host(host, facts.links, others or facts.links) for host in slow]
    return [*found, *_slow_pairs(others)] or _equally_linked(facts)


def _slow_host(host: str, every: Sequence[LinkRecord], others: Sequence[LinkRecord]) -> Finding:
    sent, received = best_rates(every)
    usual = median(link.bits_per_s for link in others)
    text = (
        f"{host} sends {_render(sent[host])} at most and receives {_render(received[host])}; the "
        f"others' median link carries {_render(usual)}"
    )
    return failure(text, LEAVE_OUT, leave_out=[host])


def _slow_pairs(others: Sequence[LinkRecord]) -> list[Finding]:
    """Links between hosts that are fast otherwise: what lies between them is slow."""
    weak = sorted(slow_links(others), key=lambda link: link.bits_per_s)
    if not weak:
        return []
    told = some(f"{one.source} to {one.target} {_render(one.bits_per_s)}" for one in weak)
    return [
        warning(
            f"{len(weak)} of {len(others)} links below {SHARE:g} of their median: {told}",
            "what lies between these hosts is slow or in use; ask for hosts below one switch",
        )
    ]


def _equally_linked(facts: Facts) -> list[Finding]:
    rates = [link.bits_per_s for link in facts.links]
    if not rates:
        return [ok("one host, no link")] if len(facts.checked) == 1 else []
    trip = median(link.round_trip_s for link in facts.links)
    return [
        ok(
            f"{_render(min(rates))} to {_render(max(rates))} per direction, both at once; a round "
            f"trip takes {trip * 1e6:.0f} us"
        )
    ]


def _render(bits_per_s: float) -> str:
    for unit, size in (("Gbit/s", 1e9), ("Mbit/s", 1e6)):
        if bits_per_s >= size:
            return f"{bits_per_s / size:.3g} {unit}"
    return f"{bits_per_s / 1e3:.3g} kbit/s"
