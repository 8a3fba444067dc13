"""How large the sides of a comparison are, in words: workers, hosts, batches and money.

Decides what is said of the size at which two sides are compared, and of what is equal there.
Under weak scaling points with other numbers of workers have another global batch, since every
worker keeps its own: that is said wherever such points are compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.data.cases import Case
from analysis.stats.pairs.cost import costs_alike
from analysis.stats.pairs.sides import Basis, Meeting
from analysis.stats.points import mean_rate
from analysis.wording import count_text, workers_text
from ps_allreduce.point.workload import Scaling

SECONDS_PER_HOUR = 3600


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
