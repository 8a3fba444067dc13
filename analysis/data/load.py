"""Find the sweeps below a folder and read their records into one table, all of them, strictly.

Decides that a record which cannot be read is a `Damage`, named and counted, never passed over, and
what stays beside the table: the records without their samples, which are what makes them large.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from analysis.data.columns import make_table
from analysis.data.rows import Row, moment, row_of
from ps_allreduce.errors import RecordFormatError, UserError
from ps_allreduce.record.files import load_record
from ps_allreduce.record.records import RunRecord


class DamagedFiles(UserWarning):
    """Some files of a sweep could not be read; the table is without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A file that could not be used, and why.

    Attributes:
        path: relative to the sweep's folder.
    """

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SweepFiles:
    """Everything that was found of one sweep.

    Attributes:
        table: a row per attempt, of every block; the index is the path of the record.
        records: by the index of the table, without samples.
        planned: the runs that `sweep.json` asks for; None where there is no such file.
    """

    folder: Path
    table: pd.DataFrame
    records: Mapping[str, RunRecord]
    damaged: tuple[Damage, ...]
    planned: tuple[str, ...] | None


def load(folder: str | Path) -> pd.DataFrame:
    """All attempts of every sweep below a folder, a row each: the table of `summary.csv`.

    The index is the path of the record.  Files that cannot be read are told in a warning.

    Raises:
        UserError: there is no sweep below the folder, or one without a record that can be read.
    """
    sweeps = [read_sweep(path) for path in find_sweeps(Path(folder))]
    for sweep in sweeps:
        for damage in sweep.damaged:
            text = f"not read: {sweep.folder / damage.path}: {damage.reason}"
            warnings.warn(text, DamagedFiles, stacklevel=2)
    return pd.concat([sweep.table for sweep in sweeps])


def find_sweeps(folder: Path) -> list[Path]:
    """Folders with records at or below a folder.

    Raises:
        UserError: there is no such folder, or none with records.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder of results.")
    found = sorted({path.parent for path in folder.rglob("runs") if path.is_dir()})
    if not found:
        raise UserError(f"{folder} holds no sweep: no folder named runs below it.")
    return found


def read_sweep(folder: Path) -> SweepFiles:
    """Read all records of one sweep.

    Raises:
        UserError: there is no record, or none that can be read.
    """
    rows: dict[str, Row] = {}
    records: dict[str, RunRecord] = {}
    damaged: list[Damage] = []
    for path in (folder / "runs").glob("*/*-*.json"):
        try:
            record = _load(path)
        except UserError as error:
            place = path.relative_to(folder).as_posix()
            damaged.append(Damage(path=place, reason=str(error)))
            continue
        rows[str(path)] = row_of(record, path, folder)
        records[str(path)] = replace(record, samples=())
    damaged.sort(key=lambda damage: damage.path)
    if not rows:
        raise UserError(_nothing_to_read(folder, damaged))
    planned = _planned(folder, damaged)
    return SweepFiles(
        folder=folder,
        table=make_table(rows.values(), rows),
        records=records,
        damaged=tuple(damaged),
        planned=planned,
    )


def _planned(folder: Path, damaged: list[Damage]) -> tuple[str, ...] | None:
    path = folder / "sweep.json"
    try:
        order = json.loads(path.read_text(encoding="utf-8"))["order"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        damaged.append(Damage(path=path.name, reason=f"not a readable sweep ({error!r})."))
        return None
    return tuple(str(key) for key in order)


def _load(path: Path) -> RunRecord:
    """A record whose times and place are what every figure relies on; the types cannot say so."""
    if not path.stem.replace("-", "").isdecimal():
        raise RecordFormatError("a record is named <repetition>-<attempt>.json")
    record = load_record(path)
    if f"{path.parent.name}/{path.stem}" != record.run_id:
        raise RecordFormatError(f"{path}: the record is of run {record.run_id}.")
    for name, text in (("started_at", record.started_at), ("finished_at", record.finished_at)):
        try:
            moment(text)
        except ValueError as error:
            raise RecordFormatError(f"{path}: {name} is not a time ({error}).") from error
    return record


def _nothing_to_read(folder: Path, damaged: Sequence[Damage]) -> str:
    if not damaged:
        return f"{folder} holds no records yet: run a sweep first."
    more = f" ({len(damaged)} records like it)" if len(damaged) > 1 else ""
    return f"{folder} holds no record that can be read: {damaged[0].reason}{more}"
