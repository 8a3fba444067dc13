"""Where the records and raw timings of a sweep are kept, and how they are written and read.

Decides names of files, atomic writing, and strict loading: what `read_run` refuses is no record,
for whoever goes on with a sweep as for whoever reports it.  Raw timings are a NumPy archive without
pickles.  What the files hold is decided in `records` and `step_table`.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_allreduce.errors import OtherVersionError, RecordFormatError, UserError
from ps_allreduce.record.evaluation_timings import EvaluationTable
from ps_allreduce.record.records import BEFORE_STATED_NETWORKS, FORMAT_VERSION, RunRecord
from ps_allreduce.record.sense import refuse_nonsense
from ps_allreduce.record.step_table import EventTable, StepTable
from ps_allreduce.scratch import open_regular
from ps_allreduce.serialization import from_json, parse_json, to_json

#: What a damaged archive raises, depending on which of its bytes is wrong.
UNREADABLE: tuple[type[Exception], ...]
UNREADABLE = (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, MemoryError)
UNREADABLE += (zipfile.BadZipFile, zlib.error)

#: The first bytes of an array: what it is, a version, and the length of the header that follows.
_NPY_BEGIN = 10

#: Columns of raw timings that hold whole numbers, and the shapes of rows that are no single number.
_WHOLE = frozenset({"worker", "step", "phase", "kind", "tensor", "number"})
_SHAPES: dict[str, tuple[int | None, ...]] = {"batches": (None, 3), "releases": (None,)}

#: Begins the names of arrays of an evaluation.
EVALUATION = "evaluation"

#: The folder of a sweep's records.
RUNS = "runs"

#: What a sweep was asked for, beside its records.
DEFINITION = "sweep.json"

#: The choice in it that says after how many launches the main comparison was last looked at, in a
#: sweep that ends once that is known well enough; whoever tells its interval must account for it.
EARLY_STOPPING = "looks at the main comparison"

#: The folder in it of what is no record.
REFUSED = "refused"

#: Of moments that a table of runs can hold.
LAST_YEAR = 2262

REMEDY = f"The sweep's command moves the file to runs/{REFUSED} and makes the run again."


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of one run, at most three; the record comes last, so with it a run is complete."""

    record: Path

    @classmethod
    def of(cls, sweep_dir: Path, experiment_id: str, repetition: int, attempt: int) -> RunFiles:
        """Where a run of a sweep is kept."""
        return cls(sweep_dir / RUNS / experiment_id / f"{repetition}-{attempt}.json")

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
    check_free(path)
    write_json(path, record)


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
    except FileExistsError as error:
        raise UserError(f"cannot write {path}: {path.parent} is no folder.") from error
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}.") from error


def write_json(path: Path, value: object) -> None:
    """Write the JSON form of a value, so that readers see all of it or nothing.

    Raises:
        UserError: no permission, or no space left.
    """
    write_atomically(path, (json.dumps(to_json(value), indent=1) + "\n").encode())


def read_json(path: Path) -> Any:
    """The JSON values in a file.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: it holds no JSON, or a key is repeated.
    """
    with open_regular(path) as stream:
        return parse_json(stream.read())


def load_record(path: Path) -> RunRecord:
    """Read a record strictly.

    Raises:
        RecordFormatError: it is damaged.
        OtherVersionError: it is of another version; the message says which is older.
    """
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise RecordFormatError(f"{path}: not a readable record ({error}). {REMEDY}") from error
    _check_version(path, content)
    try:
        record = from_json(RunRecord, content, str(path))
        refuse_nonsense(record)
    except (ValueError, UserError) as error:
        where = "" if str(error).startswith(str(path)) else f"{path}: "
        raise RecordFormatError(f"{where}{str(error).rstrip('.')}. {REMEDY}") from error
    return record


def _check_version(path: Path, content: object) -> None:
    if not isinstance(content, dict) or "format_version" not in content:
        raise RecordFormatError(f"{path}: it states no format_version: no record. {REMEDY}")
    version = content["format_version"]
    if type(version) is not int:
        raise RecordFormatError(
            f"{path}: format_version is {short(version)}, which is no whole number. {REMEDY}"
        )
    if version == BEFORE_STATED_NETWORKS and not _is_emulated(content):
        return
    if version != FORMAT_VERSION:
        advice = "Start" if version < FORMAT_VERSION else "Update the suite, or start"
        raise OtherVersionError(
            f"{path}: record of format version {short(version)}, this suite reads "
            f"{FORMAT_VERSION}. {advice} a new RESULTS folder."
        )


def _is_emulated(content: Mapping[str, Any]) -> bool:
    experiment = content.get("experiment")
    return not isinstance(experiment, dict) or experiment.get("network") is not None


def read_run(path: Path) -> RunRecord | RecordFormatError:
    """The record in a file of a sweep, or why the file holds none: the one reader of sweeps."""
    try:
        record = load_record(path)
        _check_name_and_times(path, record)
    except RecordFormatError as error:
        return error
    return record


def is_strange(record: RunRecord, sweep: str | None) -> bool:
    """Whether a record belongs to another sweep than the one in whose folder it lies.

    Args:
        sweep: its name, as `name_of_sweep` tells it.
    """
    return sweep is not None and record.sweep != sweep


def name_of_sweep(sweep_dir: Path) -> str | None:
    """The name of the sweep that was last begun in a folder; None where nothing tells it."""
    try:
        name = read_json(sweep_dir / DEFINITION)["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) else None


def _check_name_and_times(path: Path, record: RunRecord) -> None:
    """What every reader relies on, and types cannot say."""
    if f"{path.parent.name}/{path.stem}" != record.run_id:
        raise RecordFormatError(f"{path}: the record is of run {record.run_id}. {REMEDY}")
    for name, text in (("started_at", record.started_at), ("finished_at", record.finished_at)):
        try:
            if not 1970 < datetime.fromisoformat(text).year < LAST_YEAR:
                raise ValueError(f"{text} is no year of a run")
        except ValueError as error:
            raise RecordFormatError(f"{path}: {name} is not a time ({error}). {REMEDY}") from error


def save_raw(
    path: Path, steps: StepTable, events: EventTable, evaluated: EvaluationTable | None = None
) -> None:
    """Write the tables as one compressed NumPy archive (no pickles).

    Args:
        evaluated: left out where it is empty.
    """
    arrays = _arrays("steps", steps) | _arrays("events", events)
    if evaluated is not None and len(evaluated):
        arrays |= _arrays(EVALUATION, evaluated)
    with path.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)


def _arrays(name: str, table: StepTable | EventTable | EvaluationTable) -> dict[str, Any]:
    return {f"{name}_{each.name}": getattr(table, each.name) for each in fields(table)}


def load_raw(path: Path) -> tuple[StepTable, EventTable]:
    """Read what `save_raw` wrote.

    Raises:
        RecordFormatError: the file is missing, damaged, or of another version.
    """
    try:
        # Opened here, because NumPy leaves a damaged file open.
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            steps = _columns(archive, "steps", StepTable)
            events = _columns(archive, "events", EventTable)
    except UNREADABLE as error:
        raise RecordFormatError(f"{path}: raw timings cannot be read ({error}).") from error
    try:
        return StepTable(**steps), EventTable(**events)
    except ValueError as error:
        raise RecordFormatError(f"{path}: raw timings cannot be used ({error}).") from error


def load_evaluation(path: Path) -> EvaluationTable:
    """Read what `save_raw` wrote of an evaluation; empty where there was none.

    Raises:
        RecordFormatError: the file is missing or damaged.
    """
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            if f"{EVALUATION}_worker.npy" not in archive.namelist():
                return EvaluationTable.empty()
            return EvaluationTable(**_columns(archive, EVALUATION, EvaluationTable))
    except UNREADABLE as error:
        raise RecordFormatError(f"{path}: raw timings cannot be read ({error}).") from error


def _columns(
    archive: zipfile.ZipFile, table: str, kind: type[StepTable | EventTable | EvaluationTable]
) -> dict[str, npt.NDArray[Any]]:
    names = [each.name for each in fields(kind)]
    return {name: _checked(name, _array(archive.read(f"{table}_{name}.npy"))) for name in names}


def _array(content: bytes) -> npt.NDArray[Any]:
    """What `np.save` wrote; objects are refused, and never unpickled."""
    begin = _NPY_BEGIN + int.from_bytes(content[_NPY_BEGIN - 2 : _NPY_BEGIN], "little")
    shape, by_columns, kind = _npy_header(content[:begin])
    values = np.frombuffer(content, kind, offset=begin)
    return values.reshape(shape, order="F" if by_columns else "C")


@lru_cache
def _npy_header(content: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """NumPy compiles headers, which takes longer than to read an array; many are the same."""
    stream = io.BytesIO(content)
    if (version := np.lib.format.read_magic(stream)) != (1, 0):
        raise ValueError(f"an array of format {version}")
    return np.lib.format.read_array_header_1_0(stream)


def _checked(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column of the type and shape that it is documented with."""
    kinds, shape = ("iu" if name in _WHOLE else "f"), _SHAPES.get(name, ())
    if array.dtype.kind not in kinds or array.ndim != 1 + len(shape):
        raise ValueError(f"{name} holds {array.dtype} in {array.ndim} dimensions")
    if any(want not in (None, size) for want, size in zip(shape, array.shape[1:], strict=True)):
        raise ValueError(f"{name} is of shape {array.shape}")
    return array


def iter_record_paths(sweep_dir: Path) -> Iterator[Path]:
    """Paths of all that should be records of a sweep, by experiment, repetition and attempt.

    Raises:
        UserError: a folder cannot be read.
    """
    points = [path for path in _entries(sweep_dir / RUNS) if path.name != REFUSED]
    paths = [path for point in points for path in _entries(point) if path.suffix == ".json"]
    yield from sorted(paths, key=_place_in_order)


def _entries(folder: Path) -> list[Path]:
    """What is in a folder; nothing where there is none."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(f"{folder} cannot be read ({error.strerror}).") from error


def _place_in_order(path: Path) -> tuple[str, tuple[int, ...], str]:
    """Other names than `<repetition>-<attempt>` come first."""
    parts = path.stem.split("-")
    numbers = tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()
    return path.parent.name, numbers, path.name
