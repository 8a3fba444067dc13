"""What is reported about the hosts of a sweep: kinds, switches, how long they took to be ready."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from analysis.data.kinds_of_hosts import HostKind, host_kinds
from analysis.wording import count_text
from ps_allreduce.record.hosts import HostFacts, HostRecord, describe_difference
from ps_allreduce.record.records import RunRecord

#: Importing TensorFlow takes a few seconds from a local disk.
SLOW_IMPORT_S = 20.0

Items = list[tuple[str, str]]


def host_items(records: Sequence[RunRecord]) -> Items:
    """Items about the hosts; empty where none are known."""
    hosts = [host for record in records for host in record.hosts]
    if not hosts:
        return []
    names = list(dict.fromkeys(host.name for host in hosts))
    jobs = list(dict.fromkeys(record.job_id for record in records if record.job_id is not None))
    return [
        ("hosts", f"{len(names)}: {', '.join(names)}"),
        *([("numbers of the jobs", ", ".join(jobs))] if jobs else []),
        ("kinds of hosts", _kinds_text(list(host_kinds(records).values()))),
        *_switch_items(hosts),
        *_import_items(hosts),
    ]


def _kinds_text(found: Sequence[HostKind]) -> str:
    first, *others = found
    own = first.facts
    gpus = f", {count_text(len(own.gpus), 'GPU')} {own.gpus[0].model}".rstrip() if own.gpus else ""
    described = f"{own.cpu_model}, {own.memory_bytes / 1e9:.1f} GB{gpus}"
    if not others:
        return f"one: {described}"
    parts = [
        f"{', '.join(kind.names)} against {first.names[0]}: {describe_difference(kind.facts, own)}"
        for kind in others
    ]
    return f"{len(found)} (mixed): {', '.join(first.names)}: {described}; {'; '.join(parts)}"


def _switch_items(hosts: Sequence[HostRecord]) -> Items:
    """The hosts below every leaf switch that the scheduler told of."""
    found: dict[str, dict[str, None]] = {}
    for host in hosts:
        found.setdefault(leaf_switch(host.facts) or "not told", {})[host.name] = None
    if set(found) == {"not told"}:
        return []
    return [
        ("leaf switches", "; ".join(f"{leaf}: {', '.join(names)}" for leaf, names in found.items()))
    ]


def leaf_switch(facts: HostFacts) -> str:
    """The last switch of the path above a host, which ends in the host's own name; or empty."""
    above = facts.switch.removesuffix(facts.scheduler_name or facts.name).rstrip(".")
    return above.rpartition(".")[2]


def _import_items(hosts: Sequence[HostRecord]) -> Items:
    """How long fork servers took to import TensorFlow, every import counted once."""
    found = {(host.name, host.import_s) for host in hosts if host.import_s is not None}
    if not found:
        return []
    slowest, longest = max(found, key=lambda item: item[1])
    text = f"median {median(seconds for _, seconds in found):.1f} s, longest {longest:.1f} s"
    hint = (
        "; an environment on a shared file system may be what takes so long, see docs/slurm.md"
        if longest > SLOW_IMPORT_S
        else ""
    )
    return [("import of TensorFlow", f"{text} ({slowest}){hint}")]
