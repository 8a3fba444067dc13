"""`summary.csv`: the table of runs as a file."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.data.columns import COLUMNS, TRUTH
from ps_allreduce.record.files import write_atomically

#: Moments in UTC, as ISO 8601 writes them.
_MOMENT = "%Y-%m-%dT%H:%M:%S.%f+00:00"


def write_summary(path: Path, table: pd.DataFrame) -> None:
    """Write the rows of all runs, all of them or nothing.

    Raises:
        UserError: no permission, or no space left.
    """
    write_atomically(path, render_summary(table).encode())


def render_summary(table: pd.DataFrame) -> str:
    """The file's text: a header, then one line per attempt; an empty cell is unknown."""
    truths = [name for name, kind in COLUMNS.items() if kind == TRUTH]
    shown = table.assign(**{name: table[name].astype("string").str.lower() for name in truths})
    return shown.to_csv(index=False, date_format=_MOMENT, lineterminator="\n")
