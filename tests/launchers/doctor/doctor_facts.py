"""Made-up facts about hosts with which all is well, and ways to spoil them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from launchers.doctor.check_findings import Bursts, HostCheck, Sharing, SiteFacts
from launchers.site import Advice
from ps_allreduce.inspection.questions import HostState, PeerSeen, TemporaryFolder
from ps_allreduce.record.hosts import Interface, TcpCounters
from ps_allreduce.record.records import LinkRecord
from tests.fakes import make_facts

#: In the order of the allocation, which is no order of names.
HOSTS = ("n10", "n1", "n9")

GIB = 2**30

VERSIONS = {"python": "3.11.2", "tensorflow": "2.21.0", "numpy": "2.4.6"}


def address(host: str) -> str:
    return f"10.0.0.{host.removeprefix('n')}"


def seen(host: str) -> PeerSeen:
    return PeerSeen(resolved=(address(host),), reverse=(f"{host}.cluster",), lookup_s=0.001)


def state(host: str, hosts: Sequence[str]) -> HostState:
    return HostState(
        busy_share=0.01,
        free_bytes=64 * GIB,
        open_files=65536,
        addresses=(address(host), "fe80::1"),
        digest="0badcafe",
        temporary=TemporaryFolder(path="/tmp", asked="", file_system="xfs", free_bytes=100 * GIB),
        peers={other: seen(other) for other in hosts if other != host},
    )


def host_check(host: str, hosts: Sequence[str]) -> HostCheck:
    link = Interface(name="eth0", address=address(host), prefix_length=24, bits_per_s=1e10)
    versions = VERSIONS | {"kernel": "6.1"}
    facts = make_facts(host, interfaces=(link,), versions=versions, congestion="cubic")
    return HostCheck(
        facts=facts,
        address=address(host),
        import_s=4.0,
        state=state(host, hosts),
        clock_offset_s=0.0002,
        gpus_of_worker=0,
        gpus_of_server=0,
    )


def link(source: str, target: str, bits_per_s: float = 9.4e9) -> LinkRecord:
    return LinkRecord(source=source, target=target, bits_per_s=bits_per_s, round_trip_s=5e-5)


def links(hosts: Sequence[str] = HOSTS) -> tuple[LinkRecord, ...]:
    return tuple(link(a, b) for a in hosts for b in hosts if a != b)


def bursts(hosts: Sequence[str] = HOSTS, lost: int = 0, **congestion: str) -> Bursts:
    """To the first host, which sent nothing again but 5 probes, and what was lost."""
    used = dict.fromkeys(hosts[1:], "cubic") | congestion
    tcp = TcpCounters(sent=100_000, sent_again=5 + lost, probes=5, timeouts=0)
    return Bursts(target=hosts[0], congestion=used, tcp=tcp)


def healthy(hosts: Sequence[str] = HOSTS, **changes: Any) -> SiteFacts:
    """A cluster without any trouble."""
    settings: dict[str, Any] = {
        "hosts": tuple(hosts),
        "one_machine": False,
        "shares_files": True,
        "advice": Advice(alike="ask for one kind"),
        "results": "/scratch/results",
        "own_digest": "0badcafe",
        "own_versions": VERSIONS,
        "start_s": 6.0,
        "checked": {host: host_check(host, hosts) for host in hosts},
        "sharing": Sharing(
            delays_s={reader: {w: 0.02 for w in hosts if w != reader} for reader in hosts}
        ),
        "flops": dict.fromkeys(hosts, 1000000000000.0),
        "links": links(hosts),
        "bursts": bursts(hosts),
    }
    return SiteFacts(**(settings | changes))


def with_host(facts: SiteFacts, host: str, /, **changes: Any) -> SiteFacts:
    """The same facts but for one host."""
    return replace(facts, checked={**facts.checked, host: replace(facts.checked[host], **changes)})


def with_state(facts: SiteFacts, host: str, /, **changes: Any) -> SiteFacts:
    """The same facts but for what one host found."""
    return with_host(facts, host, state=replace(facts.states[host], **changes))


def with_peer(facts: SiteFacts, host: str, other: str, /, **changes: Any) -> SiteFacts:
    """The same facts but for how one host sees another."""
    peers = facts.states[host].peers
    return with_state(facts, host, peers={**peers, other: replace(peers[other], **changes)})
