"""Two sides that meet, in one sentence, and how large they are; else which setting is fastest.

Where one side was measured alone, it tells which setting leads at the most workers, what that is
faster than, and what of a higher mean is not decided.  Decides how a decision is told: the faster
side first, or why nothing can be said of them.  Of the suite and plain TensorFlow it says the same
words whichever is faster.  Under weak scaling points with other numbers of workers have another
global batch, since every worker keeps its own: that is said wherever such points are compared.
A sentence is made of a row of the table of comparisons (`stats.comparisons`), and never of two
rates: what leads is decided in `stats.findings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

import pandas as pd

from analysis.data.cases import Case, Point
from analysis.data.metric import RATE
from analysis.derive.fastest_step import left_out_links, use_of
from analysis.stats.comparisons import Comparison, Comparisons, comparisons
from analysis.stats.decision import UNSURE, Decision, Outcome
from analysis.stats.findings import (
    all_equal,
    finding,
    highest,
    is_fastest,
    leader,
    leading,
    runner_up,
    undecided_with,
)
from analysis.stats.rivals import Kind, contenders, costs_alike, default_text, passed_over
from analysis.stats.statistics import estimate
from analysis.wording import (
    capital,
    count_text,
    factor_text,
    launches_text,
    links_text,
    missing_text,
    number,
    outcome_text,
    range_text,
    rate_text,
    rates_text,
    transports_label,
    with_interval,
    workers_text,
)
from ps_allreduce.point.layout import num_ps_hosts
from ps_allreduce.point.sides import HYBRID, Basis
from ps_allreduce.point.wire import WireType
from ps_allreduce.point.workload import Scaling
from ps_allreduce.record.records import BUSY_LIMIT

SECONDS_PER_HOUR = 3600

#: So many settings of which nothing is decided are named.
MOST_NAMED = 5


def meeting_sentence(row: Comparison) -> str:
    """One sentence about two sides; a ratio is of the higher mean, as in numbers and tables."""
    told = as_told(row)
    if told.outcome is not Outcome.FASTER:
        return _nothing_faster(told)
    faster = f"{factor_text(told.decision)} faster"
    return capital(
        f"{told.first.title} is {faster} than {told.second.title} {where_text(told)}, "
        f"{_launches_text(told)}."
    )


def as_told(row: Comparison) -> Comparison:
    """In the order in which a sentence names the settings."""
    return row if row.outcome in UNSURE else row.better_first()


def _launches_text(row: Comparison) -> str:
    """How many there are, and the level of the interval where that is unusual."""
    return f"{launches_text(row.decision)}{f', {row.level} interval' * bool(row.level)}"


def stock_sentence(row: Comparison) -> str:
    """The suite against plain TensorFlow, where both train alike."""
    training, told = training_text(row.first.best), as_told(row)
    apart = transports_label(*(point.transport for point in told.points))
    against = f"Against plain TensorFlow, both {training}{', ' * bool(apart)}{apart}:"
    said = [against, _stock_text(told), _best_text(told), beyond_text(row), _unchosen_text(row)]
    return " ".join(filter(None, said))


def _unchosen_text(row: Comparison) -> str:
    """Which settings a comparison passes over, but for those that the headline tells of."""
    main = comparisons(row.case).main
    known = [side.points for side in main.sides] if main else [*contenders(row.case)]
    told = {point for own in known for point in own}
    new = [side.points for side in row.sides if told.isdisjoint(side.points)]
    return passed_over_line(row.case, *new, basis=row.basis)


def _best_text(row: Comparison) -> str:
    """Of what the interval is, where it is not that of the named settings alone."""
    kinds = [side.kind for side in row.sides if side.kind and not side.is_decided]
    if not kinds or row.decision.low is None:
        return ""
    best = " and ".join(f"the best {kind.setting}" for kind in kinds)
    return f"The interval holds for {best}, whichever {'it is' if len(kinds) == 1 else 'they are'}."


def _stock_text(row: Comparison) -> str:
    first, second = (side.best.setting.label for side in row.sides)
    if row.outcome is Outcome.NO_VERDICT:
        measured = f"Measured: {factor_text(row.decision)}, {first} over {second}."
        return f"{_nothing_faster(row)} {measured}"
    if row.outcome is not Outcome.FASTER:
        return _nothing_faster(row)
    factor, launches = factor_text(row.decision), launches_text(row.decision)
    return f"{first} is {factor} faster than {second} {where_text(row)}, {launches}."


def beyond_text(row: Comparison) -> str:
    """At what larger sizes nothing can be said, but for what the headline's sides tell of."""
    main = comparisons(row.case).main
    known = main.beyond if main and main is not row else ()
    more = [size for size in row.beyond if size not in known]
    if not more:
        return ""
    larger = [point for point in row.case.points if point.room in more]
    # Hosts of servers alone have room for workers that nobody started.
    by_room = row.basis is Basis.HOSTS and any(p.room != p.num_workers for p in larger)
    at = "on hosts with room for" if by_room else "at"
    # At these sizes something else may be decided.
    whom = {Kind.MAIN: "on the two sides ", Kind.HYBRID: f"on {HYBRID.name} "}.get(row.kind, "")
    return no_verdict_text(f"{whom}{at} {each_text(more)}")


def no_verdict_text(where: str) -> str:
    """Of sides or settings that were tried somewhere."""
    return f"No verdict {where} workers: not all that is compared has three launches there."


def _nothing_faster(row: Comparison) -> str:
    first, second = (side.name for side in row.sides)
    decision, where = row.decision, where_text(row)
    if why := _why_no_verdict(decision):
        return f"No verdict on {first} and {second} {where}, since {why}."
    measured = f"{where}, {_launches_text(row)} (ratio {factor_text(decision)})"
    if decision.outcome is Outcome.EQUAL:
        return capital(f"{first} and {second} are {decision.outcome} {measured}.")
    # What would decide at fewer workers than were asked for is no advice.
    missing = "" if row.beyond else f": {missing_text(decision)}"
    return f"Undecided between {first} and {second} {measured}{missing}."


def _why_no_verdict(decision: Decision) -> str | None:
    """Too few launches, or a doubt; None where there is a verdict."""
    if decision.outcome is Outcome.TOO_FEW:
        return f"each needs three launches that end well, and {_made_text(decision)}"
    return decision.doubt if decision.outcome is Outcome.NO_VERDICT else None


def _made_text(decision: Decision) -> str:
    """`each has 1`, or `they have 2 and 1`."""
    made = (decision.n_first, decision.n_second)
    return f"each has {made[0]}" if made[0] == made[1] else f"they have {made[0]} and {made[1]}"


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
    """`4, 2 and 1`, or `2` where all are."""
    *others, last = map(str, dict.fromkeys(values))
    return f"{', '.join(others)} and {last}" if others else last


def where_text(row: Comparison) -> str:
    """`at 2 workers (2 hosts, tcp)`: where both sides have as many, it is said once."""
    points = row.points
    hosts = _hosts_text(*(point.common("num_hosts") for point in points))
    workers = each_text([point.num_workers for point in points])
    transport = _transport_text(row)
    if len({point.num_workers for point in points}) == 1:
        return f"at {workers_text(points[0].num_workers)}{_brackets(hosts, transport)}"
    batches = each_text([point.experiment.global_batch for point in points])
    apart = f"{workers} workers, global batch {batches}"
    return f"on {hosts or 'their hosts'}{_brackets(apart, transport)}"


def _transport_text(row: Comparison) -> str | None:
    """What carries the gradients of both sides: the best of a side is so on this one alone.

    `tcp`, or `tcp in float32` where another setting of the case sends them in another format.
    """
    carried = [side.kind.transport if side.kind else None for side in row.sides]
    known = [_format_text(row.case, each) for each in carried if each is not None]
    return " and ".join(dict.fromkeys(known)) if len(known) == len(carried) else None


def _format_text(case: Case, transport: str) -> str:
    """`tcp`, or `tcp in float32` where another setting of the case has another format."""
    others = [point.transport or "" for point in case.points]
    shares = any(other.startswith(f"{transport} in ") for other in others)
    return f"{transport} in {WireType.FLOAT32}" if shares else transport


def _hosts_text(first: int | None, second: int | None) -> str:
    """Empty where the launches of a side differ."""
    if first is None or second is None:
        return ""
    return count_text(first, "host") if first == second else f"{first} and {second} hosts"


def _brackets(*parts: str | None) -> str:
    text = ", ".join(filter(None, parts))
    return f" ({text})" if text else ""


def basis_lines(main: Comparison) -> list[str]:
    """Why the headline is not at equal hosts; nothing where it is."""
    if main.basis is Basis.HOSTS:
        return []
    return [
        "The comparison is at equal workers, since the sides were not measured on equally many "
        "hosts, those of servers counted."
    ]


def basis_text(row: Comparison) -> str:
    """`At equal cost (8.2 and 8 per hour)`, of another comparison than the main one."""
    prices = row.case.prices
    if row.basis is not Basis.COST or prices is None:
        return f"At equal {row.basis}"
    first, second = (prices.per_hour(point.experiment) for point in row.points)
    equal = "equal cost" if costs_alike(first, second) else "the nearest costs, which are not equal"
    names = [side.name for side in row.sides]
    return f"At {equal} ({names[0]} {first:.4g} per hour; {names[1]} {second:.4g})"


def share_text(point: Point, parts: float) -> str:
    """`172.5 [169, 176.1]`: the rate of a point over a number, with its interval."""
    ends = estimate(point.rates).ends
    return with_interval(number, *(None if end is None else end / parts for end in ends))


def money_lines(row: Comparison) -> list[str]:
    """What both sides train for a unit of money; nothing where no prices are stated."""
    prices = row.case.prices
    if prices is None:
        return []
    told = []
    for side in row.sides:
        cost = prices.per_hour(side.best.experiment)
        trained = share_text(side.best, cost / SECONDS_PER_HOUR)
        told.append(f"{side.name} {trained} {row.case.unit} ({cost:.4g} per hour)")
    named = any(num_ps_hosts(point.experiment) for point in row.points)
    of_servers = f", one named for servers {prices.ps_host:g}" * named
    costs = f"A host costs {prices.host:g} per hour{of_servers}."
    return [f"For a unit of money: {'; '.join(told)}. {costs}"]


def fastest_sentence(case: Case, contending: Sequence[Point]) -> str:
    """The setting that leads, what it is faster than, and a higher mean that decides nothing."""
    table = comparisons(case)
    best, row = leader(table, contending), leading(table, contending)
    named = f"{best.setting.label}{default_text(best, contending)}"
    measured, among = _measured_text(case, best), _among_text(case, contending)
    if row is None:
        return (
            f"It is not known which of {among} is fastest: nothing is decided. "
            f"{capital(named)} made {measured}."
        )
    told, left_open = _against(row, contending), contending
    if is_fastest(table, best, contending):
        opening = f"Of {among}, {named} is the fastest with {measured}"
        told += _next_text(table, row, contending)
    else:
        left_open = [p for p in contending if not any(table.beats(q, p) for q in contending)]
        if len(left_open) == 1:  # something that is slower than another one may be as fast as it
            left_open = [point for point in contending if not table.beats(best, point)]
        among = _among_text(case, left_open)
        more = f"{_named_text(left_open)}{_slower_text(len(contending) - len(left_open))}"
        opening = f"It is not decided which of {among} is fastest{more}. "
        if all_equal(table, left_open):
            opening = f"{capital(among)} are {Outcome.EQUAL}{more}. "
        opening += f"{capital(named)} made {measured}"
    left = undecided_with(table, best, left_open) if finding(table, contending) else []
    if left:
        is_all = len(left) == len(left_open) - 1
        others = "the others" if is_all and _named_text(left_open) else _left_text(best, left)
        told += f"; whether it is faster than {others} is not decided"
    return " ".join([f"{opening}: {told}.", *_higher_lines(case, best, contending)])


def _among_text(case: Case, points: Sequence[Point]) -> str:
    """`3 synchronous settings at 4 workers`, the suite's where others were measured, too."""
    whose = "the suite's " * any(p.setting.traits.as_shipped for p in case.points)
    where = workers_text(points[0].num_workers)
    carried = _carried_text(case, points[0])
    return f"{whose}{len(points)} {training_text(points[0])} settings at {where}{carried}"


def _named_text(points: Sequence[Point]) -> str:
    """` (a; b; c)` of a few; of two, both are told of anyway."""
    names = _brackets("; ".join(point.setting.label for point in points))
    return names * (2 < len(points) <= MOST_NAMED)


def _slower_text(slower: int) -> str:
    """How many settings are decided to be slower than another one; empty if none is."""
    verb = "is" if slower == 1 else "are"
    return f"; {count_text(slower, 'other')} {verb} slower than another one" * bool(slower)


def training_text(point: Point) -> str:
    """How its workers train."""
    return "synchronous" if point.setting.traits.synchronous else "asynchronous"


def _next_text(table: Comparisons, row: Comparison, contending: Sequence[Point]) -> str:
    """What the fastest setting is least faster than, where that is not what is told already."""
    best, rival = row.points
    nearest = runner_up(table, best, contending)
    label = nearest.second.best.setting.label
    known = nearest.second.best is rival
    return "" if known else f", and {factor_text(nearest.decision)} faster than {label}, the next"


def passed_over_line(case: Case, *chosen: Sequence[Point], basis: Basis | None = None) -> str:
    """Settings that no verdict is of, because they have too few launches; empty if there are none.

    Args:
        chosen: the settings that the verdict chooses from, by side.
        basis: of the sides.
    """
    few = [point for own in chosen for point in passed_over(case, own, basis)]
    if not few:
        return ""
    names = "; ".join(f"{point.setting.label} ({len(point.rates)})" for point in few)
    named = names if len(few) <= MOST_NAMED else f"{len(few)} settings (the table has them)"
    return f"Passed over, with too few launches: {named}."


def _carried_text(case: Case, one: Point) -> str:
    """What carries the gradients of contenders; empty where all that train alike share it."""
    carried = {
        point.transport
        for point in case.points
        if point.setting.traits.synchronous is one.setting.traits.synchronous
        and point.setting.traits.as_shipped is one.setting.traits.as_shipped
        and len(point.rates)
    }
    transport = one.transport
    if transport is None or carried <= {transport, None}:
        return ""
    return _brackets(_format_text(case, transport))


def _left_text(best: Point, left: Sequence[Point]) -> str:
    """Settings by name, but many synchronous ones, of which a table has all pairs."""
    names = "; ".join(point.setting.label for point in left)
    if len(left) == 1:
        return names
    many = best.setting.traits.synchronous and len(left) > MOST_NAMED
    return f"{len(left)} others ({'the table has them' if many else names})"


def _measured_text(case: Case, point: Point) -> str:
    value = with_interval(number, *estimate(RATE.values(point)).ends)
    return f"{value} {RATE.unit_of(case)}"


def _against(row: Comparison, contending: Sequence[Point]) -> str:
    rival, decision = row.second.best, row.decision
    named = f"{rival.setting.label}{default_text(rival, contending)}"
    launches = launches_text(decision)
    if why := _why_no_verdict(decision):
        return f"no verdict on whether it is faster than {named}, since {why}"
    factor = factor_text(decision)
    if decision.outcome is Outcome.EQUAL:
        return f"it is {decision.outcome} to {named}, {factor}, {launches}"
    if decision.outcome is Outcome.UNDECIDED:
        hardest = ", the hardest to decide," * (len(contending) > 2)
        return (
            f"whether it is faster than {named}{hardest} is undecided ({factor}, {launches}), and "
            f"{missing_text(decision)}"
        )
    return f"it is {factor} faster than {named}, {launches}"


def _higher_lines(case: Case, best: Point, contending: Sequence[Point]) -> Iterator[str]:
    """The setting with the highest mean, where it is not the one that leads."""
    top = highest(contending)
    if top is best:
        return
    row = comparisons(case).between(top, best)
    told = "not decided"
    if row is not None:
        told = f"{factor_text(row.decision)}, {outcome_text(row.decision)}"
    yield (
        f"The mean {RATE.name} of {top.setting.label} is {_measured_text(case, top)}; "
        f"over {best.setting.label} it is {told}."
    )


def finding_sentence(row: Comparison) -> str:
    """A difference of two settings that is decided, the faster one first, or that none is."""
    first, second = (point.setting.label for point in row.points)
    decision, where = row.decision, f"at {workers_text(row.first.best.num_workers)}"
    if row.outcome is not Outcome.FASTER:
        told = f"{factor_text(decision)}, {outcome_text(decision)}"
        return f"{capital(where)}, {first} over {second} is {told}."
    return capital(
        f"{first} is {factor_text(decision)} faster than {second} {where}, "
        f"{launches_text(decision)}."
    )


#: Columns of the table of runs that tell of links and processors.
_OF_LINKS = ("network_s", "step_s", "num_hosts", "busy")


def network_sentence(row: Comparison, *, is_alone: bool = True) -> str:
    """What links and processors did under both settings; empty where a circumstance counts more.

    Args:
        row: the comparison.
        is_alone: no other one is told of beside it, so the settings need no names.
    """
    if row.outcome is Outcome.NO_VERDICT:
        return ""
    launches = pd.concat([point.launches[[*_OF_LINKS]] for point in row.points])
    shares = _link_shares(launches)
    if shares.empty:
        if (launches["num_hosts"] > 1).any():
            return "Whether links were the limit is not known."
        return "Both settings ran on one host: this says nothing about a network."
    slow, busy = _slow_link_lines(row.points), launches["busy"].dropna()
    measured = "at the rates measured before the runs; " * bool((shares > 1).any())
    records = [record for point in row.points for record in point.counting if record.links]
    least = rates_text(min(link.bits_per_s for link in record.links) for record in records)
    slowest = f" ({measured}slowest: {least})" * (not slow)
    processors = f", processors {range_text(busy, BUSY_LIMIT)}" if len(busy) else ""
    of = _known_text(row.points, is_alone)
    used = f"Busiest {'other ' * bool(slow)}link in use {range_text(shares)}"
    return " ".join([*slow, f"{used}{of}{slowest}{processors}."])


def _link_shares(launches: pd.DataFrame) -> pd.Series:
    """Of each launch, as far as known, the share of a step in which the busiest link is in use."""
    return (launches["network_s"] / launches["step_s"]).dropna()


def _known_text(points: Sequence[Point], is_alone: bool) -> str:
    """Of which of the settings that is known; empty where of all, and no others are told of."""
    unknown = [point for point in points if _link_shares(point.launches).empty]
    if not unknown and is_alone:
        return ""
    known = " and ".join(point.setting.label for point in points if point not in unknown)
    hidden = [each.setting.label for each in unknown if (each.launches["num_hosts"] > 1).any()]
    return f" with {known}{''.join(f', not known of {label}' for label in hidden)}"


def _slow_link_lines(points: Sequence[Point]) -> list[str]:
    """Slow links of hosts that are not: what hosts carry elsewhere is taken as their rate."""
    records = [record for point in points for record in point.counting]
    links = left_out_links(records)
    if not links:
        return []
    rates = [e.bits_per_s for r in records for e in r.links if (e.source, e.target) in links]
    shares = pd.Series([share for r in records for share in use_of(r, links)], dtype=float)
    used = f", in use {range_text(shares)} at the rate before each run" if len(shares) else ""
    networks = [point.experiment.network for point in points]
    repair = f"repair {'them' if len(links) > 1 else 'it'}"
    if any(network and network.uplink_bits_per_s is not None for network in networks):
        # All hosts of a rack share its uplink, of which these links tell no more than their own.
        used, repair = "", "as asked between racks, whose hosts share it"
    elif (shares > 1).any():
        repair = "measure again, as the counted bytes would take longer than a step"
    return [
        f"{links_text(links)} carried only {rate_text(median(rates))} (median{used}), less than "
        f"other links of the same hosts: {repair}."
    ]
