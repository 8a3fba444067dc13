"""The parts of a point's mean step, which table and figure show alike.

Decides how compute is divided.  The parts of the steps of one launch are decided in
`derive.step_parts`, causes in `explained_parts`.
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np
import pandas as pd

from analysis.data.cases import Case, Point
from analysis.stats.causes import alone_s


class StepPart(StrEnum):
    """What a worker does with the time of a step."""

    INPUT = "input"
    ALONE = "compute alone"
    SLOWED = "compute slowed by shared cores"
    WAITING = "waiting for others"
    EXCHANGE = "exchange and update"
    UPDATE = "update"
    DISPATCH = "dispatch"
    UNSEEN = "not seen"


_USED = [
    *("mean_step_s", "input_wait_s", "compute_s", "stated_compute_s", "waiting_s", "exchange_s"),
    "dispatch_s",
]


def mean_parts(case: Case, point: Point) -> pd.Series:
    """Seconds by part, means over the measured launches; they add up to the mean step.

    A part that is not known is not a number.  Compute alone is what an emulated accelerator was
    asked for, else what `single` took; where neither is known, all of compute is there.  What is
    slowed comes from the means: single launches vary to both sides, and would only add to it.
    """
    means = point.measured[_USED].astype(float).mean()
    alone = means["stated_compute_s"]
    if math.isnan(alone):
        alone = alone_s(case, point) or math.nan
    slowed = float(np.maximum(means["compute_s"] - alone, 0.0))
    sent = point.setting.traits.communicates()
    unseen = means["mean_step_s"] - np.nan_to_num(means["dispatch_s"])
    parts = {
        StepPart.INPUT: means["input_wait_s"],
        StepPart.ALONE: means["compute_s"] - (0.0 if math.isnan(slowed) else slowed),
        StepPart.SLOWED: slowed,
        StepPart.WAITING: means["waiting_s"],
        StepPart.EXCHANGE: means["exchange_s"] if sent else math.nan,
        StepPart.UPDATE: math.nan if sent else means["exchange_s"],
        StepPart.DISPATCH: means["dispatch_s"],
        StepPart.UNSEEN: unseen if math.isnan(means["compute_s"]) else math.nan,
    }
    return pd.Series(parts, dtype=float)
