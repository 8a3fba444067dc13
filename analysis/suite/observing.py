"""Whether steps are observed well: what recording them costs, and whether their clocks are right.

Decides the targets of both.  The figures of single runs come from `derive.costs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from analysis.stats.statistics import estimate
from analysis.suite.targets import target_text, up_to
from analysis.wording import count_text

#: Why targets may not be met, as far as it is known.
_WHY_RECORDING = "two traces of one step differ by 2 %, docs/performance.md"
_WHY_CLOCKS = "starting and fetching count as well, which others on the machine make longer"

#: What the clock from outside may show, as a share of what steps note themselves.
_CLOCKS = (0.99, 1.01)


def render_recording(good: pd.DataFrame, content: dict[str, Any]) -> Iterator[str]:
    """What recording costs each strategy, over launches: they differ more than their stretches."""
    by_strategy = good.groupby("strategy", observed=True)["recording_ratio"]
    costs = {str(strategy): estimate(ratios) for strategy, ratios in by_strategy}
    content["recording_overhead"] = max(cost.mean for cost in costs.values())
    content["recording_overhead_by_strategy"] = {
        name: dict(zip(("ratio", "low", "high"), cost.ends, strict=True))
        for name, cost in costs.items()
    }
    yield "recording: step time with recording over without"
    for name, cost in costs.items():
        ratio, *ends = ("unknown" if end is None else f"{end:.4f}" for end in cost.ends)
        told = target_text("at most 1.01", (cost.low, cost.high), up_to(1.01), _WHY_RECORDING)
        launches = f"{by_strategy.count()[name]} launches"
        yield f"  {name:<12} {ratio} [{', '.join(ends)}], {launches} {told}"


def render_clocks(good: pd.DataFrame, content: dict[str, Any]) -> Iterator[str]:
    """Steps timed from outside against their own timestamps, the mean of each strategy."""
    by_strategy = good.groupby("strategy", observed=True)["clock_ratio"]
    ratios = {str(strategy): each.dropna() for strategy, each in by_strategy}
    told = {name: each for name, each in ratios.items() if len(each)}
    if not told:
        return
    content["clocks"] = {name: float(each.mean()) for name, each in told.items()}
    yield "clocks: time of all steps by the driving task over that by their own timestamps"
    for name, each in told.items():
        target = target_text("0.99 to 1.01", (each.min(), each.max()), _CLOCKS, _WHY_CLOCKS)
        yield f"  {name:<12} {each.mean():.4f}, {count_text(len(each), 'run')} {target}"
