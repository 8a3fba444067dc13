"""What the networks between hosts were asked to be, and what they carried.

Decides how measurements of links are summed up: a link is a source and a target, its figure the
median over runs, so that one disturbed measurement does not make it the slowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from analysis.data.cases import machine_was_limit
from analysis.wording import count_text, rate_text
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.record.hosts import Interface
from ps_allreduce.record.records import BUSY_LIMIT, RunRecord, Status

Items = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NetworkPart:
    """What a report says about one network.

    Attributes:
        title: tells it from the others of the sweep; empty if there are none.
        items: and what is known of them.
        links: see `links_of`.
    """

    title: str
    items: Items
    links: pd.DataFrame


def network_parts(table: pd.DataFrame, records: Sequence[RunRecord]) -> list[NetworkPart]:
    """One part for every launcher, emulated network and interface that was asked for.

    Args:
        table: rows of the runs.
        records: of the same runs, in any order.
    """
    groups: dict[tuple[str, EmulatedNetwork | None, str | None], list[RunRecord]] = {}
    for record in records:
        asked = record.experiment
        groups.setdefault((asked.launcher, asked.network, asked.interface), []).append(record)
    return [
        NetworkPart(
            title=_title(group[0].experiment) if len(groups) > 1 else "",
            items=_items(table[table["run_id"].isin([each.run_id for each in group])], group),
            links=links_of(group),
        )
        for group in groups.values()
    ]


def _title(asked: Experiment) -> str:
    network = [_asked(asked.network)] if asked.network else []
    return ", ".join([asked.launcher, *network, *([asked.interface] if asked.interface else [])])


def _asked(network: EmulatedNetwork) -> str:
    return f"{count_text(network.num_hosts, 'host')}, {network}"


def _items(runs: pd.DataFrame, records: Sequence[RunRecord]) -> Items:
    items: Items = []
    asked = records[0].experiment
    if asked.network is not None:
        items.append(("emulated", f"{_asked(asked.network)}; all hosts share one machine"))
    if asked.interface is not None:
        items.append(("interface asked for", asked.interface))
    items.append(("interface", _interfaces_text(records, virtual=asked.network is not None)))
    return items + _link_items(runs, records) + _busy_items(runs)


def _interfaces_text(records: Sequence[RunRecord], *, virtual: bool) -> str:
    """Names and stated rates, with the hosts of each where there are several."""
    hosts_of: dict[str, dict[str, None]] = {}
    for host in (host for record in records for host in record.hosts):
        hosts_of.setdefault(_interface_text(host.interface, virtual), {})[host.name] = None
    if len(hosts_of) < 2:
        return "".join(hosts_of) or "unknown"
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in hosts_of.items())


def _interface_text(interface: Interface | None, virtual: bool) -> str:
    if interface is None:
        return "none of the host's has the address used"
    if interface.bits_per_s is None:
        return f"{interface.name}, states no rate"
    stated = f"{interface.name}, states {rate_text(interface.bits_per_s)}"
    return f"{stated} (as virtual ones do, whatever they carry)" if virtual else stated


def _measured(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Every measurement of a link."""
    names = ["source", "target", "bits_per_s", "round_trip_s"]
    links = [asdict(link) for record in records for link in record.links]
    return pd.DataFrame(links, columns=names)


def links_of(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Every direction between two hosts that was measured, slowest first.

    Columns: source, target; bits_per_s and round_trip_s, medians over runs; lowest bits_per_s;
    number of measurements.
    """
    return (
        _measured(records)
        .groupby(["source", "target"], sort=False, as_index=False)
        .agg(
            bits_per_s=("bits_per_s", "median"),
            lowest=("bits_per_s", "min"),
            round_trip_s=("round_trip_s", "median"),
            measurements=("bits_per_s", "size"),
        )
        .sort_values("bits_per_s", kind="stable", ignore_index=True)
    )


def _link_items(runs: pd.DataFrame, records: Sequence[RunRecord]) -> Items:
    links, measured = links_of(records), _measured(records)
    if links.empty:
        several = (runs["num_hosts"] > 1).any()
        return [("links", "not measured" if several else "none: every run was on one host")]
    slowest, farthest = links.iloc[0], links.iloc[int(links["round_trip_s"].argmax())]
    rate, trip = rate_text(measured["bits_per_s"].median()), measured["round_trip_s"].median()
    return [
        ("links measured", f"median {rate} ({count_text(len(measured), 'measurement')})"),
        (
            "slowest link",
            f"{_name(slowest)}: median {rate_text(slowest['bits_per_s'])}, "
            f"lowest {rate_text(slowest['lowest'])}",
        ),
        (
            "round trip",
            f"median {trip * 1e3:.3g} ms; longest {_name(farthest)}, median "
            f"{farthest['round_trip_s'] * 1e3:.3g} ms",
        ),
    ]


def _name(link: pd.Series) -> str:
    return f"{link['source']} to {link['target']}"


def _busy_items(runs: pd.DataFrame) -> Items:
    """How busy the one machine below emulated hosts was."""
    good = runs[runs["status"] == Status.OK]
    shares = good["machine_busy"].dropna()
    if shares.empty:
        return []
    return [
        (
            "machine's processors",
            f"median {shares.median():.0%} busy, highest {shares.max():.0%}; "
            f"{machine_was_limit(good).sum()} of {count_text(len(good), 'run')} at "
            f"{BUSY_LIMIT:.0%} or above, or not known",
        )
    ]
