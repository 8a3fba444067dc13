"""Which setting is fastest, where parameter servers or all-reduce were measured alone.

Decides how the fastest setting at the most workers is told, and by how much it beats the default;
and what links and processors did meanwhile.  Which settings contend is decided in
`pairs.contenders`, what may be said of two of them in `decisions`.
"""

from __future__ import annotations

import pandas as pd

from analysis.data.cases import Case, Point
from analysis.stats.decision import Decision, Outcome
from analysis.stats.decisions import all_pairs, decisions
from analysis.stats.pairs.contenders import Contenders
from analysis.stats.statistics import estimate
from analysis.wording import (
    factor_text,
    launches_text,
    missing_text,
    number,
    range_text,
    rate_text,
    with_interval,
    workers_text,
)


def fastest_sentence(case: Case, alone: Contenders) -> str:
    """The fastest of some settings, and whether it is faster than the default."""
    best, default = alone.best, alone.default_of(alone.best)
    rate = with_interval(number, *estimate(best.rates).ends)
    training = "synchronous" if best.setting.traits.synchronous else "asynchronous"
    opening = (
        f"{best.setting.label} is the fastest of {len(alone.points)} {training} settings at "
        f"{workers_text(best.num_workers)}, {rate} {case.unit}/s"
    )
    if best is default:
        return f"{opening}. It is the default: no other setting is faster."
    return f"{opening}: {_against_default(default, decisions(case).of(best, default))}."


def _against_default(default: Point, decision: Decision) -> str:
    label, launches = default.setting.label, launches_text(decision)
    if decision.outcome is Outcome.TOO_FEW:
        return f"whether it is faster than {label}, the default, takes three launches of each"
    if decision.outcome is Outcome.NO_VERDICT:
        return f"no verdict whether it is faster than {label}, the default: {decision.doubt}"
    factor = factor_text(decision)
    if decision.outcome is Outcome.EQUAL:
        return f"{decision.outcome} to {label}, the default ({factor}, {launches})"
    if decision.outcome is Outcome.UNDECIDED:
        return (
            f"whether it is faster than {label}, the default, is undecided ({factor}, {launches}): "
            f"{missing_text(decision)}"
        )
    return f"{factor} faster than {label}, the default, {launches}"


def farthest_apart(case: Case) -> str:
    """Where two sides do not meet, the fastest synchronous setting against the slowest."""
    compared = {point for pair in all_pairs(case) for point in (pair.first, pair.second)}
    if not compared:
        return ""
    points = sorted(compared, key=lambda point: -estimate(point.rates).mean)
    fastest, slowest = points[0], points[-1]
    decision, where = decisions(case).of(fastest, slowest), workers_text(fastest.num_workers)
    first, second = fastest.setting.label, slowest.setting.label
    said = (
        f"{first} is {factor_text(decision)} faster than {second}, the slowest"
        if decision.outcome is Outcome.FASTER
        else f"{first} and {second} are farthest apart: {decision.outcome}, {factor_text(decision)}"
    )
    return f"At {where} {said}. {network_sentence(case, (fastest, slowest))}".rstrip()


def network_sentence(case: Case, points: tuple[Point, Point]) -> str:
    """What links and processors did under both settings; empty where a circumstance counts more."""
    several = points[0] is not points[1]
    if several and decisions(case).of(*points).outcome is Outcome.NO_VERDICT:
        return ""
    launches = pd.concat([point.launches for point in dict.fromkeys(points)])
    # A link that was measured a little too low would be busy for more than the step.
    shares = (launches["network_s"] / launches["step_s"]).dropna().clip(upper=1.0)
    if shares.empty:
        if (launches["num_hosts"] > 1).any():
            return "Links were not measured."
        return "All tasks ran on one host: this says nothing about a network."
    slowest, busy = rate_text(launches["link_bits_per_s"].median()), launches["busy"].dropna()
    processors = f", processors {range_text(busy)}" if len(busy) else ""
    return f"Links (slowest: {slowest}) were busy {range_text(shares)}{processors}."
