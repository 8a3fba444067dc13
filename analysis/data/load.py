"""Find the sweeps below a folder and read their records into one table, all of them, strictly.

Decides that a record or raw timings which cannot be read are a `Damage`, named and counted, never
passed over, and what stays beside the table: the records without their samples, which are what
makes them large.  The raw timings of one run become a table of steps; what their spans mean is
defined in `ps_allreduce.record.step_table`, all columns in `docs/results_format.md`.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.data.columns import make_table
from analysis.data.rows import Row, row_of
from analysis.wording import count_text
from ps_allreduce.errors import RecordFormatError, UserError
from ps_allreduce.record.choices import EXCHANGES, ExchangeChoice, chosen_batches, chosen_rates
from ps_allreduce.record.files import (
    DEFINITION,
    EARLY_STOPPING,
    RunFiles,
    is_strange,
    iter_record_paths,
    load_raw,
    read_json,
    read_run,
)
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.sense import ROUNDING
from ps_allreduce.record.step_table import (
    EventKind,
    EventTable,
    Metrics,
    Phase,
    StepTable,
    backward_spans,
    forward_spans,
    input_spans,
    measurement_window,
)
from ps_allreduce.serialization import from_json

#: Runs whose raw timings are kept in memory.
_CACHED = 64

_WRITTEN_ANEW = "Launches that are missing are not known; the sweep's command writes the file anew."


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDefinition:
    """What `sweep.json` says; nothing of a sweep that has no such file.

    Attributes:
        planned: the runs, in their order; behind them those that it does not name and that were
            begun, where their records cannot be read.
        may_stop_early: the sweep was to end once its main comparison is known well enough.
        exchanges: how gradients travel, as far as `auto` chose it.
        link_rates: of emulated links, bits per second by model, as far as a first look chose them.
        batches: of each worker by model, as far as a first look chose them.
    """

    name: str | None = None
    planned: tuple[str, ...] = ()
    may_stop_early: bool = False
    exchanges: tuple[ExchangeChoice, ...] = ()
    link_rates: Mapping[str, float] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SweepFiles:
    """Everything that was found of one sweep.

    Attributes:
        table: a row per attempt, of every block; the index is the path of the record.
        records: by the index of the table, without samples.
    """

    folder: Path
    table: pd.DataFrame
    records: Mapping[str, RunRecord]
    damaged: tuple[Damage, ...]
    definition: SweepDefinition

    @property
    def unread(self) -> str:
        """A sentence if files could not be read; else empty."""
        files = count_text(len(self.damaged), "file")
        told = f"{files} of {self.folder} could not be read, which may change what is said here: "
        return f"{told}make report names them." if self.damaged else ""


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
        UserError: there is no such folder, or none with records, or one cannot be read.
    """
    if not os.path.isdir(folder):  # a name that is too long is none either
        raise UserError(f"{folder}: no such folder of results; name the RESULTS of a sweep.")
    found = sorted(path.parent for path in _folders(folder) if path.name == "runs")
    if not found:
        raise UserError(f"{folder} holds no sweep: no folder named runs below it.")
    return found


def _folders(top: Path) -> Iterator[Path]:
    """All folders below one, in whatever depth; those behind links are not looked into."""
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            entries = [entry for entry in os.scandir(folder) if _is_folder(entry)]
        except OSError as error:
            raise UserError(f"{folder} cannot be read ({error.strerror}).") from error
        yield from (Path(entry.path) for entry in entries)
        waiting += [Path(entry.path) for entry in entries if not entry.is_symlink()]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """A loop of links is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def read_sweep(folder: Path) -> SweepFiles:
    """Read all records of one sweep.

    Raises:
        UserError: there is no record, or none that can be read.
    """
    rows: dict[str, Row] = {}
    records: dict[str, RunRecord] = {}
    damaged: list[Damage] = []
    definition = _definition(folder, damaged)
    planned = dict.fromkeys(definition.planned)
    asked = {key.partition("/")[0] for key in planned}
    for path in iter_record_paths(folder):
        place, record = path.relative_to(folder).as_posix(), read_run(path)
        if isinstance(record, RecordFormatError) and path.parent.name in asked:
            planned[f"{path.parent.name}/{path.stem.partition('-')[0]}"] = None
        if isinstance(record, RunRecord) and is_strange(record, definition.name):
            record = _strange(record, definition.name)
        if isinstance(record, RecordFormatError):
            damaged.append(_damage(folder, path, record))
            continue
        steps = _steps(raw := RunFiles(path).raw, record)
        if isinstance(steps, RecordFormatError):  # the record has figures of its own
            damaged.append(_damage(folder, raw, steps))
        rows[str(path)] = row_of(record, place, steps)
        records[str(path)] = replace(record, samples=())
    if not rows:
        raise UserError(_nothing_to_read(folder, damaged))
    return SweepFiles(
        folder=folder,
        table=make_table(rows.values(), rows),
        records=records,
        damaged=tuple(damaged),
        definition=replace(definition, planned=tuple(planned)),
    )


def _strange(record: RunRecord, sweep: str | None) -> RecordFormatError:
    return RecordFormatError(
        f"a record of the sweep {record.sweep}, and this one is {sweep}: it is left out. Move it "
        "to where it belongs."
    )


def _damage(folder: Path, path: Path, error: RecordFormatError) -> Damage:
    """The reason does not name the file once more."""
    reason = str(error).removeprefix(str(path)).lstrip(".: ")  # a key in it follows a point
    return Damage(path=path.relative_to(folder).as_posix(), reason=reason)


def _steps(raw: Path, record: RunRecord) -> StepTable | RecordFormatError | None:
    """Those of a run, or why they are of no use; None where there are no raw timings."""
    try:
        if not raw.exists():
            return None
        steps, events = load_raw(raw)
        _refuse_another_runs(steps, record.metrics)
        _refuse_incomplete(steps, events, record)
        return steps
    except RecordFormatError as error:
        return error


def _refuse_another_runs(steps: StepTable, metrics: Metrics | None) -> None:
    """See that a record's figures are about these steps."""
    if metrics is None or not len(steps):
        return
    try:
        window_s = measurement_window(steps).length_s
    except ValueError as error:
        raise RecordFormatError(f"raw timings without a window ({error}).") from error
    if not math.isclose(window_s, metrics.window_s, rel_tol=ROUNDING):
        raise RecordFormatError(
            f"raw timings of another run: their window has {window_s:g} s, the record's "
            f"{metrics.window_s:g} s."
        )


def _refuse_incomplete(steps: StepTable, events: EventTable, record: RunRecord) -> None:
    """See that the events are all moments of messages that there are, in steps that were traced."""
    if not len(events.time):
        return
    traced = steps.select(steps.phase == Phase.EVENTS)
    made = {*zip(traced.worker.tolist(), traced.step.tolist(), strict=True)}
    columns = (events.worker, events.step, events.tensor, events.kind)
    rows = {*zip(*(column.tolist() for column in columns), strict=True)}
    numbers = range(len(record.messages) or int(events.tensor.max()) + 1)
    wanted = {(*step, number, kind) for step in made for number in numbers for kind in EventKind}
    if rows != wanted or len(rows) != len(events.time):
        raise RecordFormatError(
            f"raw timings with {len(events.time)} events, not one for each of {len(EventKind)} "
            f"moments of {len(numbers)} messages in {len(made)} traced steps."
        )


def _definition(folder: Path, damaged: list[Damage]) -> SweepDefinition:
    path = folder / DEFINITION
    try:
        content = from_json(dict[str, Any], read_json(path))
        choices = from_json(dict[str, Any], content.get("choices", {}), "choices")
        return SweepDefinition(
            name=from_json(str, content["name"], "name") if "name" in content else None,
            planned=from_json(tuple[str, ...], content.get("order"), "order"),
            may_stop_early=EARLY_STOPPING in choices,
            exchanges=from_json(tuple[ExchangeChoice, ...], choices.get(EXCHANGES, []), EXCHANGES),
            link_rates=chosen_rates(choices),
            batches=chosen_batches(choices),
        )
    except FileNotFoundError:
        return SweepDefinition()
    except (OSError, ValueError, UserError) as error:
        reason = f"not a readable sweep ({str(error).rstrip('.')}). {_WRITTEN_ANEW}"
        damaged.append(Damage(path=path.name, reason=reason))
        return SweepDefinition()


def _nothing_to_read(folder: Path, damaged: Sequence[Damage]) -> str:
    if not damaged:
        return f"{folder} holds no records yet: run a sweep first."
    more = f" (the first of {len(damaged)} files)" if len(damaged) > 1 else ""
    first = f"{damaged[0].path}: {damaged[0].reason}"
    return f"{folder} holds no record that can be read: {first}{more}"


def load_steps(run: str | Path) -> pd.DataFrame:
    """All steps of a run, warm-ups included, by worker and step; kept for the next call.

    Args:
        run: the path of its record: an entry of the index of `analysis.load`.

    Raises:
        RecordFormatError: the raw timings are missing or damaged.
    """
    raw = RunFiles(Path(run)).raw
    changed = raw.stat().st_mtime_ns if raw.exists() else 0
    return _read(raw, changed).copy()


@lru_cache(maxsize=_CACHED)
def _read(path: Path, changed: int) -> pd.DataFrame:
    steps, _ = load_raw(path)
    table = _table(steps).sort_values(["worker", "step"], ignore_index=True)
    # A step begins where the worker's previous one ended: gaps between steps belong to the step.
    before = table.groupby("worker")["end"].shift()
    table["step_s"] = table["end"] - before
    spans = table["forward_s"] + table["backward_s"] + table["input_wait_s"]
    table["communication_s"] = table["step_s"] - spans
    table["in_window"] = (table["phase"] == "measured") & _inside(steps, before, table["end"])
    return table


def _table(steps: StepTable) -> pd.DataFrame:
    phases = pd.Index([phase.name.lower() for phase in Phase])
    return pd.DataFrame(
        {
            "worker": steps.worker,
            "step": steps.step,
            "phase": pd.Categorical.from_codes(steps.phase, phases, ordered=True),
            "loss": steps.loss,
            "start": steps.start,
            "pulled": steps.pulled,
            "end": steps.end,
            "forward_s": forward_spans(steps),
            "backward_s": backward_spans(steps),
            "input_wait_s": input_spans(steps),
        }
    )


def _inside(steps: StepTable, before: pd.Series, end: pd.Series) -> pd.Series:
    """Whole steps inside the window in which all workers were measured; none without one."""
    try:
        window = measurement_window(steps)
    except ValueError:
        return pd.Series(np.zeros(len(end), dtype=bool))
    return (before >= window.start) & (end <= window.end)
