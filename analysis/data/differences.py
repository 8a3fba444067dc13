"""What sets two blocks of runs apart, so that a reader sees why they are not pooled.

Decides which facts can open a new block.  On a cluster those are the software and the kinds of
hosts (`ps_allreduce.record.provenance`): the machine that the sweep was started on does not count
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from analysis.data.kinds_of_hosts import HostKind, host_kinds
from ps_allreduce.record.hosts import describe_difference
from ps_allreduce.record.provenance import Provenance
from ps_allreduce.record.records import RunRecord

#: What differs from run to run within one block, and so never explains a new one.
_PER_RUN = ("command", "load_average", "fingerprint")

#: The machine that the sweep was started on, which only counts where all tasks run on it.
_MACHINE = (*("host", "system", "cpu_model", "cpu_count", "cpu_flags", "memory_bytes", "affinity"),)


def differences(theirs: Sequence[RunRecord], ours: Sequence[RunRecord]) -> tuple[str, ...]:
    """What sets a block's runs, oldest first, apart from those that are analysed."""
    provenances = theirs[-1].provenance, ours[-1].provenance
    if not (_on_cluster(theirs) or _on_cluster(ours)):
        return tuple(_provenance_lines(*provenances, _PER_RUN))
    lines = [
        *_provenance_lines(*provenances, _PER_RUN + _MACHINE),
        *_launcher_lines(theirs, ours),
        *_host_lines(theirs, ours),
    ]
    unknown = (
        "nothing that the records hold: perhaps hosts of the job that no run used, or the number "
        "of cores that hosts offered"
    )
    return tuple(lines or [unknown])


def _on_cluster(records: Sequence[RunRecord]) -> bool:
    """Tasks were on hosts other than this machine, or ones emulated on it."""
    last = records[-1].experiment
    return last.spread is not None and last.network is None


def _provenance_lines(theirs: Provenance, ours: Provenance, skipped: Sequence[str]) -> list[str]:
    """One line for each item."""
    lines: list[str] = []
    for name in (field.name for field in fields(Provenance)):
        mine, other = getattr(ours, name), getattr(theirs, name)
        if name in skipped or mine == other:
            continue
        if isinstance(mine, dict) and isinstance(other, dict):
            lines += [
                f"{name}.{key}: {other.get(key, 'none')} (analysed: {mine.get(key, 'none')})"
                for key in sorted(set(mine) | set(other))
                if mine.get(key) != other.get(key)
            ]
        else:
            lines.append(f"{name}: {other} (analysed: {mine})")
    return lines


def _launcher_lines(theirs: Sequence[RunRecord], ours: Sequence[RunRecord]) -> list[str]:
    other, mine = (
        ", ".join(dict.fromkeys(record.experiment.launcher for record in records))
        for records in (theirs, ours)
    )
    return [f"launcher: {other} (analysed: {mine})"] if other != mine else []


def _host_lines(theirs: Sequence[RunRecord], ours: Sequence[RunRecord]) -> list[str]:
    """Kinds of hosts that only one of the blocks has, each beside one of the other block."""
    other, mine = host_kinds(theirs), host_kinds(ours)
    if not other or not mine:
        return []
    gone = [kind for name, kind in other.items() if name not in mine]
    new = [kind for name, kind in mine.items() if name not in other]
    if gone:
        against = (new or list(mine.values()))[0]
        return [_host_line(kind, against) for kind in gone]
    return [_host_line(next(iter(other.values())), kind) for kind in new]


def _host_line(theirs: HostKind, ours: HostKind) -> str:
    return (
        f"hosts {', '.join(theirs.names)} (analysed: {', '.join(ours.names)}): "
        f"{describe_difference(theirs.facts, ours.facts)}"
    )
