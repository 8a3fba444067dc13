"""Two sides that meet, in one sentence, and how large they are; else which setting is fastest.

Where one side was measured alone, it tells which setting leads at the most workers, what that is
faster than, and what of a higher mean is not decided.  Decides how a decision is told: the faster
side first, or why nothing can be said of them.  Of the suite and plain TensorFlow it says the same
words whichever is faster.  Under weak scaling points with other numbers of workers have another
global batch, since every worker keeps its own: that is said wherever such points are compared.
What is decided comes from `stats.decisions` and `stats.findings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from analysis.data.cases import Case, Point
from analysis.stats.decision import Decision, Outcome
from analysis.stats.decisions import Decisions, Pair, all_pairs, decisions
from analysis.stats.findings import finding, leader, leading
from analysis.stats.pairs.contenders import Contenders
from analysis.stats.pairs.cost import costs_alike
from analysis.stats.pairs.sides import Basis, Meeting
from analysis.stats.points import mean_rate
from analysis.stats.statistics import estimate
from analysis.wording import (
    capital,
    count_text,
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
from ps_allreduce.point.workload import Scaling

SECONDS_PER_HOUR = 3600


def meeting_sentence(case: Case, meeting: Meeting) -> str:
    """One sentence about two sides, the faster one first."""
    decision = decisions(case).of(*meeting.bests)
    where = where_text(meeting, swapped=decision.outcome is Outcome.SLOWER)
    if decision.outcome not in (Outcome.FASTER, Outcome.SLOWER):
        return _nothing_faster(meeting, decision, where)
    first, second = (side.title for side in meeting.sides)
    if decision.outcome is Outcome.SLOWER:
        first, second, decision = second, first, decision.inverse()
    faster = f"{factor_text(decision)} faster"
    return capital(f"{first} is {faster} than {second} {where}, {launches_text(decision)}.")


def stock_sentence(case: Case, meeting: Meeting) -> str:
    """The suite against plain TensorFlow, where both train alike."""
    decision, (suite, stock) = decisions(case).of(*meeting.bests), meeting.sides
    training = "synchronous" if suite.best.setting.traits.synchronous else "asynchronous"
    against = f"Against plain TensorFlow, both {training}{_formats_text(*meeting.bests)}: "
    slower, plain = decision.outcome is Outcome.SLOWER, stock.best.setting.label
    where = where_text(meeting, swapped=slower)
    if decision.outcome not in (Outcome.FASTER, Outcome.SLOWER):
        doubted = decision.outcome is Outcome.NO_VERDICT
        seen = f" Measured: {suite.name} at {factor_text(decision)} of stock." if doubted else ""
        return against + _nothing_faster(meeting, decision, where) + seen
    told = decision.inverse() if slower else decision
    said = f"{suite.name} is {factor_text(told)} faster than {plain}"
    if slower:
        said = f"plain TensorFlow ({plain}) is {factor_text(told)} faster here than {suite.name}"
    return f"{against}{said} {where}, {launches_text(told)}."


def _formats_text(suite: Point, stock: Point) -> str:
    """Where the suite sends gradients in another format; plain TensorFlow has no such setting."""
    formats = [point.asked["gradients_on_wire"] for point in (suite, stock)]
    return "" if formats[0] == formats[1] else f", gradients in {formats[0]} and {formats[1]}"


def _nothing_faster(meeting: Meeting, decision: Decision, where: str) -> str:
    first, second = (side.name for side in meeting.sides)
    if decision.outcome is Outcome.TOO_FEW:
        return (
            f"No verdict: it takes three launches of each, and there are {decision.n_first} of "
            f"{first} and {decision.n_second} of {second} {where}."
        )
    if decision.outcome is Outcome.NO_VERDICT:
        return f"No verdict on {first} and {second} {where}: {decision.doubt}."
    measured = f"{where}, {launches_text(decision)} (ratio {factor_text(decision)})"
    if decision.outcome is Outcome.EQUAL:
        return f"{capital(decision.outcome)} are {first} and {second} {measured}."
    return f"Undecided between {first} and {second} {measured}: {missing_text(decision)}."


def scaling_lines_of(case: Case) -> list[str]:
    """What stands beside every speed-up and efficiency; nothing where all batches are equal."""
    batches = sorted({point.experiment.global_batch for point in case.points})
    if case.points[0].experiment.workload.scaling is Scaling.STRONG:
        return [f"Strong scaling: all workers share a batch of {batches[0]}."]
    if len(batches) == 1:
        return []
    return [
        f"Weak scaling: each worker keeps its batch, so the global batch is {batches[0]} to "
        f"{batches[-1]}."
    ]


def each_text(values: Sequence[int]) -> str:
    """`4 and 2`, or `2` where both are."""
    return " and ".join(map(str, dict.fromkeys(values)))


def where_text(meeting: Meeting, *, swapped: bool = False) -> str:
    """`at 2 workers (2 hosts, grpc)`: where both sides have as many, it is said once.

    Args:
        swapped: the second side comes first.
    """
    order = (1, 0) if swapped else (0, 1)
    points = [meeting.bests[number] for number in order]
    hosts = _hosts_text(*(point.common("num_hosts") for point in points))
    workers = each_text([point.num_workers for point in points])
    if len({point.num_workers for point in points}) == 1:
        return f"at {workers_text(points[0].num_workers)}{_brackets(hosts, meeting.transport)}"
    batches = each_text([point.experiment.global_batch for point in points])
    apart = f"{workers} workers, global batch {batches}"
    return f"on {hosts or 'their hosts'}{_brackets(apart, meeting.transport)}"


def _hosts_text(first: int | None, second: int | None) -> str:
    """Empty where the launches of a side differ."""
    if first is None or second is None:
        return ""
    return count_text(first, "host") if first == second else f"{first} and {second} hosts"


def _brackets(*parts: str | None) -> str:
    text = ", ".join(filter(None, parts))
    return f" ({text})" if text else ""


def basis_lines(main: Meeting) -> list[str]:
    """Why the headline is not at equal hosts; nothing where it is."""
    if main.basis is Basis.HOSTS:
        return []
    return [
        "That is at equal workers: the sides were not measured on equally many hosts, those of "
        "servers counted."
    ]


def basis_text(case: Case, meeting: Meeting) -> str:
    """`At equal cost (8.2 and 8 per hour)`, of another comparison than the main one."""
    if meeting.basis is not Basis.COST or case.prices is None:
        return f"At equal {meeting.basis}"
    first, second = (case.prices.per_hour(point.experiment) for point in meeting.bests)
    equal = "equal cost" if costs_alike(first, second) else "the nearest costs, which are not equal"
    names = [side.kind.name for side in meeting.sides]
    return f"At {equal} ({names[0]} {first:.4g} per hour, {names[1]} {second:.4g})"


def money_lines(case: Case, meeting: Meeting) -> list[str]:
    """What both sides train for a unit of money; nothing where no prices are stated."""
    prices = case.prices
    if prices is None:
        return []
    told = []
    for side in meeting.sides:
        cost = prices.per_hour(side.best.experiment)
        trained = mean_rate(side.best) * SECONDS_PER_HOUR / cost
        told.append(f"{side.kind.name} {trained:.4g} {case.unit} ({cost:.4g} per hour)")
    return [
        f"For a unit of money: {', '.join(told)}. A host costs {prices.host:g} per hour, one "
        f"named for servers {prices.ps_host:g}."
    ]


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
