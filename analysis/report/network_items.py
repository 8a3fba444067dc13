"""What the hosts were, what the networks between them were asked to be, and what they carried.

Decides how measurements of links are summed up: a link is a source and a target, its figure the
median over runs, so that one disturbed measurement does not make it the slowest.  Rows of tables
that steps look up have a table of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from statistics import median

import pandas as pd

from analysis.data.blocks import HostKind, host_kinds, kinds_apart
from analysis.data.cases import Case, Point
from analysis.report.pages.page_parts import PagePart
from analysis.report.what_was_run import Items
from analysis.stats.decision import MARGIN
from analysis.wording import (
    NONE,
    TextTable,
    count_text,
    links_text,
    number,
    rate_text,
    ratio,
)
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.record.hosts import SLOW_IMPORT_S, HostFacts, HostRecord, Interface
from ps_allreduce.record.records import BUSY_LIMIT, RunRecord, Status

#: Below the links of a network.
LINKS = "Plain TCP right before the runs, one direction of a link at a time; slowest first."


def network_parts(table: pd.DataFrame, records: Sequence[RunRecord]) -> list[PagePart]:
    """One part for every launcher, emulated network and interface that was asked for.

    Args:
        table: rows of the runs.
        records: of the same runs, in any order.
    """
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        asked = record.experiment
        parts = asked.launcher, _network_text(asked.network), asked.interface
        groups.setdefault(", ".join(filter(None, parts)), []).append(record)
    return [
        _part(
            title if len(groups) > 1 else "",
            table[table["run_id"].isin([record.run_id for record in group])],
            group,
        )
        for title, group in groups.items()
    ]


def _part(title: str, runs: pd.DataFrame, records: Sequence[RunRecord]) -> PagePart:
    asked = records[0].experiment
    measured = pd.DataFrame(
        [asdict(link) for record in records for link in record.links],
        columns=["source", "target", "bits_per_s", "round_trip_s"],
    )
    links = links_of(measured)
    one_host = (runs["num_hosts"] == 1).fillna(False).all()
    unmeasured = "none: every run was on one host" if one_host else "not measured"
    emulated = _network_text(asked.network)
    items = [
        *([("emulated", emulated)] if emulated else []),
        *([("interface asked for", asked.interface)] if asked.interface else []),
        ("interface", _interfaces_text(records, virtual=asked.network is not None)),
        *([("links", unmeasured)] if links.empty else _link_items(measured, links)),
        *_busy_items(runs),
    ]
    folded = f"Measured links ({len(links)})"
    table = TextTable(rows=_as_text(links), caption=LINKS, folded=folded)
    return PagePart(heading=title, items=items, tables=[table])


def _network_text(network: EmulatedNetwork | None) -> str:
    return f"{count_text(network.num_hosts, 'host')}, {network}" if network else ""


def _interfaces_text(records: Sequence[RunRecord], *, virtual: bool) -> str:
    """Names and stated rates, with the hosts of each where there are several."""
    hosts = [host for record in records for host in record.hosts]
    by_text = _names_by((_interface_text(host.interface, virtual), host.name) for host in hosts)
    if len(by_text) < 2:
        return "".join(by_text) or "unknown"
    return "; ".join(f"{text} ({names})" for text, names in by_text.items())


def _interface_text(interface: Interface | None, virtual: bool) -> str:
    if interface is None:
        return "none of the host's has the address used"
    if interface.bits_per_s is None:
        return f"{interface.name}, states no rate"
    stated = f"{interface.name}, states {rate_text(interface.bits_per_s)}"
    return f"{stated} (as virtual ones do, whatever they carry)" if virtual else stated


def _names_by(described: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The names of all hosts that are described alike, each once, by their description."""
    names: dict[str, list[str]] = {}
    for text, name in dict.fromkeys(described):
        names.setdefault(text, []).append(name)
    return {text: ", ".join(alike) for text, alike in names.items()}


def links_of(measured: pd.DataFrame) -> pd.DataFrame:
    """Every direction between two hosts, slowest first, from all measurements.

    Columns: source, target; bits_per_s and round_trip_s, medians over runs; lowest bits_per_s;
    number of measurements.
    """
    by_link = measured.groupby(["source", "target"], sort=False, as_index=False)
    links = by_link.agg(
        bits_per_s=("bits_per_s", "median"),
        lowest=("bits_per_s", "min"),
        round_trip_s=("round_trip_s", "median"),
        measurements=("bits_per_s", "size"),
    )
    return links.sort_values("bits_per_s", kind="stable", ignore_index=True)


def _as_text(links: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "from": links["source"],
            "to": links["target"],
            "median": links["bits_per_s"].map(rate_text),
            "lowest": links["lowest"].map(rate_text),
            "round trip ms, median": links["round_trip_s"].map(lambda s: f"{s * 1e3:.3g}"),
            "measurements": links["measurements"],
        }
    )


def _link_items(measured: pd.DataFrame, links: pd.DataFrame) -> Items:
    """What links carried; one is named only if it stands out from the others."""
    rates = dict.fromkeys(links["bits_per_s"].map(rate_text))
    stands_out = links["bits_per_s"].max() > (1 + MARGIN) * links["bits_per_s"].min()
    ends = " to ".join(dict.fromkeys([next(iter(rates)), next(reversed(rates))]))
    several = count_text(len(measured), "measurement")
    return [
        ("links measured", f"median{'s' * (len(rates) > 1)} {ends} ({several})"),
        *(_slowest_items(links) if stands_out else []),
        ("round trip", _round_trip_text(measured["round_trip_s"].median(), links)),
    ]


def _slowest_items(links: pd.DataFrame) -> Items:
    rate = rate_text(links["bits_per_s"].min())
    slow = links[links["bits_per_s"].map(rate_text) == rate]
    named = links_text([*zip(slow["source"], slow["target"], strict=True)])
    lowest = rate_text(slow["lowest"].min())
    return [(f"slowest link{'s' * (len(slow) > 1)}", f"{named}: median {rate}, lowest {lowest}")]


def _round_trip_text(usual_s: float, links: pd.DataFrame) -> str:
    farthest = links.iloc[int(links["round_trip_s"].argmax())]
    usual, longest = (f"median {each * 1e3:.3g} ms" for each in (usual_s, farthest["round_trip_s"]))
    if longest == usual:
        return usual
    return f"{usual}; longest {farthest['source']} to {farthest['target']}, {longest}"


def _busy_items(runs: pd.DataFrame) -> Items:
    """How busy the one machine below emulated hosts was."""
    good = runs[runs["status"] == Status.OK]
    shares, unknown = good["machine_busy"].dropna(), int(good["machine_busy"].isna().sum())
    if shares.empty:
        return []
    return [
        (
            "machine's processors",
            f"median {shares.median():.0%} busy, highest {shares.max():.0%}; "
            f"{(shares >= BUSY_LIMIT).sum()} of {count_text(len(good), 'run')} at "
            f"{BUSY_LIMIT:.0%} or above"
            f"{f', {unknown} not known' * bool(unknown)}",
        )
    ]


def host_items(records: Sequence[RunRecord]) -> Items:
    """Items about the hosts: kinds, switches, how long they took to be ready; or none."""
    hosts = [host for record in records for host in record.hosts]
    if not hosts:
        return []
    names = dict.fromkeys(host.name for host in hosts)
    jobs = dict.fromkeys(record.job_id for record in records if record.job_id is not None)
    switches = _names_by((leaf_switch(host.facts) or "not told", host.name) for host in hosts)
    leaves = "; ".join(f"{leaf}: {below}" for leaf, below in switches.items())
    return [
        ("hosts", f"{len(names)}: {', '.join(names)}"),
        *([("numbers of the jobs", ", ".join(jobs))] if jobs else []),
        ("kinds of hosts", _kinds_text(*host_kinds(records).values())),
        *([("leaf switches", leaves)] if set(switches) != {"not told"} else []),
        *_import_items(hosts),
    ]


def _kinds_text(first: HostKind, *others: HostKind) -> str:
    facts = next(iter(first.values()))
    gpus = f", {count_text(len(facts.gpus), 'GPU')} {facts.gpus[0].model}" if facts.gpus else ""
    described = f"{facts.cpu_model}, {facts.memory_bytes / 1e9:.1f} GB{gpus}".rstrip()
    if not others:
        return f"one: {described}"
    told = [f"{', '.join(first)} ({described})"]
    for kind in others:
        apart = ", ".join(f"{name}: {own}" for name, own, _ in kinds_apart(kind, first))
        told.append(f"{', '.join(kind)} (alike but for {apart})")
    return f"{len(told)}: {'; '.join(told)}"


def leaf_switch(facts: HostFacts) -> str:
    """The last switch of the path above a host, which ends in the host's own name; or empty."""
    above = facts.switch.removesuffix(facts.scheduler_name or facts.name).rstrip(".")
    return above.rpartition(".")[2]


def _import_items(hosts: Sequence[HostRecord]) -> Items:
    """How long fork servers took to import TensorFlow, every import counted once."""
    imports = {(host.import_s, host.name) for host in hosts if host.import_s is not None}
    if not imports:
        return []
    longest, slowest = max(imports)
    text = f"median {median(seconds for seconds, _ in imports):.1f} s, longest {longest:.1f} s"
    hint = (
        "; an environment on a shared file system may be what takes so long, see docs/slurm.md"
        if longest > SLOW_IMPORT_S
        else ""
    )
    return [("import of TensorFlow", f"{text} ({slowest}){hint}")]


LOOKED_UP_NOTE = (
    "Rows of tables in a step, means over the batches that workers repeat: look-ups of a worker, "
    "different rows among them, and different rows of all workers together. Hottest over mean: "
    "rows that are asked of one server; 1.00 is balanced."
)


def looked_up_rows(case: Case) -> pd.DataFrame:
    """A row for each point whose launches counted rows."""
    return pd.DataFrame([row for point in case.points for row in _row(point)])


def _row(point: Point) -> list[dict[str, str]]:
    asked = next((r.rows_asked for r in point.counting if r.rows_asked is not None), None)
    if asked is None:
        return []
    hot = asked.hot_shard
    return [
        {
            "setting": point.setting.label,
            "workers": str(point.num_workers),
            "servers": str(point.experiment.num_ps or NONE),
            "look-ups": number(asked.asked),
            "different rows": number(asked.unique),
            "of all workers": number(asked.union),
            "hottest over mean": NONE if hot is None else ratio(hot),
        }
    ]
