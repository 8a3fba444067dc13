"""Which runs may be pooled: those of one machine or kind of hosts, software and program.

Decides that the newest such block of a sweep is analysed, and that the others are listed with what
sets them apart.  On a cluster that is the software and the kinds of hosts
(`ps_allreduce.record.provenance`): the machine that the sweep was started on does not count there.
Which facts make hosts alike is decided in `ps_allreduce.record.hosts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import pandas as pd

from analysis.data.load import SweepFiles
from ps_allreduce.record.choices import NO_RESULTS, SEARCH
from ps_allreduce.record.hosts import HostFacts, facts_apart
from ps_allreduce.record.provenance import Provenance
from ps_allreduce.record.records import RunRecord, Status

#: What differs from run to run within one block, and so never explains a new one.
_PER_RUN = ("commit", "command", "load_average", "fingerprint")

#: The machine that the sweep was started on, which only counts where all tasks run on it.
_MACHINE = (*("host", "system", "cpu_model", "cpu_count", "cpu_flags", "memory_bytes", "affinity"),)

_UNKNOWN = (
    "nothing that the records hold: perhaps hosts of the job that no run used, or the number "
    "of cores that hosts offered"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """Runs that may be pooled.

    Attributes:
        table: their rows, in the order of the sweep's table.
        records: of the runs, in the order in which they were begun.
        differences: what sets it apart from the block that is analysed, a line each; empty for
            that block itself.
    """

    fingerprint: str
    table: pd.DataFrame
    records: tuple[RunRecord, ...]
    differences: tuple[str, ...] = ()

    @property
    def provenance(self) -> Provenance:
        """Of its last run."""
        return self.records[-1].provenance


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SweepResults:
    """A sweep, and what of it is analysed.

    Attributes:
        block: the newest, which is analysed.
        older_blocks: left out, newest first.
        missing: planned runs that the block does not have, or whose attempts were interrupted.
    """

    files: SweepFiles
    block: Block
    older_blocks: tuple[Block, ...]
    missing: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of the sweep."""
        return self.block.records[0].sweep

    @property
    def searched(self) -> bool:
        """Its launches only search: the sweep behind measures the best settings anew."""
        return self.name.startswith(f"{SEARCH}/")

    @property
    def is_no_result(self) -> bool:
        """A rate that was chosen for being high is too high; one of ten steps means nothing."""
        return self.name.partition("/")[0] in NO_RESULTS


def analysed(files: SweepFiles) -> SweepResults:
    """The newest block of a sweep, and the others beside it."""
    table = files.table
    begun = table.groupby("fingerprint", sort=False)["started_at"].max()
    newest, *others = begun.sort_values(ascending=False, kind="stable").index
    block = _block(files, newest)
    ended = block.table[block.table["status"] != Status.INTERRUPTED]
    made = set(ended["experiment_id"] + "/" + ended["repetition"].astype(str))
    return SweepResults(
        files=files,
        block=block,
        older_blocks=tuple(_block(files, other, block) for other in others),
        missing=tuple(key for key in files.definition.planned if key not in made),
    )


def _block(files: SweepFiles, fingerprint: str, beside: Block | None = None) -> Block:
    table = files.table[files.table["fingerprint"] == fingerprint]
    begun = table.sort_values("started_at", kind="stable").index
    records = tuple(files.records[str(path)] for path in begun)
    lines = differences(records, beside.records) if beside else ()
    return Block(fingerprint=fingerprint, table=table, records=records, differences=lines)


#: Hosts of the same hardware and software: their facts by their names.
HostKind = Mapping[str, HostFacts]


def host_kinds(records: Iterable[RunRecord]) -> dict[str, HostKind]:
    """The kinds of all hosts that took part, in the order in which they did.

    Cores are left out: a record holds those that its run was given, no property of the host.
    """
    kinds: dict[str, dict[str, HostFacts]] = {}
    for host in (host for record in records for host in record.hosts):
        facts = replace(host.facts, cores=())
        kinds.setdefault(facts.kind, {}).setdefault(host.name, facts)
    return {**kinds}


def kinds_apart(one: HostKind, other: HostKind) -> list[tuple[str, object, object]]:
    """What sets two kinds of hosts apart: the names of facts, and both values of each."""
    return facts_apart(next(iter(one.values())), next(iter(other.values())))


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
        f"{name} of {', '.join(one)}: {old} (analysed: {now}{_of_others(one, two)})"
        for one, two in pairs
        for name, old, now in kinds_apart(one, two)
    ]


def _of_others(one: HostKind, two: HostKind) -> str:
    """The names of the second kind, if they are others."""
    return "" if [*one] == [*two] else f" of {', '.join(two)}"
