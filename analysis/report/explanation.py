"""Why one setting is faster than another, in sentences and a table.

Decides the words: how many milliseconds of a step each part has, and what to change.  Which parts
there are and which comes first is decided in `stats.causes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import pandas as pd

from analysis.data.cases import Case, Point
from analysis.derive.fastest_step import left_out_links, slowest_links
from analysis.derive.network_causes import better_placement
from analysis.stats.causes import CausedPart, Explanation, explanations
from analysis.stats.comparisons import comparisons
from analysis.stats.decision import Outcome
from analysis.stats.explained_parts import MOST_STRETCH, Cause, lost_shares
from analysis.stats.findings import headline_row
from analysis.stats.setting_pairs import ladders
from analysis.stats.statistics import MIN_LAUNCHES, launches_to_tell
from analysis.wording import (
    NONE,
    capital,
    factor_text,
    links_text,
    number,
    rate_text,
    workers_text,
)
from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.point.placement import Policy

#: So many parts of a difference are told in a sentence.
MOST_PARTS = 3

#: Parts that are smaller than this share of the largest one are left out of a sentence.
WORTH_TELLING = 0.1

#: Parts that are told add up to no more than the difference, but for their digits.
ROUNDED = 0.01

#: A placement is worth advice if the hottest server's share falls to this share of it.
WORTH_MOVING = 0.98

#: A link is worth advice if the busiest one would save this share of the step without it.
WORTH_REPAIRING = 0.1

EXPLANATION_NOTE = (
    "Milliseconds of a mean step that the slower setting takes more (with a minus, less) than the "
    "faster one, with 95 % intervals over launches; the parts of a row add up to its difference. "
    "Only the ratio was tested, as in the comparisons: the intervals are plain estimates. The "
    "ratio is of geometric means of rates, so it may differ a little from that of the mean steps. "
    "Where the global batches differ, the slower setting's step is scaled to the same number of "
    "examples."
)


_SAVED = "what the busiest link would save if"
_STRETCHED = (
    f", up to {MOST_STRETCH:g} times that (no link is used perfectly), and no more than "
    "other parts leave"
)

#: What each part is.
MEANINGS: Mapping[Cause, str] = {
    Cause.COMPUTE: "how long the fastest worker computes, at most as long as alone",
    Cause.SLOWED: "how much longer the fastest worker computes than alone",
    Cause.INPUT: "how long the worker whose gradients come last waits for its batch",
    Cause.WORKER: "how much longer one worker always computes than the fastest one",
    Cause.IN_TURN: "how long workers wait for each other because now one, now another is slower",
    Cause.HOT_SERVER: f"{_SAVED} all servers held equally many bytes{_STRETCHED}",
    Cause.HOT_ROWS: f"{_SAVED} servers were asked for equally many rows{_STRETCHED}",
    Cause.EXCHANGE: "the rest of the exchange that no computation hides, and the update",
    Cause.SLOW_LINK: f"{_SAVED} all links were as fast as the fastest{_STRETCHED}",
    Cause.LOST: "how much longer steps take in which TCP sent packets again",
    Cause.DISPATCH: "from the end of a step until the next one begins on the worker",
    Cause.FOREIGN: "how much longer steps take because of other programs on the processors",
    Cause.FEWER_WORKERS: "how much longer fewer workers take for the same number of examples",
}


def meanings_table(case: Case) -> pd.DataFrame:
    """What the parts of a case's differences mean."""
    seen = [told for told in explanations(case) if not told.unseen]
    found = {part.cause for told in seen for part in told.difference.parts}
    rows = [{"part": cause, "is": text} for cause, text in MEANINGS.items() if cause in found]
    return pd.DataFrame(rows)


def explanation_sentence(case: Case, told: Explanation) -> str:
    """Where the difference comes from, and what to change."""
    if told.unseen:
        return f"{_ratio_text(told)} {_unseen_text(case, told)}"
    told_parts = _worth_telling(told.difference.causes)
    largest = told_parts[0]
    uncertain = f"What causes it is not certain: {_to_tell(told, largest)}."
    advice = advice_text(told, largest.cause) if largest.sure else uncertain
    parts = f"{_parts_text(told_parts)}{_less_text(told, told_parts)}"
    return f"{_ratio_text(told)} {_longer_text(told)}: {parts}. {advice}".rstrip()


def _to_tell(told: Explanation, part: CausedPart) -> str:
    """How many launches would tell whether a part is there; instead of advice."""
    made = min(len(told.faster.launches), len(told.slower.launches))
    wanted = launches_to_tell(part.seconds, made) if made >= MIN_LAUNCHES else MIN_LAUNCHES
    if wanted is None:
        return "it varies too much from launch to launch"
    return f"about {wanted} launches of each in all would tell"


def _ratio_text(told: Explanation) -> str:
    names = [point.setting.label for point in (told.faster, told.slower)]
    workers = [point.num_workers for point in (told.faster, told.slower)]
    where = f" at {workers_text(workers[0])}"
    if workers[0] != workers[1]:
        names = [f"{n} ({workers_text(count)})" for n, count in zip(names, workers, strict=True)]
        where = ""
    return f"{capital(names[0])} is {factor_text(told.row.decision)} faster than {names[1]}{where}."


def _longer_text(told: Explanation) -> str:
    slower, faster = (point.setting.label for point in (told.slower, told.faster))
    more = _ms_text(told.difference.step.mean)
    return f"A step of {slower} takes {more} more than one of {faster}"


def _worth_telling(parts: tuple[CausedPart, ...]) -> list[CausedPart]:
    least = WORTH_TELLING * parts[0].seconds.mean if parts else 0.0
    return [part for part in parts if part.seconds.mean >= least][:MOST_PARTS]


def _less_text(told: Explanation, parts: Sequence[CausedPart]) -> str:
    """What other parts take less, where those that are told are more than the difference."""
    less_s = sum(part.seconds.mean for part in parts) - told.difference.step.mean
    if less_s <= ROUNDED * told.difference.step.mean:
        return ""
    return f"; all other parts together take {_ms_text(less_s)} less"


def _parts_text(parts: Iterable[CausedPart]) -> str:
    return ", ".join(f"{_seconds_text(part)} {part.cause}" for part in parts)


def _ms_text(seconds: float) -> str:
    return f"{number(float(f'{seconds * 1e3:.3g}'))} ms"


def _interval_text(part: CausedPart) -> str:
    ends = (part.seconds.low, part.seconds.high)
    if None in ends:
        return ""
    return " [{}]".format(", ".join(number(float(f"{(e or 0.0) * 1e3:.3g}")) for e in ends))


def _unseen_text(case: Case, told: Explanation) -> str:
    names = " and ".join(point.setting.label for point in told.unseen)
    seen = f"Steps of {names} (plain TensorFlow) are not divided into parts"
    if len(told.unseen) > 1:
        return f"{seen}."
    if not any(ladders(case)):
        return f"{seen}. make ladder measures one by one what the suite does differently."
    found = ", ".join(_helpful_rungs(case)) or "none"
    return f"{seen}. Changes of the ladder that are decided to bring something: {found}."


def _helpful_rungs(case: Case) -> list[str]:
    """The rungs that are decided to be faster than the one before."""
    table = comparisons(case)
    return [
        rung.name
        for ladder in ladders(case)
        for (_, before), (rung, point) in pairwise(ladder.rungs)
        if (row := table.between(point, before)) and row.outcome is Outcome.FASTER
    ]


def advice_text(told: Explanation, cause: Cause) -> str:
    """What to change about a cause at the slower setting."""
    if cause is Cause.EXCHANGE:
        return _exchange_advice(told.slower, told.faster)
    return _ADVICE[cause](told.slower) if cause in _ADVICE else ""


def _placement_advice(point: Point) -> str:
    used = next((r.placement for r in point.counting if r.placement is not None), None)
    if used is None:
        return ""
    loads = used.bytes_per_server
    hottest, better = loads.index(max(loads)), better_placement(used)
    if better.share > WORTH_MOVING * max(loads) / sum(loads):
        return ""
    return (
        f"With {len(loads)} servers, ps:{hottest} holds {max(loads) / sum(loads):.0%} of the bytes "
        f"under {point.asked['placement']}. {better.policy} would give "
        f"{'each' if better.share * len(loads) < 1.02 else 'the hottest'} {better.share:.0%}."
    )


def _rows_advice(point: Point) -> str:
    asked = next((r.rows_asked for r in point.counting if r.rows_asked is not None), None)
    if asked is None or asked.hot_shard is None:
        return ""
    hottest = asked.per_server.index(max(asked.per_server))
    rules = [rule for rule in (RowRule.MODULO, RowRule.HASH) if rule != point.asked["table_rows"]]
    return (
        f"ps:{hottest} is asked for {asked.hot_shard:.3g} times the mean rows of a server. Place "
        f"rows by {' or '.join(rules)} (--table-rows)."
    )


def _link_advice(point: Point) -> str:
    slow = slowest_links(point.counting)
    fast = max(link.bits_per_s for record in point.counting for link in record.links)
    ends = dict.fromkeys(rate_text(rate) for rate in (min(slow.values()), max(slow.values())))
    carried = f"carried {' to '.join(ends)}, the fastest one {rate_text(fast)}"
    named = links_text([*slow])
    if len(slow) == 1:
        return f"The link from {named} {carried}: repair it, or leave out one of its hosts."
    common = set.intersection(*({*link} for link in slow))
    or_else = f", or leave out {common.pop()}" if len(common) == 1 else ""
    return f"The links {named} {carried}: repair them{or_else}."


def _worker_advice(point: Point) -> str:
    slowest = point.common("slowest_worker")
    if slowest is None:
        return "It is not the same one in all launches, so look for what disturbs one of them."
    return (
        f"worker:{slowest} computes longest in every launch: leave its host out, or give it less "
        "to do."
    )


def _lost_advice(point: Point) -> str:
    cut = "" if point.asked["placement"] == Policy.PARTITIONED else "--placement partitioned, "
    fewer = f"less be sent to one server at once ({cut}more servers, --in-flight)"
    if not point.setting.traits.uses_servers:
        fewer = "less be under way at once (--in-flight)"
    larger = "Give switch ports more memory" + (
        " (--port-buffer)" if point.experiment.network is not None else ""
    )
    other = "all-reduce" if point.setting.traits.uses_servers else "parameter servers"
    return f"{larger}, let {fewer}, or try {other}."


def _exchange_advice(point: Point, faster: Point) -> str:
    if left_out_links(point.counting):
        return ""  # the page says beside it which link to repair
    if lost_shares(point.launches).any():
        return _lost_advice(point)
    saved = point.launches["slow_link_s"] / point.launches["mean_step_s"]
    if saved.astype(float).mean() > WORTH_REPAIRING:
        return _link_advice(point)
    few, more = point.experiment.num_ps, faster.experiment.num_ps
    if 0 < few < more:
        return f"Use more servers: {more} instead of {few}."
    busy = (point.launches["network_s"] / point.launches["mean_step_s"]).dropna()
    if busy.empty and (point.launches["num_hosts"] > 1).any():
        return ""  # the page says beside it that links were not measured
    if busy.empty:
        return "Its tasks share one host, so no network limits it: use fewer and larger messages."
    if busy.mean() < 0.5:
        return (
            "Bytes need less than half the step on the busiest link: try larger messages and "
            "more of them under way (make tuning-sweep)."
        )
    return (
        "Bytes need half the step or more on the busiest link: send fewer (--gradients bfloat16)."
    )


_ADVICE: Mapping[Cause, Callable[[Point], str]] = {
    Cause.HOT_SERVER: _placement_advice,
    Cause.HOT_ROWS: _rows_advice,
    Cause.SLOW_LINK: _link_advice,
    Cause.LOST: _lost_advice,
    Cause.WORKER: _worker_advice,
    Cause.IN_TURN: lambda _: (
        "Now one worker takes longer, now another: look for what disturbs one after the other."
    ),
    Cause.INPUT: lambda _: (
        "Workers wait for input: read ahead, decode less, or use more threads for it."
    ),
    Cause.SLOWED: lambda _: (
        "Workers compute longer than one alone: give tasks cores of their own, or fewer threads."
    ),
    Cause.DISPATCH: lambda _: (
        "Steps begin late: let a worker make several steps for each call (--steps-per-dispatch)."
    ),
    Cause.FOREIGN: lambda _: "Other programs use the processors: end them, or use other hosts.",
    Cause.FEWER_WORKERS: lambda _: (
        "Servers have hosts that could compute: put them beside workers (--layout colocated), or "
        "use fewer of them."
    ),
}


def explanation_table(case: Case) -> pd.DataFrame:
    """A row for each pair that differs and is divided: milliseconds by cause, as text."""
    rows = [_row(told) for told in explanations(case) if not told.unseen]
    return pd.DataFrame(rows).fillna(NONE)


def _row(told: Explanation) -> dict[str, str]:
    row = {
        "faster": told.faster.setting.label,
        "slower": told.slower.setting.label,
        "ratio": factor_text(told.row.decision),
        "difference ms": _ms_text(told.difference.step.mean).removesuffix(" ms"),
    }
    for part in told.difference.parts:
        mean = round(part.seconds.mean * 1e3, 2) + 0.0  # not -0.00
        row[f"{part.cause} ms"] = f"{mean:.2f}{_interval_text(part)}"
    return row


def main_reason(case: Case) -> str:
    """Why what the headline compares came out so; empty where it shows no difference."""
    row = headline_row(case)
    if row is None:
        return ""
    found = (told for told in explanations(case) if {*told.row.points} == {*row.points})
    return next((_reason(told) for told in found), "")


def _reason(told: Explanation) -> str:
    """The parts of the difference, or the largest where its interval lies above all others.

    With what to change about the first, if that is certain.
    """
    if told.unseen or not told.difference.causes:
        return ""
    longer = _longer_text(told)
    parts = _worth_telling(told.difference.causes)
    part, *others = parts
    if not part.sure:
        mean = f"the largest mean is that of {part.cause}, {_seconds_text(part)}"
        mean += _less_text(told, [part])
        return f"{longer}. What causes it is not certain: {mean}; {_to_tell(told, part)}."
    apart = all(part.exceeds(each) for each in others)
    found = f"; {_largest_text(part)}" if apart else f": {_parts_text(parts)}"
    less = _less_text(told, [part] if apart else parts)
    return f"{longer}{found}{less}. {advice_text(told, part.cause)}".rstrip()


def _largest_text(part: CausedPart) -> str:
    return f"the largest part is {part.cause}, {_seconds_text(part)}"


def _seconds_text(part: CausedPart) -> str:
    return f"{_ms_text(part.seconds.mean)}{_interval_text(part)}"
