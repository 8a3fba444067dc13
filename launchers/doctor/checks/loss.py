"""Which congestion control has TCP, and what does it lose where many send to one?  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from launchers.doctor.findings import Finding, SiteFacts, ok, some, warning
from ps_allreduce.record.hosts import LOST_LIMIT


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
