"""Find the sweeps below a folder and read their records, all of them, strictly.

Decides what belongs together: runs of another machine, software or commit form a block of their own
and are never pooled; the newest block is analysed and the others are listed with what differs.  A
record that cannot be read is a `Damage`, named and counted, never passed over.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from analysis.data.differences import differences
from ps_allreduce.errors import RecordFormatError, UserError
from ps_allreduce.record.files import RunFiles, iter_record_paths, load_record
from ps_allreduce.record.provenance import Provenance
from ps_allreduce.record.records import RunRecord, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A record and where it lies.

    Attributes:
        path: of the record, relative to the sweep's folder.
        raw_missing: the raw timings are gone; the figures in the record still hold.
    """

    path: str
    record: RunRecord
    raw_missing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A record that could not be used, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Runs that may be pooled: one machine or kind of hosts, one software, one commit.

    Attributes:
        differences: what sets it apart from the block that is analysed, a line each; empty for
            that block itself.
    """

    fingerprint: str
    runs: tuple[Run, ...]
    differences: tuple[str, ...] = ()

    @property
    def newest(self) -> datetime:
        """Start of its last run."""
        return started(self.records[-1])

    @property
    def records(self) -> list[RunRecord]:
        """Of its runs, in the order in which they were begun."""
        return sorted((run.record for run in self.runs), key=started)

    @property
    def provenance(self) -> Provenance:
        """Of its last run."""
        return self.records[-1].provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResults:
    """Everything that was found of one sweep.

    Attributes:
        block: the newest, which is analysed.
        older_blocks: left out, newest first.
        damaged: files that could not be read.
        num_planned: runs that the sweep asks for, None if it does not say.
        missing: those without any attempt in the block, as `<experiment_id>/<repetition>`; they
            have not failed, they were not made yet.
    """

    folder: Path
    name: str
    block: Block
    older_blocks: tuple[Block, ...]
    damaged: tuple[Damage, ...]
    num_planned: int | None = None
    missing: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[Run, ...]:
        """Of all blocks, by path of the record within each."""
        return self.block.runs + tuple(run for block in self.older_blocks for run in block.runs)


def find_sweeps(folder: Path) -> list[Path]:
    """The folder itself if it is a sweep's, else every sweep's below it, by name.

    Raises:
        UserError: there is no such folder, or it holds no sweep.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder of results.")
    if (folder / "runs").is_dir():
        return [folder]
    found = sorted({path.parent for path in folder.rglob("runs") if path.is_dir()})
    if not found:
        raise UserError(f"{folder} holds no sweep: no folder named runs below it.")
    return found


def load_sweep(folder: Path) -> SweepResults:
    """Read all records of one sweep.

    Raises:
        UserError: there is no record, or none that can be read.
    """
    runs: list[Run] = []
    damaged: list[Damage] = []
    for path in _record_paths(folder, damaged):
        try:
            runs.append(_load_run(folder, path))
        except UserError as error:
            damaged.append(Damage(path=_relative(path, folder), reason=str(error)))
    if not runs:
        raise UserError(_nothing_to_read(folder, damaged))
    newest, *older = _blocks(runs)
    planned = _planned(folder, damaged)
    made = {f"{run.record.experiment_id}/{run.record.repetition}" for run in newest.runs}
    return SweepResults(
        folder=folder,
        name=newest.runs[0].record.sweep,
        block=newest,
        older_blocks=tuple(older),
        damaged=tuple(damaged),
        num_planned=None if planned is None else len(planned),
        missing=tuple(key for key in planned or () if key not in made),
    )


def _planned(folder: Path, damaged: list[Damage]) -> list[str] | None:
    """The runs that `sweep.json` asks for; None where there is no such file."""
    path = folder / "sweep.json"
    try:
        order = json.loads(path.read_text(encoding="utf-8"))["order"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        damaged.append(Damage(path=path.name, reason=f"not a readable sweep ({error!r})."))
        return None
    return [str(key) for key in order]


def _record_paths(folder: Path, damaged: list[Damage]) -> Sequence[Path]:
    """All records; a file that is not named like one is reported and the others are read."""
    try:
        return list(iter_record_paths(folder))
    except RecordFormatError:
        pass
    paths = sorted((folder / "runs").glob("*/*-*.json"))
    good = [path for path in paths if all(part.isdecimal() for part in path.stem.split("-"))]
    for path in sorted(set(paths) - set(good)):
        reason = "a record is named <repetition>-<attempt>.json"
        damaged.append(Damage(path=_relative(path, folder), reason=reason))
    return good


def _load_run(folder: Path, path: Path) -> Run:
    record = load_record(path)
    _check(path, record)
    return Run(
        path=_relative(path, folder),
        record=record,
        raw_missing=record.status is Status.OK and not RunFiles(path).raw.exists(),
    )


def _check(path: Path, record: RunRecord) -> None:
    """What the types cannot say, and every figure relies on."""
    if f"{path.parent.name}/{path.stem}" != record.run_id:
        raise RecordFormatError(f"{path}: the record is of run {record.run_id}.")
    try:
        started(record)
    except ValueError as error:
        raise RecordFormatError(f"{path}: started_at is not a time ({error}).") from error


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _nothing_to_read(folder: Path, damaged: Sequence[Damage]) -> str:
    if not damaged:
        return f"{folder} holds no records yet: run a sweep first."
    more = f" ({len(damaged)} records like it)" if len(damaged) > 1 else ""
    return f"{folder} holds no record that can be read: {damaged[0].reason}{more}"


def started(record: RunRecord) -> datetime:
    """When the run began; times without a zone are taken as UTC.

    Raises:
        ValueError: the text is no time.
    """
    moment = datetime.fromisoformat(record.started_at)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _blocks(runs: Sequence[Run]) -> list[Block]:
    """Newest first; the others say what sets them apart from it."""
    by_block: dict[str, list[Run]] = {}
    for run in runs:
        by_block.setdefault(run.record.block, []).append(run)
    blocks = [Block(fingerprint=name, runs=tuple(group)) for name, group in by_block.items()]
    newest, *older = sorted(blocks, key=lambda block: block.newest, reverse=True)
    return [newest] + [
        Block(
            fingerprint=block.fingerprint,
            runs=block.runs,
            differences=differences(block.records, newest.records),
        )
        for block in older
    ]
