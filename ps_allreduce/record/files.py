"""Where the records and raw timings of a sweep are kept, and how they are written and read.

Decides names of files, atomic writing and strict loading.  Raw timings are a NumPy archive without
pickles.  What the files hold is decided in `records` and `steps`.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_allreduce.errors import RecordFormatError, UserError
from ps_allreduce.record.records import FORMAT_VERSION, RunRecord
from ps_allreduce.record.steps import EventTable, StepTable, Window, window_of
from ps_allreduce.serialization import from_json, parse_json, to_json

#: What a damaged archive raises, depending on which of its bytes is wrong.
UNREADABLE: tuple[type[Exception], ...]
UNREADABLE = (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError)
UNREADABLE += (zipfile.BadZipFile, zlib.error)

REMEDY = "Move the file away, and the same command makes the run again."


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of one run, at most three; the record comes last, so with it a run is complete."""

    record: Path

    @classmethod
    def of(cls, sweep_dir: Path, experiment_id: str, repetition: int, attempt: int) -> RunFiles:
        """Where a run of a sweep is kept."""
        return cls(sweep_dir / "runs" / experiment_id / f"{repetition}-{attempt}.json")

    @property
    def raw(self) -> Path:
        """Raw timings."""
        return self.record.with_suffix(".npz")

    @property
    def log(self) -> Path:
        """The logs of all tasks, one after the other."""
        return self.record.with_suffix(".log")


def save_record(path: Path, record: RunRecord) -> None:
    """Write a record so that readers see all of it or nothing; never overwrite one.

    Raises:
        UserError: there is a record already, or the disk refuses.
    """
    text = json.dumps(to_json(record), indent=1) + "\n"
    check_free(path)
    write_atomically(path, text.encode())


def check_free(path: Path) -> None:
    """See that there is no record yet.

    Raises:
        UserError: there is one.
    """
    if path.exists():
        raise UserError(f"{path} exists already: records are never overwritten.")


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by way of a temporary neighbour.

    Raises:
        UserError: no permission, or no space left.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).chmod(0o644)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}.") from error


def load_record(path: Path) -> RunRecord:
    """Read a record strictly.

    Raises:
        RecordFormatError: it is damaged or of another version; the message says which is older.
    """
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RecordFormatError(f"{path}: not a readable record ({error}). {REMEDY}") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if version != FORMAT_VERSION:
        older = isinstance(version, int) and version < FORMAT_VERSION
        raise RecordFormatError(
            f"{path}: record of format version {version}, this suite reads {FORMAT_VERSION}. "
            + (
                "Start a new RESULTS folder."
                if older
                else "Update the suite, or start a new RESULTS folder."
            )
        )
    try:
        return from_json(RunRecord, content, str(path))
    except (ValueError, UserError) as error:
        where = "" if str(error).startswith(str(path)) else f"{path}: "
        raise RecordFormatError(f"{where}{str(error).rstrip('.')}. {REMEDY}") from error


def save_raw(path: Path, steps: StepTable, events: EventTable) -> None:
    """Write both tables as one compressed NumPy archive (no pickles)."""
    arrays = {f"steps_{field.name}": getattr(steps, field.name) for field in fields(StepTable)}
    arrays |= {f"events_{field.name}": getattr(events, field.name) for field in fields(EventTable)}
    with path.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)


def load_raw(path: Path) -> tuple[StepTable, EventTable]:
    """Read what `save_raw` wrote.

    Raises:
        RecordFormatError: the file is missing, damaged, or of another version.
    """
    steps = _read_arrays(path, "steps", [field.name for field in fields(StepTable)])
    events = _read_arrays(path, "events", [field.name for field in fields(EventTable)])
    return StepTable(**steps), EventTable(**events)


def load_window(path: Path) -> tuple[Window, int]:
    """The measured window and the number of steps of all workers, without reading the rest.

    Raises:
        RecordFormatError: the file is missing, damaged, or of another version.
        ValueError: there is no window in which all workers were measured.
    """
    found = _read_arrays(path, "steps", ("worker", "phase", "end"))
    return window_of(found["worker"], found["phase"], found["end"]), len(found["end"])


def _read_arrays(path: Path, table: str, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    try:
        # Opened here, because NumPy leaves a damaged file open.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return {name: archive[f"{table}_{name}"] for name in names}
    except UNREADABLE as error:
        raise RecordFormatError(f"{path}: raw timings cannot be read ({error}).") from error


def iter_record_paths(sweep_dir: Path) -> Iterator[Path]:
    """Paths of all records of a sweep, by experiment, repetition and attempt."""
    paths = (sweep_dir / "runs").glob("*/*-*.json")
    yield from sorted(paths, key=lambda path: (path.parent.name, _numbers(path)))


def _numbers(path: Path) -> tuple[int, ...]:
    parts = path.stem.split("-")
    if not all(part.isdecimal() for part in parts):
        raise RecordFormatError(f"{path}: a record is named <repetition>-<attempt>.json.")
    return tuple(int(part) for part in parts)
