"""Which runs were made in turn, one right after the other: only these are pairs.

Decides what a turn is.  A sweep launches every point once per repetition, and the launches of one
repetition share what drifts from one to the next.  A launch that was made again after all others,
or after a pause, keeps the number of its repetition but not its neighbours.
"""

from __future__ import annotations

import pandas as pd

from ps_allreduce.record.records import Status

#: A sweep makes its runs without a pause; one that was interrupted goes on after one.
PAUSE_S = 60.0


#: Columns that tell when runs were made.
_MOMENTS = ["job_id", "repetition", "status", "started_at", "finished_at", "total_s"]


def turns_of(table: pd.DataFrame) -> pd.Series:
    """For every run the number of its turn: equal for runs of one job and repetition, in a row.

    Args:
        table: all attempts of a block, whatever became of them.
    """
    runs = table[_MOMENTS].assign(job_id=table["job_id"].fillna(""))
    runs = runs.sort_values(["job_id", "started_at"], kind="stable")
    before = runs[["job_id", "repetition"]].shift()
    pause = runs["started_at"] - _ends(runs).shift()
    begins = (runs["job_id"] != before["job_id"]) | (runs["repetition"] != before["repetition"])
    begins |= pause > pd.Timedelta(seconds=PAUSE_S)
    return begins.fillna(True).astype(bool).cumsum().sub(1).reindex(table.index)


def _ends(runs: pd.DataFrame) -> pd.Series:
    """When runs were over; one that was interrupted may have been recorded much later."""
    lasted = pd.to_timedelta(runs["total_s"].astype(float).fillna(0.0), unit="s")
    interrupted = runs["status"] == Status.INTERRUPTED
    return runs["finished_at"].where(~interrupted, runs["started_at"] + lasted)
