"""The file of a run's raw timings: a NumPy archive without pickles.

Decides its format; what the tables hold is decided in `steps`.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import fields
from pathlib import Path

import numpy as np

from ps_allreduce.errors import RecordFormatError
from ps_allreduce.record.steps import EventTable, StepTable, Window, measurement_window

#: What a damaged archive raises, depending on which of its bytes is wrong.
UNREADABLE: tuple[type[Exception], ...]
UNREADABLE = (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError)
UNREADABLE += (zipfile.BadZipFile, zlib.error)


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
    try:
        # Opened here, because NumPy leaves a damaged file open.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            steps = StepTable(**{f.name: archive[f"steps_{f.name}"] for f in fields(StepTable)})
            events = EventTable(**{f.name: archive[f"events_{f.name}"] for f in fields(EventTable)})
    except UNREADABLE as error:
        raise RecordFormatError(f"{path}: raw timings cannot be read ({error}).") from error
    return steps, events


def load_window(path: Path) -> tuple[Window, int]:
    """The measured window and the number of steps of all workers, without reading the rest.

    Raises:
        RecordFormatError: the file is missing, damaged, or of another version.
        ValueError: there is no window in which all workers were measured.
    """
    names = ("worker", "step", "phase", "end")
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            worker, step, phase, end = (archive[f"steps_{name}"] for name in names)
    except UNREADABLE as error:
        raise RecordFormatError(f"{path}: raw timings cannot be read ({error}).") from error
    steps = StepTable(
        worker=worker,
        step=step,
        phase=phase,
        loss=end,
        start=end,
        pulled=end,
        end=end,
        batches=np.zeros((len(end), 0, 3)),
        releases=np.zeros((len(end), 0)),
    )
    return measurement_window(steps), len(end)
