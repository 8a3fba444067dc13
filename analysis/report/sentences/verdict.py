"""The sentences that a report begins with.

Decides what is said: synchronous parameter servers against all-reduce on equal hosts and the same
transport first, with the interval and the number of launches; then at equal workers and equal cost;
then the suite against plain TensorFlow; then what the figures are about.  Of one side that was
measured alone it says which setting is fastest.  Asynchronous training
does not compute the same thing, and another transport is another network: each gets a sentence of
its own that says so.  How two sides are told is decided in `meetings`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from analysis.data.cases import Case, Point
from analysis.report.explanation import main_reason
from analysis.report.sentences.circumstances import (
    attempts_lines,
    circumstances,
    drift_lines,
    humps_lines,
    sparse_line,
    steadiness_lines,
)
from analysis.report.sentences.meetings import (
    basis_lines,
    basis_text,
    farthest_apart,
    fastest_sentence,
    finding_sentence,
    meeting_sentence,
    money_lines,
    network_sentence,
    stock_sentence,
)
from analysis.report.tables.what_was_run import notes_line
from analysis.stats.decision import Outcome
from analysis.stats.decisions import Decisions, decisions
from analysis.stats.findings import beside_undecided, headline_pair, plain_first
from analysis.stats.pairs.ladders import Ladder, ladders
from analysis.stats.pairs.sides import ALLREDUCE, PS_SYNC, Meeting, Side, shared_transports
from analysis.stats.points import mean_rate
from analysis.stats.statistics import MIN_LAUNCHES
from analysis.wording import (
    capital,
    count_text,
    factor_text,
    ratio,
    transports_label,
    with_interval,
    workers_text,
)

_ASYNCHRONOUS = (
    "Asynchronous training is not the same training: workers do not wait for each other and apply "
    "gradients of older weights, so {unit}/sec says nothing about how fast they learn. With that "
    "said: "
)

_AS_SHIPPED = (
    "As shipped, different training: TensorFlow's parameter servers are asynchronous and average "
    "nothing, even where rounds are joined, and its all-reduce is synchronous. With that said: "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is said about one case.

    Attributes:
        headline: where plain TensorFlow is decided to be faster, that; then the main comparison,
            after what is decided where it is not; of one side alone, which setting leads; or why
            there is no comparison; what sparse gradients cost; and what is not done as the user's
            own model asks for.
        otherwise: the same sides at equal workers and at equal cost, where that is another
            comparison; of one side alone, the fastest asynchronous setting.
        stock: the suite against plain TensorFlow, where both train alike and the headline does
            not begin with it.
        reason: where the difference of the main comparison comes from, and what to change; empty
            where no difference is shown.
        network: what it has to do with networks, and where two sides do not meet which settings
            are farthest apart; empty where nothing was compared.  That a single worker is faster
            than both sides counts more.
        warnings: what hosts and compute the figures are of, and the doubts about them.
        details: further sentences, in order.
    """

    headline: str
    otherwise: tuple[str, ...]
    stock: tuple[str, ...]
    reason: str
    network: str
    warnings: tuple[str, ...]
    details: tuple[str, ...]


def verdict(case: Case) -> Verdict:
    """All sentences about a case."""
    decided = decisions(case)
    main = decided.main
    details = [
        *(_share_lines(case, main) if main else ()),
        *steadiness_lines(case.launches),
        *humps_lines(case.launches),
        *([*_doubts(main), *_selection_lines(main)] if main else ()),
        *(meeting_sentence(case, meeting) for meeting in decided.alike),
        *_transports_apart(case),
        *_asynchronous(case),
        *(_AS_SHIPPED + meeting_sentence(case, each) for each in decided.as_shipped),
    ]
    warnings = (*circumstances(case), *drift_lines(case), *attempts_lines(case.attempts))
    opening, network = _opening(case, main)
    first = plain_first(decided)
    told = [stock_sentence(case, meeting) for meeting in first]
    headline = " ".join(filter(None, [*told, opening, sparse_line(case), notes_line(case)]))
    otherwise = tuple(_otherwise_lines(case, main))
    if main and (alone := _alone_sentence(case, main)):
        details.insert(0, network)
        network = alone
    return Verdict(
        headline=headline,
        otherwise=otherwise,
        stock=tuple(stock_sentence(case, each) for each in decided.stock if each not in first),
        reason=main_reason(case),
        network=network,
        warnings=warnings,
        details=tuple(details),
    )


def _opening(case: Case, main: Meeting | None) -> tuple[str, str]:
    """What comes first, and what else is said of networks or of sides that do not meet."""
    pair = headline_pair(case)
    network = network_sentence(case, (pair.first, pair.second)) if pair else ""
    if main:
        found = beside_undecided(case)
        said = [finding_sentence(found)] if found else []
        return " ".join([*said, meeting_sentence(case, main)]), network
    if alone := decisions(case).contenders:
        return fastest_sentence(case, alone[0]), network
    apart = farthest_apart(case)
    if told := [_ladder_text(decisions(case), ladder) for ladder in ladders(case)]:
        return " ".join(told), apart
    return _why_none(case), apart


def _alone_sentence(case: Case, meeting: Meeting) -> str:
    """A single worker that is faster than the workers of both sides; else empty."""
    decided = decisions(case)
    if decided.alone is None or decided.of(*meeting.bests).outcome is Outcome.NO_VERDICT:
        return ""
    if decided.alone.outcome is not Outcome.FASTER:
        return ""
    fastest = max(meeting.bests, key=mean_rate)
    return (
        f"A single worker is {factor_text(decided.alone)} faster than {fastest.num_workers} of "
        f"{fastest.setting.strategy}: more do not pay here."
    )


def _why_none(case: Case) -> str:
    kinds = [ALLREDUCE, PS_SYNC]
    if absent := [kind.name for kind in kinds if not kind.points(case)]:
        measured = [kind for kind in kinds if kind.points(case)]
        if any(len({p.setting.label for p in kind.points(case)}) == 1 for kind in measured):
            return (
                f"No verdict: of {measured[0].name} one setting was measured; a comparison takes "
                f"another one, or runs of {absent[0]}."
            )
        return f"No verdict: there are no runs of {' or '.join(absent)}."
    names = " and ".join(kind.name for kind in kinds)
    shared = shared_transports(case, *kinds)
    if not shared:
        return f"No verdict: {names} were not measured on the same transport."
    alike = [kind.over(shared[0]) for kind in kinds]
    failed = [kind.name for kind in alike if all(p.rates.empty for p in kind.points(case))]
    if failed:
        return f"No verdict: no run of {' or '.join(failed)} ended well."
    return f"No verdict: {names} were not measured at the same number of workers."


def _ladder_text(decided: Decisions, ladder: Ladder) -> str:
    brought = [
        f"{rung.name} {with_interval(ratio, *decided.of(point, before).ends)}"
        for (_, before), (rung, point) in pairwise(ladder.rungs)
    ]
    where = workers_text(ladder.num_workers)
    return f"Ladder of {ladder.name}, {where}, over the rung before: {', '.join(brought)}."


def _doubts(meeting: Meeting) -> list[str]:
    if not meeting.beyond:
        return []
    more = ", ".join(str(count) for count in meeting.beyond)
    return [f"Too few launches for a verdict at more workers ({more})."]


def _otherwise_lines(case: Case, main: Meeting | None) -> Iterator[str]:
    """What is equal in the headline, and the same sides at equal workers and at equal cost.

    Of one side alone the fastest asynchronous setting, where the headline is not about it.
    """
    if main is None:
        for alone in decisions(case).contenders[1:]:
            yield f"Apart, since it is not the same training: {fastest_sentence(case, alone)}"
        return
    yield from basis_lines(main)
    for meeting in decisions(case).otherwise:
        yield f"{basis_text(case, meeting)}: {meeting_sentence(case, meeting)}"


def _share_lines(case: Case, meeting: Meeting) -> list[str]:
    """Figures per worker core, and per host paid for: hosts of servers are not free."""
    unit = case.unit
    chosen = [(side, side.best) for side in meeting.sides]
    cores = [_share_text(unit, side, point.worker_cores, "worker core") for side, point in chosen]
    hosts = [_share_text(unit, side, point.common("num_hosts"), "host") for side, point in chosen]
    several = {point.common("num_hosts") for _, point in chosen} != {1}
    return [
        f"Per worker core: {', '.join(cores)}.",
        _total_cores_line(*(point for _, point in chosen)),
        *_threads_lines(*(point for _, point in chosen)),
        *([f"Per host paid for: {', '.join(hosts)}."] if several else []),
        *money_lines(case, meeting),
    ]


def _share_text(unit: str, side: Side, count: int | None, what: str) -> str:
    if not count:
        return f"{side.kind.name} unknown (launches differ in their {what}s)"
    share = mean_rate(side.best) / count
    return f"{side.kind.name} {share:.4g} {unit}/s ({count_text(count, what)})"


def _total_cores_line(first: Point, second: Point) -> str:
    """Whether both sides had the same cores in all."""
    first_cores, second_cores = first.common("total_cores"), second.common("total_cores")
    if first_cores is None or second_cores is None:
        return "Launches differ in the cores of all tasks together: compare figures per core only."
    if first_cores == second_cores:
        return f"Both sides use the same {first_cores} cores in all, servers included."
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


def _selection_lines(meeting: Meeting) -> list[str]:
    """What the best settings were chosen from; empty where there was no choice or no interval."""
    if min(len(best.rates) for best in meeting.bests) < MIN_LAUNCHES:
        return []
    chosen = [
        f"{side.best.setting.label} of {len(side.points)} settings"
        for side in meeting.sides
        if len(side.points) > 1
    ]
    if not chosen:
        return []
    return [
        f"Best settings: {', '.join(chosen)}. The interval holds for whichever is best in truth: "
        "having more settings to choose from makes no side the faster one."
    ]


def _transports_apart(case: Case) -> Iterator[str]:
    """What came out with another transport: no verdict about the strategies alone."""
    for meeting in decisions(case).apart:
        transports = transports_label(*(side.kind.transport for side in meeting.sides))
        said = meeting_sentence(case, meeting)
        yield f"{capital(transports)}, so this does not compare the strategies alone: {said}"


def _asynchronous(case: Case) -> list[str]:
    said = [meeting_sentence(case, meeting) for meeting in decisions(case).asynchronous]
    return [_ASYNCHRONOUS.format(unit=case.unit) + " ".join(said)] if said else []
