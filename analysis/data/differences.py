"""What sets two blocks of runs apart, so that a reader sees why they are not pooled.

Decides which facts can open a new block.  On a cluster those are the software and the kinds of
hosts (`ps_allreduce.record.provenance`): the machine that the sweep was started on does not count
there.  Which facts make hosts alike is decided in `ps_allreduce.record.hosts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from ps_allreduce.record.hosts import HostFacts, describe_difference
from ps_allreduce.record.provenance import Provenance
from ps_allreduce.record.records import RunRecord

#: What differs from run to run within one block, and so never explains a new one.
_PER_RUN = ("command", "load_average", "fingerprint")

#: The machine that the sweep was started on, which only counts where all tasks run on it.
_MACHINE = (*("host", "system", "cpu_model", "cpu_count", "cpu_flags", "memory_bytes", "affinity"),)

_UNKNOWN = (
    "nothing that the records hold: perhaps hosts of the job that no run used, or the number "
    "of cores that hosts offered"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKind:
    """Hosts of the same hardware and software.

    Attributes:
        facts: of one of them.
        names: in the order in which they took part.
    """

    facts: HostFacts
    names: tuple[str, ...]


def host_kinds(records: Iterable[RunRecord]) -> dict[str, HostKind]:
    """The kinds of all hosts that took part.

    Cores are left out: a record holds those that its run was given, no property of the host.
    """
    kinds: dict[str, HostKind] = {}
    for host in (host for record in records for host in record.hosts):
        facts = replace(host.facts, cores=())
        kind = kinds.setdefault(facts.kind, HostKind(facts=facts, names=()))
        if host.name not in kind.names:
            kinds[facts.kind] = replace(kind, names=(*kind.names, host.name))
    return kinds


def differences(other: Sequence[RunRecord], analysed: Sequence[RunRecord]) -> tuple[str, ...]:
    """What sets a block's runs, oldest first, apart from those that are analysed."""
    provenances = other[-1].provenance, analysed[-1].provenance
    if not (_on_cluster(other) or _on_cluster(analysed)):
        return tuple(_provenance_lines(*provenances, _PER_RUN))
    lines = [
        *_provenance_lines(*provenances, _PER_RUN + _MACHINE),
        *_lines("launcher", _launchers(other), _launchers(analysed)),
        *_host_lines(host_kinds(other), host_kinds(analysed)),
    ]
    return tuple(lines or [_UNKNOWN])


def _on_cluster(records: Sequence[RunRecord]) -> bool:
    """Tasks were on hosts other than this machine, or ones emulated on it."""
    last = records[-1].experiment
    return last.spread is not None and last.network is None


def _launchers(records: Sequence[RunRecord]) -> str:
    return ", ".join(dict.fromkeys(record.experiment.launcher for record in records))


def _provenance_lines(other: Provenance, analysed: Provenance, skipped: Sequence[str]) -> list[str]:
    """One line for each item."""
    facts = asdict(analysed)
    return [
        line
        for name, value in asdict(other).items()
        if name not in skipped
        for line in _lines(name, value, facts[name])
    ]


def _lines(name: str, other: object, analysed: object) -> list[str]:
    """What differs, of mappings every item."""
    if isinstance(other, Mapping) and isinstance(analysed, Mapping):
        items = [
            _lines(f"{name}.{key}", other.get(key, "none"), analysed.get(key, "none"))
            for key in sorted(other.keys() | analysed.keys())
        ]
        return [line for lines in items for line in lines]
    return [f"{name}: {other} (analysed: {analysed})"] if other != analysed else []


def _host_lines(other: Mapping[str, HostKind], analysed: Mapping[str, HostKind]) -> list[str]:
    """Kinds of hosts that only one of the blocks has, each beside one of the other block."""
    if not other or not analysed:
        return []
    gone = [kind for name, kind in other.items() if name not in analysed]
    new = [kind for name, kind in analysed.items() if name not in other]
    first = next(iter(other.values()))
    beside = (new or list(analysed.values()))[0]
    pairs = [(kind, beside) for kind in gone] or [(first, kind) for kind in new]
    return [
        f"hosts {', '.join(one.names)} (analysed: {', '.join(two.names)}): "
        f"{describe_difference(one.facts, two.facts)}"
        for one, two in pairs
    ]
