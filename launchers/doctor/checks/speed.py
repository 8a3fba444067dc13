"""Is a host or a link slower than the others, and does TCP lose what many send to one?  Pure.

Decides by comparison with the median of the others; of TCP, by what the hosts counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from launchers.doctor.check_findings import Finding, SiteFacts, failure, ok, some, warning
from ps_allreduce.record.hosts import LOST_LIMIT
from ps_allreduce.record.records import SLOW_SHARE, LinkRecord

LEAVE_OUT = (
    "a synchronous step waits for the slowest: leave the host out, or have somebody look at it"
)


def computing(facts: SiteFacts) -> Iterator[Finding]:
    """All hosts multiply matrices equally fast."""
    silent = [] if facts.one_machine else [h for h in facts.checked if h not in facts.flops]
    if silent:
        reason = "see whether there is enough memory, and whether somebody else computes there"
        yield failure(f"{some(silent)} did not compute", reason, leave_out=silent)
    slow = slower_than_others(facts.flops)
    if slow:
        rates = some(f"{host} {facts.flops[host] / 1e9:.1f}" for host in slow)
        others = median(rate for host, rate in facts.flops.items() if host not in slow)
        text = f"{rates} GFLOP/s, the others {others / 1e9:.1f}"
        yield failure(text, LEAVE_OUT, leave_out=slow)
    if facts.flops and not slow and not silent:
        yield ok(_equally_fast(facts))


def _equally_fast(facts: SiteFacts) -> str:
    rates = [rate / 1e9 for rate in facts.flops.values()]
    if not facts.one_machine:
        return f"{min(rates):.1f} to {max(rates):.1f} GFLOP/s, all at once"
    shared = ", which the hosts of one machine share" if len(facts.hosts) > 1 else ""
    return f"{rates[0]:.1f} GFLOP/s{shared}"


def links(facts: SiteFacts) -> Iterator[Finding]:
    """All hosts send and receive equally fast."""
    if facts.links_trouble:
        yield failure(facts.links_trouble, "see what the check of ports says")
    slow = hosts_with_slow_links(facts.links)
    others = [link for link in facts.links if not {link.source, link.target} & set(slow)]
    for host in slow:
        text = _slow_host(host, facts.links, others or facts.links)
        yield failure(text, LEAVE_OUT, leave_out=[host])
    # Of hosts that are fast otherwise.
    pairs = sorted(slow_links(others), key=lambda link: link.bits_per_s)
    if pairs:
        named = some(f"{link.source} to {link.target} {_render(link.bits_per_s)}" for link in pairs)
        yield warning(
            f"{len(pairs)} of {len(others)} links below {SLOW_SHARE:g} of their median: {named}",
            "what lies between these hosts is slow or in use; ask for hosts below one switch",
        )
    if not facts.links_trouble and not slow and not pairs:
        yield from _equally_linked(facts)


def _slow_host(host: str, every: Sequence[LinkRecord], others: Sequence[LinkRecord]) -> str:
    sent, received = best_rates(every)
    typical = median(link.bits_per_s for link in others)
    return (
        f"{host} sends {_render(sent[host])} at most and receives {_render(received[host])}; the "
        f"others' median link carries {_render(typical)}"
    )


def _equally_linked(facts: SiteFacts) -> Iterator[Finding]:
    rates = [link.bits_per_s for link in facts.links]
    if rates:
        trip = median(link.round_trip_s for link in facts.links)
        yield ok(
            f"{_render(min(rates))} to {_render(max(rates))} per direction; a round trip takes "
            f"{trip * 1e6:.0f} us"
        )
    elif len(facts.checked) == 1:
        yield ok("one host, no link")


def _render(bits_per_s: float) -> str:
    for unit, size in (("Gbit/s", 1e9), ("Mbit/s", 1e6)):
        if bits_per_s >= size:
            return f"{bits_per_s / size:.3g} {unit}"
    return f"{bits_per_s / 1e3:.3g} kbit/s"


def slower_than_others(rates: Mapping[str, float]) -> tuple[str, ...]:
    """The names whose rate is below `SLOW_SHARE` of the median of the others.

    A slow one neither hides itself nor makes others look slow, however slow it is.
    """
    if len(rates) < 2:
        return ()
    others = {name: [rate for other, rate in rates.items() if other != name] for name in rates}
    return tuple(name for name, rate in rates.items() if rate < SLOW_SHARE * median(others[name]))


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
    slow = {*slower_than_others(sent), *slower_than_others(received)}
    return tuple(host for host in sent if host in slow)


def slow_links(links: Sequence[LinkRecord]) -> tuple[LinkRecord, ...]:
    """Links below `SLOW_SHARE` of the median link."""
    if not links:
        return ()
    typical = median(link.bits_per_s for link in links)
    return tuple(link for link in links if link.bits_per_s < SLOW_SHARE * typical)


def congestion(facts: SiteFacts) -> Iterator[Finding]:
    """All hosts send by the same congestion control."""
    hosts_by_name: dict[str, list[str]] = {}
    for host, name in _congestion(facts).items():
        hosts_by_name.setdefault(name, []).append(host)
    if len(hosts_by_name) > 1:
        yield warning(
            "; ".join(f"{name} on {some(hosts)}" for name, hosts in hosts_by_name.items()),
            "hosts then share links unequally and lose other amounts: have the same one on all of "
            "them (sysctl net.ipv4.tcp_congestion_control)",
        )
    elif hosts_by_name:
        yield ok(f"{next(iter(hosts_by_name))} everywhere")


def _congestion(facts: SiteFacts) -> Mapping[str, str]:
    """By host, as far as it is known; what connections had comes before what hosts begin with."""
    told = facts.bursts.congestion if facts.bursts else {}
    if told and facts.one_machine:  # what the machine has is not what its emulated network states
        return told
    known = {host: check.facts.congestion for host, check in facts.checked.items()} | dict(told)
    return {host: name for host, name in known.items() if name}


def loss(facts: SiteFacts) -> Iterator[Finding]:
    """Next to nothing is lost where all others send to one host at the same moments."""
    if len(facts.hosts) < 2:
        yield ok("one host, no link")
    if facts.bursts is None or (tcp := facts.bursts.tcp) is None:
        return
    senders = some(facts.bursts.congestion)
    text = f"of {tcp.sent} TCP segments {tcp.lost} were lost when {senders} sent to "
    text += f"{facts.bursts.target} at once"
    if not tcp.is_lossy:
        yield ok(text)
        return
    remedy = "the buffers of a switch's port are too small for so many senders, and TCP waits for "
    remedy += f"what is lost, which costs parameter servers most (above 1 in {1 / LOST_LIMIT:,.0f})"
    yield warning(text, f"{remedy}: {_mend(facts)}")


def _mend(facts: SiteFacts) -> str:
    if facts.one_machine:
        return "give the emulated ports more with --port-buffer, unless this loss is your question"
    return "use more servers or fewer workers, or ask the administrator for deeper buffers or ECN"
