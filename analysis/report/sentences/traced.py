"""What is said about traced steps: how much longer they took, and where their traces are.

Decides the words; tracing changes what it looks at, so its price stands beside every trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from analysis.data.cases import Point
from analysis.wording import count_text, number, ratio

#: Opens the traces.
VIEWER = "ui.perfetto.dev"


def traced_ratios(point: Point) -> pd.Series:
    """Of each launch that knows both, the median traced step over the median measured one."""
    return (point.known("traced_step_s") / point.known("step_time_p50_s")).dropna()


def traced_table(traces: Mapping[Point, Path]) -> pd.DataFrame:
    """A row for each trace, as text: what tracing cost, over all launches of its point."""
    return pd.DataFrame([_row(point, path) for point, path in traces.items()])


def _row(point: Point, path: Path) -> dict[str, str]:
    ratios = traced_ratios(point)
    return {
        "setting": point.setting.label,
        "workers": str(point.num_workers),
        "measured step, ms": number(point.known("step_time_p50_s").mean() * 1e3),
        "traced step, ms": number(point.known("traced_step_s").mean() * 1e3),
        "traced over measured": _spread_text(ratios),
        "n": str(len(ratios)),
        "trace": path.name,
    }


def _spread_text(ratios: pd.Series) -> str:
    """The median, and the least and the largest in brackets."""
    if ratios.empty:
        return ratio(None)
    spread = f" [{ratio(ratios.min())}, {ratio(ratios.max())}]" if len(ratios) > 1 else ""
    return ratio(ratios.median()) + spread


def traced_sentence(traces: Mapping[Point, Path]) -> str:
    """One line for the screen; empty where no step was traced."""
    if not traces:
        return ""
    ratios = pd.concat([traced_ratios(point) for point in traces])
    cost = (
        f" Traced steps took {ratio(ratios.min())} to {ratio(ratios.max())} times as long as "
        f"measured ones ({len(ratios)} launch{'es' * (len(ratios) != 1)})."
        if len(ratios)
        else ""
    )
    return f"{count_text(len(traces), 'trace')} to open at {VIEWER}: timeline-*.json.gz.{cost}"
