"""The rows of tables that steps look up, where only these are exchanged."""

from __future__ import annotations

import pandas as pd

from analysis.data.cases import Case, Point
from analysis.wording import NONE, number, ratio

LOOKED_UP_NOTE = (
    "Rows of tables in a step, means over the batches that workers repeat: look-ups of a worker, "
    "different rows among them, and different rows of all workers together. Hottest over mean: "
    "rows that are asked of one server; 1.00 is balanced."
)


def looked_up_rows(case: Case) -> pd.DataFrame:
    """A row for each point whose launches counted rows."""
    return pd.DataFrame([row for point in case.points for row in _row(point)])


def _row(point: Point) -> list[dict[str, str]]:
    asked = next((r.rows_asked for r in point.counting if r.rows_asked is not None), None)
    if asked is None:
        return []
    hot = asked.hot_shard
    return [
        {
            "setting": point.setting.label,
            "workers": str(point.num_workers),
            "servers": str(point.experiment.num_ps or NONE),
            "look-ups": number(asked.asked),
            "different rows": number(asked.unique),
            "of all workers": number(asked.union),
            "hottest over mean": NONE if hot is None else ratio(hot),
        }
    ]
