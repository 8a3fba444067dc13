"""The sentences that a report begins with.

Decides what is said: synchronous parameter servers against all-reduce on the same transport first,
with the interval and the number of launches; then what the figures are about.  Asynchronous
training does not compute the same thing, and another transport is another network: each gets a
sentence of its own that says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.data.cases import Case, Point
from analysis.report.circumstances import attempts_lines, circumstances
from analysis.stats.points import worker_cores
from analysis.stats.sides import (
    ALLREDUCE,
    PS_ASYNC,
    PS_SYNC,
    Meeting,
    Side,
    SideKind,
    meet,
    meet_apart,
    shared_transports,
)
from analysis.stats.statistics import MIN_LAUNCHES, Comparison, Outcome, estimate, outcome
from analysis.wording import (
    capital,
    count_text,
    interval_text,
    launches_text,
    transports_label,
    workers_text,
)
from ps_allreduce.point.wire import GRPC

#: An interval whose ends differ by this factor cannot tell a large effect from none.
WIDE_INTERVAL = 1.5

_ASYNCHRONOUS = (
    "Asynchronous training is not the same training: workers do not wait for each other and apply "
    "gradients of older weights, so {unit}/sec says nothing about how fast they learn. With that "
    "said: "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is said about one case.

    Attributes:
        headline: the main comparison, or why there is none.
        details: further sentences, in order.
        comparison: all-reduce over parameter servers; None if they do not meet.
    """

    case_name: str
    headline: str
    details: tuple[str, ...]
    comparison: Comparison | None
    outcome: Outcome


def verdict(case: Case) -> Verdict:
    """All sentences about a case."""
    alike = list(meet(case, ALLREDUCE, PS_SYNC))
    main = alike[0] if alike else None
    details = [
        *(_core_lines(case.unit, main.first, main.second) if main else ()),
        *(_host_lines(case.unit, main.first, main.second) if main else ()),
        *circumstances(case),
        *(_doubts(main) if main else ()),
        *(_selection_lines(main) if main else ()),
        *(_sentence_on_its_transport(case.unit, meeting) for meeting in alike[1:]),
        *_transports_apart(case),
        *_asynchronous(case),
        *attempts_lines(case.attempts),
    ]
    return Verdict(
        case_name=case.name,
        headline=_sentence_on_its_transport(case.unit, main) if main else _why_none(case),
        details=tuple(details),
        comparison=main.comparison if main else None,
        outcome=outcome(main.comparison) if main else Outcome.TOO_FEW,
    )


def meeting_sentence(unit: str, meeting: Meeting) -> str:
    """One sentence about two sides, the faster one first; throughput counts a unit."""
    first, second, comparison = meeting.first.title, meeting.second.title, meeting.comparison
    where = f"at {workers_text(meeting.num_workers)}"
    said = outcome(comparison)
    if said is Outcome.TOO_FEW:
        fewest = min(_launches(meeting))
        if fewest >= MIN_LAUNCHES:  # in too few repetitions the same setting was there to be chosen
            fewest = min(comparison.n_first, comparison.n_second)
        return f"No verdict: fewer than three launches ({fewest}) of {first} or {second} {where}."
    if said is Outcome.NO_DIFFERENCE:
        return (
            f"No difference shown between {first} and {second} {where}, "
            f"{launches_text(comparison)} (ratio of {unit}/sec {interval_text(comparison)})."
        )
    if said is Outcome.SLOWER:
        first, second, comparison = second, first, comparison.inverse()
    faster = f"{interval_text(comparison)} faster"
    return capital(f"{first} is {faster} than {second} {where}, {launches_text(comparison)}.")


def _launches(meeting: Meeting) -> list[int]:
    """The most launches that a setting of each side has."""
    sides = (meeting.first, meeting.second)
    return [max(len(point.rates) for point in side.points) for side in sides]


def _why_none(case: Case) -> str:
    kinds = [ALLREDUCE, PS_SYNC]
    absent = [kind.name for kind in kinds if not _points_of(case, kind)]
    if absent:
        return f"No verdict: there are no runs of {' or '.join(absent)}."
    names = " and ".join(kind.name for kind in kinds)
    shared = shared_transports(case, *kinds)
    if not shared:
        return f"No verdict: {names} were not measured on the same transport."
    alike = [kind.over(shared[0]) for kind in kinds]
    failed = [kind.name for kind in alike if all(p.rates.empty for p in _points_of(case, kind))]
    if failed:
        return f"No verdict: no run of {' or '.join(failed)} ended well."
    return f"No verdict: {names} were not measured at the same number of workers."


def _points_of(case: Case, kind: SideKind) -> list[Point]:
    return [point for point in case.points if kind.belongs(point)]


def _doubts(meeting: Meeting) -> list[str]:
    lines = []
    if meeting.beyond:
        more = ", ".join(str(count) for count in meeting.beyond)
        lines.append(f"Too few launches for a verdict at more workers ({more}).")
    return lines + _wide_lines(meeting.comparison)


def _wide_lines(comparison: Comparison) -> list[str]:
    """What to do about an interval that leaves everything open."""
    low, high = comparison.low, comparison.high
    if outcome(comparison) is not Outcome.NO_DIFFERENCE or low is None or high is None:
        return []
    if high / low < WIDE_INTERVAL:
        return []
    return [
        "The interval is wide because launches differ that much: a quieter machine or more "
        "repetitions would narrow it."
    ]


def _core_lines(unit: str, first: Side, second: Side) -> list[str]:
    """The figure per worker core, and whether both sides had the same cores in all."""
    if first.favourite is None or second.favourite is None:
        return []
    parts = [
        _per_worker_core(unit, side, point)
        for side, point in ((first, first.favourite), (second, second.favourite))
        if len(side.rates)
    ]
    return [
        f"Per worker core: {', '.join(parts)}.",
        _total_cores_line(first.favourite, second.favourite),
    ]


def _per_worker_core(unit: str, side: Side, point: Point) -> str:
    cores = worker_cores(point)
    rate = estimate(side.rates).mean / cores
    return f"{side.kind.name} {rate:.4g} {unit}/s ({cores} worker core{'s' * (cores != 1)})"


def _total_cores_line(first: Point, second: Point) -> str:
    first_cores, second_cores = first.common("total_cores"), second.common("total_cores")
    if first_cores is None or second_cores is None:
        return "Launches differ in the cores of all tasks together: compare figures per core only."
    if first_cores == second_cores:
        return f"Both sides use the same {first_cores} cores in all, servers included."
    return (
        f"The sides do not use the same cores in all: {first.setting.label} {first_cores}, "
        f"{second.setting.label} {second_cores} with those of the servers."
    )


def _host_lines(unit: str, first: Side, second: Side) -> list[str]:
    """The figure per host paid for, where there are several; hosts of servers are not free."""
    sides = [
        (side, side.favourite.common("num_hosts"))
        for side in (first, second)
        if side.favourite is not None and len(side.rates)
    ]
    counts = [count for _, count in sides]
    if len(counts) < 2 or set(counts) == {1}:
        return []
    parts = [
        f"{side.kind.name} {estimate(side.rates).mean / count:.4g} {unit}/s "
        f"({count_text(count, 'host')})"
        if count
        else f"{side.kind.name} unknown (launches differ in their hosts)"
        for side, count in sides
    ]
    return [f"Per host paid for: {', '.join(parts)}."]


def _selection_lines(meeting: Meeting) -> list[str]:
    """How best settings were chosen; empty where there was no choice."""
    chosen = [
        f"{side.favourite.setting.label} was chosen in {side.selection.votes} of "
        f"{len(side.selection.chosen)} repetitions out of {len(side.points)} settings"
        for side in (meeting.first, meeting.second)
        if len(side.points) > 1 and side.favourite is not None
    ]
    if not chosen:
        return []
    n = max(len(meeting.first.selection.chosen), len(meeting.second.selection.chosen))
    few = f" (with {n} launches, on {n - 1} of them)" if n <= MIN_LAUNCHES + 1 else ""
    lines = [
        f"Best settings: {'; '.join(chosen)}. For each repetition the choice is made on the other "
        f"repetitions only{few}, so no launch counts for its own selection."
    ]
    return lines + _unequal_effort(meeting)


def _unequal_effort(meeting: Meeting) -> list[str]:
    """More settings tried are more chances to find a good one: say so where they differ."""
    sides = (meeting.first, meeting.second)
    counts = [len(side.points) for side in sides]
    if counts[0] == counts[1]:
        return []
    tried = " and ".join(
        f"{count} of {side.kind.name}" for side, count in zip(sides, counts, strict=True)
    )
    return [f"Settings tried: {tried}; the side with more of them had more chances."]


def _sentence_on_its_transport(unit: str, meeting: Meeting) -> str:
    """A sentence about two sides on one transport, which is named unless it is plain gRPC."""
    transport = meeting.first.kind.transport
    where = "" if transport == GRPC else f"With {transport} on both sides: "
    return where + meeting_sentence(unit, meeting)


def _transports_apart(case: Case) -> list[str]:
    """What came out with another transport: no verdict about the strategies alone."""
    return [
        f"{capital(transports_label(*meeting.transports))}, so this does not compare the "
        f"strategies alone: {meeting_sentence(case.unit, meeting)}"
        for meeting in meet_apart(case, ALLREDUCE, PS_SYNC)
    ]


def _asynchronous(case: Case) -> list[str]:
    said = [
        _sentence_on_its_transport(case.unit, meeting)
        for meeting in meet(case, PS_ASYNC, ALLREDUCE)
    ]
    return [_ASYNCHRONOUS.format(unit=case.unit) + " ".join(said)] if said else []
