"""What the networks between hosts were asked to be, and what they carried.

Decides how measurements of links are summed up: a link is a source and a target, its figure the
median over runs, so that one disturbed measurement does not make it the slowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from analysis.data.cases import machine_was_limit
from analysis.wording import count_text, network_text, rate_text
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.record.hosts import Interface
from ps_allreduce.record.records import BUSY_LIMIT, LinkRecord, RunRecord, Status

Rows = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction between two hosts, over all runs that measured it.

    Attributes:
        lowest: bits per second of the worst measurement.
    """

    source: str
    target: str
    count: int
    bits_per_s: float
    lowest: float
    round_trip_s: float

    @property
    def name(self) -> str:
        """For a sentence."""
        return f"{self.source} to {self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPart:
    """What a report says about one network.

    Attributes:
        title: tells it from the others of the sweep; empty if there are none.
        rows: items and what is known of them.
        links: slowest first.
    """

    title: str
    rows: Rows
    links: tuple[Link, ...]


def network_parts(records: Sequence[RunRecord]) -> list[NetworkPart]:
    """One part for every launcher, emulated network and interface that was asked for."""
    groups: dict[tuple[str, EmulatedNetwork | None, str | None], list[RunRecord]] = {}
    for record in records:
        own = record.experiment
        groups.setdefault((own.launcher, own.network, own.interface), []).append(record)
    return [
        NetworkPart(
            title=_title(*key) if len(groups) > 1 else "",
            rows=_rows(group, key[1], key[2]),
            links=links_of(group),
        )
        for key, group in groups.items()
    ]


def _title(launcher: str, network: EmulatedNetwork | None, interface: str | None) -> str:
    asked = [_asked(network)] if network else []
    return ", ".join([launcher, *asked, *([interface] if interface else [])])


def _asked(network: EmulatedNetwork) -> str:
    return f"{count_text(network.num_hosts, 'host')}, {network_text(network)}"


def _rows(
    records: Sequence[RunRecord], network: EmulatedNetwork | None, interface: str | None
) -> Rows:
    rows: Rows = []
    if network is not None:
        rows.append(("emulated", f"{_asked(network)}; all hosts share one machine"))
    if interface is not None:
        rows.append(("interface asked for", interface))
    rows.append(("interface", _interfaces_text(records, virtual=network is not None)))
    return rows + _link_rows(records) + _busy_rows(records)


def _interfaces_text(records: Sequence[RunRecord], *, virtual: bool) -> str:
    """Names and stated rates, with the hosts of each where there are several."""
    found: dict[str, dict[str, None]] = {}
    for host in (host for record in records for host in record.hosts):
        found.setdefault(_interface_text(host.interface, virtual), {})[host.name] = None
    if len(found) < 2:
        return "".join(found) or "unknown"
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in found.items())


def _interface_text(interface: Interface | None, virtual: bool) -> str:
    if interface is None:
        return "none of the host's has the address used"
    if interface.bits_per_s is None:
        return f"{interface.name}, states no rate"
    stated = f"{interface.name}, states {rate_text(interface.bits_per_s)}"
    return f"{stated} (as virtual ones do, whatever they carry)" if virtual else stated


def links_of(records: Sequence[RunRecord]) -> tuple[Link, ...]:
    """Every link that was measured, slowest first."""
    found: dict[tuple[str, str], list[LinkRecord]] = {}
    for link in (link for record in records for link in record.links):
        found.setdefault((link.source, link.target), []).append(link)
    links = [_link(source, target, group) for (source, target), group in found.items()]
    return tuple(sorted(links, key=lambda link: link.bits_per_s))


def _link(source: str, target: str, measured: Sequence[LinkRecord]) -> Link:
    rates = [link.bits_per_s for link in measured]
    return Link(
        source=source,
        target=target,
        count=len(measured),
        bits_per_s=median(rates),
        lowest=min(rates),
        round_trip_s=median(link.round_trip_s for link in measured),
    )


def _link_rows(records: Sequence[RunRecord]) -> Rows:
    links = links_of(records)
    if not links:
        several = any(len(record.hosts) > 1 for record in records)
        return [("links", "not measured" if several else "none: every run was on one host")]
    measured = [link for record in records for link in record.links]
    slowest, farthest = links[0], max(links, key=lambda link: link.round_trip_s)
    rate = rate_text(median(link.bits_per_s for link in measured))
    trip = median(link.round_trip_s for link in measured)
    return [
        ("links measured", f"median {rate} ({count_text(len(measured), 'measurement')})"),
        (
            "slowest link",
            f"{slowest.name}: median {rate_text(slowest.bits_per_s)}, "
            f"lowest {rate_text(slowest.lowest)}",
        ),
        (
            "round trip",
            f"median {trip * 1e3:.3g} ms; longest {farthest.name}, median "
            f"{farthest.round_trip_s * 1e3:.3g} ms",
        ),
    ]


def _busy_rows(records: Sequence[RunRecord]) -> Rows:
    """How busy the one machine below emulated hosts was."""
    good = [record for record in records if record.status is Status.OK]
    shares = [record.machine_busy for record in good if record.machine_busy is not None]
    if not shares:
        return []
    limited = sum(1 for record in good if machine_was_limit(record))
    return [
        (
            "machine's processors",
            f"median {median(shares):.0%} busy, highest {max(shares):.0%}; {limited} of "
            f"{count_text(len(good), 'run')} at {BUSY_LIMIT:.0%} or above, or not known",
        )
    ]
