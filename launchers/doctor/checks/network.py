"""Can the hosts find and reach each other, and who else can reach them?  Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping

from launchers.doctor.facts import Facts
from launchers.doctor.findings import Findings, failure, ok, some, warning
from ps_allreduce.fork_server.check_up_messages import PeerSeen

SLOW_LOOKUP_S = 1.0

CLOCK_WARNING_S = 0.005

CLOCK_FAILURE_S = 1.0

MOST_SENTENCES = 4

#: What may be wrong about a peer of some name.
Judge = Callable[[str, PeerSeen], bool]


def names(facts: Facts) -> Findings:
    """Every host knows the names of all others, both ways."""
    if facts.one_machine:
        return [ok("not needed: the hosts of one machine are reached by address")]
    if len(facts.states) < 2:
        return []
    judges: dict[str, Judge] = {
        "does not know the name of": lambda _, seen: not seen.resolved,
        "has a loopback address for": lambda _, seen: any(
            one.startswith("127.") for one in seen.resolved
        ),
        "finds no name, or another one, for the address of": _is_misnamed,
        f"takes more than {SLOW_LOOKUP_S:g} s to look up": _is_slow,
    }
    told = [text for problem, judge in judges.items() if (text := _tell(facts, problem, judge))]
    remedy = (
        "the suite itself uses addresses, but MPI, Horovod and log-ins want names: have DNS, or "
        "/etc/hosts of every host, name all of them"
    )
    if told:
        return [warning("; ".join(told), remedy)]
    return [ok("every host knows the names of all others, forward and reverse")]


def _is_loopback(_: str, seen: PeerSeen) -> bool:
    return any(address.startswith("127.") for address in seen.resolved)


def _is_misnamed(name: str, seen: PeerSeen) -> bool:
    """A host may have a name for every network, as n1 and n1-ib."""
    label = name.partition(".")[0].lower()
    return not any(one.lower().startswith(label) for one in seen.reverse)


def _is_slow(_: str, seen: PeerSeen) -> bool:
    return seen.lookup_s > SLOW_LOOKUP_S


def _tell(facts: Facts, problem: str, judge: Judge) -> str:
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


def ports(facts: Facts) -> Findings:
    """Every host reaches a port of all others, at the address that a run would use."""
    if len(facts.hosts) < 2:
        return [ok("one host, over its loopback")]
    if not facts.states:
        return []
    reasons: dict[str, list[str]] = {}
    for host, state in facts.states.items():
        for other, seen in state.peers.items():
            if seen.unreached:
                address = facts.checked[other].address
                reasons.setdefault(f"{other} ({address}: {seen.unreached})", []).append(host)
    used = ", ".join(_interfaces(facts))
    return [
        failure(
            f"{some(hosts)} cannot reach {target}",
            "have the firewall let the hosts reach each other at all ports from 1024, or use "
            f"another network with --interface (there are {used})",
        )
        for target, hosts in reasons.items()
    ] or [ok("every host reaches a free port of all others at the address that a run would use")]


def _interfaces(facts: Facts) -> list[str]:
    """Names of the networks that all hosts have."""
    sets = [{one.name for one in host.facts.interfaces} for host in facts.checked.values()]
    first = next(iter(facts.checked.values())).facts.interfaces
    common = set.intersection(*sets)
    return list(dict.fromkeys(one.name for one in first if one.name in common))


def clocks(facts: Facts) -> Findings:
    """The wall clocks agree, this machine's included."""
    if facts.one_machine:
        return [ok("one machine, one clock")]
    offsets = {
        host: one.clock_offset_s
        for host, one in facts.checked.items()
        if one.clock_offset_s is not None
    }
    if not offsets:
        return []
    everywhere = [0.0, *offsets.values()]
    apart = max(everywhere) - min(everywhere)
    worst = max(offsets, key=lambda host: abs(offsets[host]))
    text = (
        f"within {_render_s(apart)} of each other; {worst} is {_render_s(offsets[worst])} off the "
        "clock here"
    )
    if apart > CLOCK_FAILURE_S:
        return [failure(text, "have NTP (chrony, systemd-timesyncd) running on all hosts")]
    if apart > CLOCK_WARNING_S:
        return [
            warning(
                text,
                "timings are corrected by what was measured; have NTP (chrony) mend it if it grows",
            )
        ]
    return [ok(text)]


def _render_s(seconds: float) -> str:
    return f"{seconds:.1f} s" if abs(seconds) >= 1 else f"{seconds * 1e3:.2f} ms"


def proxies(facts: Facts) -> Findings:
    """Nothing stands between the tasks: gRPC would send the cluster's own traffic through it."""
    left = {host: state.proxies for host, state in facts.states.items() if state.proxies}
    if left:
        first, found = next(iter(left.items()))
        return [
            failure(
                f"{some(left)} would use a proxy ({_listed(found)} on {first})",
                "unset these variables where a start-up file, a module or the container sets them",
            )
        ]
    if facts.own_proxies:
        return [
            warning(
                f"{_listed(facts.own_proxies)} here; the suite removes that for its tasks",
                "other TensorFlow programs would send their traffic through it: unset it for them, "
                "or list the hosts' addresses in no_proxy",
            )
        ]
    return [ok("none that gRPC would obey")]


def _listed(found: Mapping[str, str]) -> str:
    return ", ".join(f"{name} is {place}" for name, place in found.items())


def listening(facts: Facts) -> Findings:
    """Who can reach TensorFlow's servers, which obey whoever does."""
    if not facts.states:
        return []
    public = [
        f"{address} of {host}"
        for host, state in facts.states.items()
        for address in state.addresses
        if ipaddress.ip_address(address).is_global
    ]
    text = "TensorFlow's servers listen on all addresses of a host and obey whoever reaches them"
    if public:
        return [
            warning(
                f"{text}: {some(public)} can be reached from everywhere",
                "have a firewall close these addresses to everybody but the hosts",
            )
        ]
    host, state = next(iter(facts.states.items()))
    return [ok(f"{text}; none is a public one (on {host}: {some(state.addresses) or 'loopback'})")]
