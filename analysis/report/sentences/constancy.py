"""Sentences on whether things stayed what they were: the machine, and the steps of every run.

Decides how both are told; what drift is, and what a run's label is, is decided in `stats.drift` and
`derive.steadiness`.
"""

from __future__ import annotations

import pandas as pd

from analysis.data.cases import Case
from analysis.derive.steadiness import Steadiness
from analysis.stats.drift import DRIFT_LIMIT, STAGES, drift_of
from analysis.wording import count_text, workers_text

#: Said of launches that may have come out like this without any drift.
_NO_DRIFT_SHOWN = "; its launches spread as much without a drift, so it takes no verdict away"


def drift_lines(case: Case) -> list[str]:
    """That the sentinel was not as fast at the end of the sweep as at its start."""
    drift = drift_of(case)
    if drift is None or not drift.too_far:
        return []
    stages = zip(drift.rates, STAGES, strict=True)
    told = ", ".join(f"{rate:.4g} at the {stage}" for rate, stage in stages)
    return [
        f"Drift above {DRIFT_LIMIT:.0%}: {drift.sentinel.setting.label} "
        f"({workers_text(drift.sentinel.num_workers)}) made {told} of the sweep ({case.unit}/s, "
        f"{drift.share:.0%} apart){'' if drift.shown else _NO_DRIFT_SHOWN}."
    ]


def steadiness_lines(launches: pd.DataFrame) -> list[str]:
    """How many launches have which label; empty where none has one."""
    told = steadiness_text(launches)
    if not told:
        return []
    return [f"Step times inside the windows of {count_text(len(launches), 'run')}: {told}."]


def humps_lines(launches: pd.DataFrame) -> list[str]:
    """How many launches have step times with two humps, and one of them."""
    two = launches.dropna(subset="second_hump_s")
    if two.empty:
        return []
    humps = sorted(two.iloc[0][["hump_s", "second_hump_s"]].astype(float) * 1e3)
    near = " and ".join(f"{ms:.3g} ms" for ms in humps)
    return [
        f"Step times have two humps in {len(two)} of {count_text(len(launches), 'run')} (in the "
        f"first of them near {near}): few steps are as long as their mean."
    ]


def steadiness_text(launches: pd.DataFrame) -> str:
    """`2 flat, 1 warming up`; empty where no launch has a label."""
    counts = launches["steadiness"].value_counts()
    told = [f"{counts[label]} {label}" for label in Steadiness if label in counts]
    unknown = int(launches["steadiness"].isna().sum())
    more = [f"{unknown} with too few steps to tell"] if unknown else []
    return ", ".join(told + more) if told else ""
