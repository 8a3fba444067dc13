"""The raw timings of a run as a table: one row for each step of every worker.

Decides the columns (`docs/results_format.md`); what the spans mean is defined in
`ps_allreduce.record.steps`.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from ps_allreduce.record.files import RunFiles, load_raw
from ps_allreduce.record.steps import (
    Phase,
    StepTable,
    backward_spans,
    forward_spans,
    input_spans,
    measurement_window,
)

#: Runs whose timings are kept in memory.
_CACHED = 64


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
