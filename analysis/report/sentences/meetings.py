"""Two sides that meet, in one sentence, and how large they are: workers, hosts, batches, money.

Decides how a decision is told: the faster side first, or why nothing can be said of them.  Of the
suite and plain TensorFlow it says the same words whichever is faster.  Under weak scaling points
with other numbers of workers have another global batch, since every worker keeps its own: that is
said wherever such points are compared.  What is decided comes from `stats.decisions`.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.data.cases import Case, Point
from analysis.stats.decision import Decision, Outcome
from analysis.stats.decisions import decisions
from analysis.stats.pairs.cost import costs_alike
from analysis.stats.pairs.sides import Basis, Meeting
from analysis.stats.points import mean_rate
from analysis.wording import (
    capital,
    count_text,
    factor_text,
    launches_text,
    missing_text,
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
