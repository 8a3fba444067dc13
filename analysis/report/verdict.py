"""The sentences that a report begins with.

Decides what is said: synchronous parameter servers against all-reduce on equal hosts and the same
transport first, with the interval and the number of launches; beside it a hybrid, where that was
measured; then equal workers and equal cost; then the suite against plain TensorFlow; then what the
figures are about.  Of one side that was measured alone it says which setting is fastest.
Asynchronous training does not compute the same thing, and another transport is another network:
each gets a sentence of its own that says so.  How two sides are told is decided in `meetings`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from analysis.data.cases import Case, Point
from analysis.report.circumstances import (
    attempts_lines,
    circumstances,
    doubts_of_numbers,
    drift_lines,
    undrifted_lines,
)
from analysis.report.explanation import main_reason
from analysis.report.meetings import (
    as_told,
    basis_lines,
    basis_text,
    beyond_text,
    each_text,
    fastest_sentence,
    finding_sentence,
    meeting_sentence,
    money_lines,
    network_sentence,
    no_verdict_text,
    passed_over_line,
    share_text,
    stock_sentence,
    training_text,
)
from analysis.report.what_was_run import notes_line, sparse_line
from analysis.report.where_time_goes import humps_lines, trend_lines
from analysis.stats.comparisons import Comparison, Comparisons, comparisons
from analysis.stats.decision import LEAVING_LEVEL, UNSURE, Outcome
from analysis.stats.findings import farthest_apart, headline_row, plain_first, told_points
from analysis.stats.rivals import Kind, Side, contenders, failed_beyond, rivals_of
from analysis.stats.setting_pairs import Ladder, ladders
from analysis.wording import (
    capital,
    count_text,
    factor_text,
    ratio_text,
    transports_label,
    workers_text,
)
from ps_allreduce.point.sides import ALLREDUCE, PS_SYNC

_ASYNCHRONOUS = (
    "Asynchronous training is not the same training: workers may apply gradients of older weights, "
    "so {unit}/s says nothing about how fast they learn. "
)

_AS_SHIPPED = (
    "TensorFlow's own two sides do not train alike: its parameter servers are asynchronous, its "
    "all-reduce is synchronous. "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is said about one case.

    Attributes:
        headline: where plain TensorFlow is decided to be faster, that; then the main comparison; of
            one side alone, which setting leads; or why there is no comparison; settings that were
            passed over; what sparse gradients cost; and what is not done as the user's own model
            asks for.
        otherwise: that there is no verdict at more workers; the same sides at equal workers and at
            equal cost, where that is another comparison; of one side alone, the fastest
            asynchronous setting.
        stock: the suite against plain TensorFlow, where both train alike and the headline does
            not begin with it.
        reason: where the difference of the main comparison comes from, and what to change; empty
            where no difference is shown.
        network: that a single worker is as fast as both sides; what it has to do with networks;
            and where two sides do not meet which settings are farthest apart.  Empty where nothing
            was compared.
        doubts: about numbers of the table, which stand on the screen, too.
        warnings: what hosts and compute the figures are of, and all doubts about them.
        details: further sentences, in order.
    """

    headline: str
    otherwise: tuple[str, ...]
    stock: tuple[str, ...]
    reason: str
    network: str
    doubts: tuple[str, ...]
    warnings: tuple[str, ...]
    details: tuple[str, ...]


def verdict(case: Case) -> Verdict:
    """All sentences about a case."""
    table, row = comparisons(case), headline_row(case)
    main = table.main
    details = [
        *(_share_lines(main) if main else ()),
        *humps_lines(case),
        *undrifted_lines(case),
        *(_interval_lines(main) if main else ()),
        *map(meeting_sentence, table.of(Kind.ALIKE)),
        *_transports_apart(table),
        *_asynchronous(case, table),
        *(_AS_SHIPPED + meeting_sentence(row) for row in table.of(Kind.AS_SHIPPED)),
    ]
    first = plain_first(table)
    opening, network = _opening(case, main, is_alone=not (first or table.of(Kind.HYBRID)))
    told = [*map(stock_sentence, first), opening, sparse_line(case), notes_line(case)]
    headline = " ".join(filter(None, told))
    drift = [
        line
        for line in drift_lines(case, row)
        if line.rstrip(".").casefold() not in headline.casefold()
    ]
    trend = trend_lines(told_points(case)) if row and row.outcome not in UNSURE else []
    doubts = (*doubts_of_numbers(case), *drift, *trend)
    warnings = (*circumstances(case), *doubts, *attempts_lines(case.attempts))
    otherwise = tuple(filter(None, _otherwise_lines(case, main)))
    if main:
        network = " ".join(filter(None, [_alone_sentence(table, main), network]))
    return Verdict(
        headline=headline,
        otherwise=otherwise,
        stock=tuple(stock_sentence(row) for row in table.of(Kind.STOCK) if row not in first),
        reason=main_reason(case),
        network=network,
        doubts=doubts,
        warnings=warnings,
        details=tuple(details),
    )


def _opening(case: Case, main: Comparison | None, *, is_alone: bool) -> tuple[str, str]:
    """What comes first, and what else is said of networks or of sides that do not meet."""
    row = headline_row(case)
    network = network_sentence(row, is_alone=is_alone) if row else ""
    if main:
        over = passed_over_line(case, *(side.points for side in main.sides), basis=main.basis)
        return " ".join(filter(None, [*_of_sides(case, main), over])), network
    if contending := next(contenders(case), None):
        said = [fastest_sentence(case, contending), passed_over_line(case, contending)]
        return " ".join(said).rstrip(), network
    apart = farthest_apart(case)
    said = [finding_sentence(apart), network_sentence(apart)] if apart else []
    opening = [_ladder_text(comparisons(case), ladder) for ladder in ladders(case)]
    return " ".join(opening) or _why_none(case), " ".join(said).rstrip()


def _of_sides(case: Case, main: Comparison) -> list[str]:
    """The main comparison and those of the hybrid, which come first where it beats both sides."""
    mixed = comparisons(case).of(Kind.HYBRID)
    told = [meeting_sentence(row) for row in mixed]
    if mixed and all(row.outcome is Outcome.FASTER for row in mixed):
        return [*told, meeting_sentence(main)]
    return [meeting_sentence(main), *told]


def _alone_sentence(table: Comparisons, main: Comparison) -> str:
    """A single worker that is as fast as the workers of both sides; else empty."""
    row = next(iter(table.of(Kind.SINGLE)), None)
    if row is None or main.outcome is Outcome.NO_VERDICT:
        return ""
    factor = factor_text(row.decision)
    told = {
        Outcome.FASTER: f"{factor} faster than",
        Outcome.EQUAL: f"{row.outcome} ({factor}) to",
    }
    if row.outcome not in told:
        return ""
    several = each_text(row.second.workers)
    return (
        f"A single worker is {told[row.outcome]} {row.second.name}: their {several} workers do not "
        "pay here."
    )


def _why_none(case: Case) -> str:
    kinds, rivals = [ALLREDUCE, PS_SYNC], rivals_of(case)
    if absent := [kind.name for kind in kinds if not rivals.of(kind)]:
        for kind in kinds:
            measured = [point for point in rivals.of(kind) if rivals.launches(point)]
            if len({point.setting.label for point in measured}) == 1:
                return (
                    f"No verdict: of {kind.name} one setting has launches that ended well; a "
                    f"comparison takes another one, or runs of {absent[0]}."
                )
        own = " of the suite's own" * any(p.setting.traits.as_shipped for p in case.points)
        return f"No verdict: the tables have no runs of {' or '.join(absent)}{own}."
    names = " and ".join(kind.name for kind in kinds)
    shared = rivals.shared_transports(ALLREDUCE, PS_SYNC)
    if not shared:
        return f"No verdict: {names} were not measured on the same transport."
    alike = [kind.over(shared[0]) for kind in kinds]
    failed = [kind.name for kind in alike if not any(map(rivals.launches, rivals.of(kind)))]
    if failed:
        return f"No verdict: no run of {' or '.join(failed)} over {shared[0]} ended well."
    return f"No verdict: at no number of workers did runs of both {names} end well."


def _ladder_text(table: Comparisons, ladder: Ladder) -> str:
    steps = [
        (rung.name, table.between(point, before))
        for (_, before), (rung, point) in pairwise(ladder.rungs)
    ]
    brought = [f"{name} {_brought_text(row)}" for name, row in steps if row]
    where = workers_text(ladder.num_workers)
    return f"Ladder of {ladder.name}, {where}, over the rung before: {', '.join(brought)}."


def _brought_text(row: Comparison) -> str:
    """The ratio, and why it is none to rely on where there is no verdict."""
    unsure = row.outcome in UNSURE
    return ratio_text(*row.decision.ends) + f" ({row.outcome})" * unsure


def _otherwise_lines(case: Case, main: Comparison | None) -> Iterator[str]:
    """What is equal in the headline, and the same sides at equal workers and at equal cost.

    Of one side alone the fastest asynchronous setting, where the headline is not about it.
    """
    if main is None:
        for number, contending in enumerate(contenders(case)):
            if number:
                said = fastest_sentence(case, contending)
                over = passed_over_line(case, contending)
                apart = "Asynchronous settings are another training, so they stand apart."
                yield f"{apart} {said} {over}".rstrip()
            if more := failed_beyond(case, contending):
                settings = f"{training_text(contending[0])} settings"
                yield no_verdict_text(f"on {settings} at {each_text(more)}")
        return
    yield from basis_lines(main)
    yield from dict.fromkeys(map(beyond_text, [main, *comparisons(case).of(Kind.HYBRID)]))
    known = {frozenset(main.points): "in the headline"}
    for row in comparisons(case).of(Kind.WORKERS, Kind.COST):
        where = known.setdefault(frozenset(row.points), "")
        same = f"the same settings as {where}."
        yield f"{basis_text(row)}: {same if where else meeting_sentence(row)}"
        known[frozenset(row.points)] = where or f"at equal {row.basis}"


def _share_lines(main: Comparison) -> list[str]:
    """Figures per worker core, and per host, where the sides have other numbers of them."""
    unit = main.case.unit
    chosen = [(side, side.best) for side in main.sides]
    cores = [_share_text(unit, side, point.worker_cores, "worker core") for side, point in chosen]
    hosts = [_share_text(unit, side, point.common("num_hosts"), "host") for side, point in chosen]
    by_core = {point.worker_cores for point in main.points}
    by_host = {point.common("num_hosts") for point in main.points}
    return [
        *([f"Per worker core: {'; '.join(cores)}."] if len(by_core - {None}) > 1 else []),
        _total_cores_line(*main.points),
        *_threads_lines(*main.points),
        *([f"Per host: {'; '.join(hosts)}."] if len(by_host) > 1 else []),
        *money_lines(main),
    ]


def _share_text(unit: str, side: Side, count: int | None, what: str) -> str:
    if not count:
        return f"{side.name} unknown (launches differ in their {what}s)"
    return f"{side.name} {share_text(side.best, count)} {unit}/s ({count_text(count, what)})"


def _total_cores_line(first: Point, second: Point) -> str:
    """Whether both sides had the same cores in all."""
    first_cores, second_cores = first.common("total_cores"), second.common("total_cores")
    if first_cores is None or second_cores is None:
        return "Launches differ in the cores of all tasks together."
    if first_cores == second_cores:
        return f"Each side uses {count_text(first_cores, 'core')} in all, servers included."
    return (
        f"The sides do not use the same cores in all: {first.setting.label} {first_cores}, "
        f"{second.setting.label} {second_cores} with those of the servers."
    )


def _threads_lines(first: Point, second: Point) -> list[str]:
    """Where a worker of one side has more threads."""
    if first.threads == second.threads:
        return []
    threads = (f"{point.setting.label} {point.threads}" for point in (first, second))
    return [f"The sides were given different threads for each worker: {', '.join(threads)}."]


def _interval_lines(main: Comparison) -> list[str]:
    """Of what the interval of the headline is, where it is not decided which settings are best."""
    kinds = [side.kind for side in main.sides if side.kind and not side.is_decided]
    if not kinds or main.outcome in UNSURE:
        return []
    which = " and which ".join(kind.setting for kind in kinds)
    whichever = "it is" if len(kinds) == 1 else "they are"
    best = f"best of those with three launches, whichever {whichever}"
    holds = f" at {LEAVING_LEVEL:.1%}: the interval of the headline holds for the {best}"
    return [f"Which {which} is the best is not decided{holds}."]


def _transports_apart(table: Comparisons) -> Iterator[str]:
    """What came out with another transport: no verdict about the strategies alone."""
    for row in table.of(Kind.APART):
        transports = transports_label(*(point.transport for point in as_told(row).points))
        said = meeting_sentence(row)
        yield f"{capital(transports)}, so this does not compare the strategies alone. {said}"


def _asynchronous(case: Case, table: Comparisons) -> list[str]:
    """Nothing of a ladder, which asks what each rung brings."""
    if any(ladders(case)):
        return []
    said = [*map(meeting_sentence, table.of(Kind.ASYNCHRONOUS))]
    return [_ASYNCHRONOUS.format(unit=case.unit) + " ".join(said)] if said else []
