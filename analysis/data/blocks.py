"""Which runs may be pooled: those of one machine or kind of hosts, one software and one commit.

Decides that the newest such block of a sweep is analysed, and that the others are listed with what
sets them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from analysis.data.differences import differences
from analysis.data.load import SweepFiles
from ps_allreduce.record.provenance import Provenance
from ps_allreduce.record.records import RunRecord


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
        missing: planned runs that the block does not have.
    """

    files: SweepFiles
    block: Block
    older_blocks: tuple[Block, ...]
    missing: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of the sweep."""
        return self.block.records[0].sweep


def analysed(files: SweepFiles) -> SweepResults:
    """The newest block of a sweep, and the others beside it."""
    table = files.table
    begun = table.groupby("fingerprint", sort=False)["started_at"].max()
    newest, *others = begun.sort_values(ascending=False, kind="stable").index
    block = _block(files, newest)
    made = set(block.table["experiment_id"] + "/" + block.table["repetition"].astype(str))
    return SweepResults(
        files=files,
        block=block,
        older_blocks=tuple(_block(files, other, block) for other in others),
        missing=tuple(key for key in files.planned or () if key not in made),
    )


def _block(files: SweepFiles, fingerprint: str, beside: Block | None = None) -> Block:
    table = files.table[files.table["fingerprint"] == fingerprint]
    begun = table.sort_values("started_at", kind="stable").index
    records = tuple(files.records[str(path)] for path in begun)
    lines = differences(records, beside.records) if beside else ()
    return Block(fingerprint=fingerprint, table=table, records=records, differences=lines)
