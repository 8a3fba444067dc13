"""Can the hosts find and reach each other, and who else can reach them?  Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping

from launchers.doctor.check_findings import Finding, SiteFacts, failure, ok, some, warning
from ps_allreduce.inspection.questions import PeerSeen

SLOW_LOOKUP_S = 1.0

CLOCK_WARNING_S = 0.005

CLOCK_FAILURE_S = 1.0

MOST_SENTENCES = 4

#: Whether something is wrong with how a host sees another one; the name is what that calls itself.
Judge = Callable[[str, PeerSeen], bool]


def names(facts: SiteFacts) -> Iterator[Finding]:
    """Every host knows the names of all others, both ways."""
    if facts.one_machine:
        yield ok("not needed: the hosts of one machine are reached by address")
    elif len(facts.states) > 1:
        problems = [_describe(facts, text, judge) for text, judge in NAME_PROBLEMS.items()]
        if any(problems):
            yield warning(
                "; ".join(filter(None, problems)),
                "the suite itself uses addresses, but MPI, Horovod and log-ins want names: have "
                "DNS, or /etc/hosts of every host, name all of them",
            )
        else:
            yield ok("every host knows the names of all others, forward and reverse")


def _is_misnamed(hostname: str, seen: PeerSeen) -> bool:
    """A host may have a name for every network, as n1 and n1-ib."""
    label = hostname.partition(".")[0].lower()
    return not any(name.lower().startswith(label) for name in seen.reverse)


NAME_PROBLEMS: Mapping[str, Judge] = {
    "does not know the name of": lambda _, seen: not seen.resolved,
    "has a loopback address for": lambda _, seen: any(
        address.startswith("127.") for address in seen.resolved
    ),
    "finds no name, or another one, for the address of": _is_misnamed,
    f"takes more than {SLOW_LOOKUP_S:g} s to look up": (
        lambda _, seen: seen.lookup_s > SLOW_LOOKUP_S
    ),
}


def _describe(facts: SiteFacts, problem: str, judge: Judge) -> str:
    """Who has the problem with whom, in a few sentences; empty if nobody has it."""
    parts = []
    for host, state in facts.states.items():
        others = [
            other
            for other, seen in state.peers.items()
            if judge(facts.checked[other].facts.name, seen)
        ]
        if others:
            parts.append(f"{host} {problem} {some(others)}")
    more = len(parts) - MOST_SENTENCES
    return "; ".join(parts[:MOST_SENTENCES]) + (f"; so do {more} more hosts" if more > 0 else "")


def ports(facts: SiteFacts) -> Iterator[Finding]:
    """Every host reaches a port of all others, at the address that a run would use."""
    if len(facts.hosts) < 2:
        yield ok("one host, over its loopback")
        return
    unreached: dict[str, list[str]] = {}
    for host, state in facts.states.items():
        for other, seen in state.peers.items():
            if seen.unreached:
                target = f"{other} ({facts.checked[other].address}: {seen.unreached})"
                unreached.setdefault(target, []).append(host)
    for target, hosts in unreached.items():
        yield failure(
            f"{some(hosts)} cannot reach {target}",
            "have the firewall let the hosts reach each other at all ports from 1024, or use "
            f"another network with --interface (there are {', '.join(_interfaces(facts))})",
        )
    if facts.states and not unreached:
        yield ok("every host reaches a free port of all others at the address that a run would use")


def _interfaces(facts: SiteFacts) -> list[str]:
    """Names of the networks that all hosts have."""
    first, *others = ([i.name for i in check.facts.interfaces] for check in facts.checked.values())
    return [name for name in dict.fromkeys(first) if all(name in names for names in others)]


def clocks(facts: SiteFacts) -> Iterator[Finding]:
    """The wall clocks agree, this machine's included."""
    if facts.one_machine:
        yield ok("one machine, one clock")
        return
    offsets = {
        host: check.clock_offset_s
        for host, check in facts.checked.items()
        if check.clock_offset_s is not None
    }
    if not offsets:
        return
    apart = max(0.0, *offsets.values()) - min(0.0, *offsets.values())
    worst = max(offsets, key=lambda host: abs(offsets[host]))
    text = (
        f"within {_render_s(apart)} of each other; {worst} is {_render_s(offsets[worst])} off the "
        "clock here"
    )
    if apart > CLOCK_FAILURE_S:
        yield failure(text, "have NTP (chrony, systemd-timesyncd) running on all hosts")
    elif apart > CLOCK_WARNING_S:
        yield warning(
            text,
            "timings are corrected by what was measured; have NTP (chrony) mend it if it grows",
        )
    else:
        yield ok(text)


def _render_s(seconds: float) -> str:
    return f"{seconds:.1f} s" if abs(seconds) >= 1 else f"{seconds * 1e3:.2f} ms"


def proxies(facts: SiteFacts) -> Iterator[Finding]:
    """Nothing stands between the tasks: gRPC would send the cluster's own traffic through it."""
    obeyed = {host: state.proxies for host, state in facts.states.items() if state.proxies}
    if obeyed:
        host, variables = next(iter(obeyed.items()))
        yield failure(
            f"{some(obeyed)} would use a proxy ({_listed(variables)} on {host})",
            "unset these variables where a start-up file, a module or the container sets them",
        )
    elif facts.own_proxies:
        yield warning(
            f"{_listed(facts.own_proxies)} here; the suite removes that for its tasks",
            "other TensorFlow programs would send their traffic through it: unset it for them, "
            "or list the hosts' addresses in no_proxy",
        )
    else:
        yield ok("none that gRPC would obey")


def _listed(variables: Mapping[str, str]) -> str:
    return ", ".join(f"{name} is {value}" for name, value in variables.items())


def listening(facts: SiteFacts) -> Iterator[Finding]:
    """Who can reach TensorFlow's servers, which obey whoever does."""
    text = "TensorFlow's servers listen on all addresses of a host and obey whoever reaches them"
    public = [
        f"{address} of {host}"
        for host, state in facts.states.items()
        for address in state.addresses
        if ipaddress.ip_address(address).is_global
    ]
    if public:
        yield warning(
            f"{text}: {some(public)} can be reached from everywhere",
            "have a firewall close these addresses to everybody but the hosts",
        )
    elif facts.states:
        host, state = next(iter(facts.states.items()))
        yield ok(f"{text}; none is a public one (on {host}: {some(state.addresses) or 'loopback'})")
