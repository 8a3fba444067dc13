"""The kinds of the hosts that took part: hosts of the same hardware and software.

Which facts make hosts alike is decided in `ps_allreduce.record.hosts`.  Cores are left out here: a
record holds those that its run was given, which is no property of the host.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ps_allreduce.record.hosts import HostFacts
from ps_allreduce.record.records import RunRecord


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
    """The kinds of all hosts that took part."""
    facts: dict[str, HostFacts] = {}
    names: dict[str, dict[str, None]] = {}
    for host in (host for record in records for host in record.hosts):
        without_cores = replace(host.facts, cores=())
        kind = facts.setdefault(without_cores.kind, without_cores).kind
        names.setdefault(kind, {})[host.name] = None
    return {kind: HostKind(facts=one, names=tuple(names[kind])) for kind, one in facts.items()}
