"""Which setting is fastest, where parameter servers or all-reduce were measured alone.

Decides how the setting that leads at the most workers is told, what it is faster than, and what of
a higher mean that is not decided; and what links and processors did meanwhile.  Which settings
contend is decided in `pairs.contenders`, which of them leads in `findings`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from analysis.data.cases import Case, Point
from analysis.stats.decision import Outcome
from analysis.stats.decisions import Decisions, Pair, all_pairs, decisions
from analysis.stats.findings import finding, leader, leading
from analysis.stats.pairs.contenders import Contenders
from analysis.stats.points import mean_rate
from analysis.stats.statistics import estimate
from analysis.wording import (
    factor_text,
    launches_text,
    missing_text,
    number,
    outcome_text,
    range_text,
    rate_text,
    with_interval,
    workers_text,
)


def fastest_sentence(case: Case, alone: Contenders) -> str:
    """The setting that leads, what it is faster than, and a higher mean that decides nothing."""
    decided = decisions(case)
    best, pair = leader(decided, alone.points), leading(decided, alone)
    default = ", the default," * (alone.default_of(best) is best)
    training = "synchronous" if best.setting.traits.synchronous else "asynchronous"
    opening = (
        f"{best.setting.label}{default} {_leads(decided, best, alone)} {len(alone.points)} "
        f"{training} settings at {workers_text(best.num_workers)}, {_rate_text(case, best)}"
    )
    if pair is None:
        return f"{opening}. Nothing is decided."
    told = _against(pair, is_default=pair.second is alone.default_of(best))
    return " ".join([f"{opening}: {told}.", *_higher_lines(case, best, alone)])


def _leads(decided: Decisions, best: Point, alone: Contenders) -> str:
    if all(decided.beats(best, point) for point in alone.points if point is not best):
        return "is the fastest of"
    if best is max(alone.points, key=mean_rate):
        return "has the highest rate of"
    return "leads, as far as it is decided,"


def _rate_text(case: Case, point: Point) -> str:
    return f"{with_interval(number, *estimate(point.rates).ends)} {case.unit}/s"


def _against(pair: Pair, *, is_default: bool) -> str:
    label, decision = pair.second.setting.label, pair.decision
    named = f"{label}, the default" if is_default else label
    launches, middle = launches_text(decision), f"{named}," if is_default else label
    if decision.outcome is Outcome.TOO_FEW:
        return f"whether it is faster than {middle} takes three launches of each"
    if decision.outcome is Outcome.NO_VERDICT:
        return f"no verdict whether it is faster than {named}: {decision.doubt}"
    factor = factor_text(decision)
    if decision.outcome is Outcome.EQUAL:
        return f"{decision.outcome} to {named} ({factor}, {launches})"
    if decision.outcome is Outcome.UNDECIDED:
        return (
            f"whether it is faster than {middle} is undecided ({factor}, {launches}): "
            f"{missing_text(decision)}"
        )
    return f"{factor} faster than {named}, {launches}"


def _higher_lines(case: Case, best: Point, alone: Contenders) -> Iterator[str]:
    """The setting with the highest rate, where it is not the one that leads."""
    decided, highest = decisions(case), max(alone.points, key=mean_rate)
    if highest is best:
        return
    told = "no decision"
    if decided.compares(highest, best):
        decision = decided.of(highest, best)
        told = f"{outcome_text(decision)} ({factor_text(decision)})"
    label, leads = highest.setting.label, best.setting.label
    yield f"The mean rate of {label} is higher, {_rate_text(case, highest)}; over {leads}: {told}."


def finding_sentence(pair: Pair) -> str:
    """A decided difference of two settings, the faster one first."""
    first, second = pair.first.setting.label, pair.second.setting.label
    where = workers_text(pair.first.num_workers)
    return (
        f"{first} is {factor_text(pair.decision)} faster than {second} at {where}, "
        f"{launches_text(pair.decision)}."
    )


def farthest_apart(case: Case) -> str:
    """Where two sides do not meet, what is decided of their settings, or that nothing is."""
    decided = decisions(case)
    points = [*dict.fromkeys(p for pair in all_pairs(case) for p in (pair.first, pair.second))]
    if not points:
        return ""
    found = finding(decided, points)
    if found is None:
        first, second = max(points, key=mean_rate), min(points, key=mean_rate)
        found, decision = decided.pair(first, second), decided.of(first, second)
        said = (
            f"At {workers_text(first.num_workers)} {first.setting.label} and "
            f"{second.setting.label} are farthest apart: {decision.outcome}, "
            f"{factor_text(decision)}."
        )
    else:
        said = finding_sentence(found)
    return f"{said} {network_sentence(case, (found.first, found.second))}".rstrip()


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
    return f"Busiest link in use {range_text(shares)} (slowest: {slowest}){processors}."
