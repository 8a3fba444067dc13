"""How large the sides of a comparison are, in words: workers, hosts, batches and money.

Decides what is said of the size at which two sides are compared, and of what is equal there.
Points with other numbers of workers have another global batch, since every worker keeps its own:
that is said wherever such points are compared.
"""

from __future__ import annotations

from analysis.data.cases import Case, Point
from analysis.stats.cost import costs_alike
from analysis.stats.sides import Basis, Meeting
from analysis.stats.statistics import estimate
from analysis.wording import workers_text

SECONDS_PER_HOUR = 3600


def weak_scaling_lines(case: Case) -> list[str]:
    """What stands beside every speed-up and efficiency; nothing where no batch grows."""
    batches = sorted({point.experiment.global_batch for point in case.points})
    if len(batches) == 1:
        return []
    return [
        "Speed-up and efficiency are of weak scaling: each worker keeps its batch, so the global "
        f"batch grows from {batches[0]} to {batches[-1]}."
    ]


def where_text(meeting: Meeting, *, swapped: bool = False) -> str:
    """`on 4 hosts each (4 and 2 workers, global batch 32 and 16) over grpc`.

    Args:
        swapped: the second side comes first.
    """
    first, second = meeting.bests
    size = _size_text(second, first) if swapped else _size_text(first, second)
    return " over ".join(filter(None, [size, meeting.transport]))


def _size_text(first: Point, second: Point) -> str:
    one, other = first.common("num_hosts"), second.common("num_hosts")
    hosts = "" if one is None or other is None else f"on {one} and {other} hosts"
    if hosts and one == other:
        hosts = "on one host" if one == 1 else f"on {one} hosts each"
    workers = f"{first.num_workers} and {second.num_workers} workers"
    if first.num_workers == second.num_workers:
        at = f"at {workers_text(first.num_workers)}"
        return f"{at} ({hosts})" if one != other and hosts else f"{at} {hosts}".rstrip()
    batches = f"{first.experiment.global_batch} and {second.experiment.global_batch}"
    apart = f"{workers}, global batch {batches}"
    return f"{hosts} ({apart})" if hosts else f"at {apart}"


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
        trained = estimate(side.best.rates).mean * SECONDS_PER_HOUR / cost
        told.append(f"{side.kind.name} {trained:.4g} {case.unit} ({cost:.4g} per hour)")
    return [
        f"For a unit of money: {', '.join(told)}. A host costs {prices.host:g} per hour, one "
        f"without workers {prices.ps_host:g}."
    ]
