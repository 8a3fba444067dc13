"""The sentences that a report begins with.

Decides what is said: synchronous parameter servers against all-reduce on the same transport first,
with the interval and the number of launches; then what the figures are about.  Asynchronous
training does not compute the same thing, and another transport is another network: each gets a
sentence of its own that says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from analysis.data.cases import Case, Point
from analysis.report.circumstances import attempts_lines, circumstances
from analysis.stats.sides import (
    ALLREDUCE,
    PS_ASYNC,
    PS_SYNC,
    Meeting,
    Side,
    meet,
    meet_apart,
    shared_transports,
)
from analysis.stats.statistics import MIN_LAUNCHES, Outcome, estimate, outcome
from analysis.wording import (
    capital,
    count_text,
    factor_text,
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
    """

    headline: str
    details: tuple[str, ...]


def verdict(case: Case) -> Verdict:
    """All sentences about a case."""
    alike = list(meet(case, ALLREDUCE, PS_SYNC))
    main = alike[0] if alike else None
    details = [
        *(_share_lines(case.unit, main) if main else ()),
        *circumstances(case),
        *([*_doubts(main), *_selection_lines(main)] if main else ()),
        *(_sentence_on_its_transport(case.unit, meeting) for meeting in alike[1:]),
        *_transports_apart(case),
        *_asynchronous(case),
        *attempts_lines(case.attempts),
    ]
    headline = _sentence_on_its_transport(case.unit, main) if main else _why_none(case)
    return Verdict(headline=headline, details=tuple(details))


def meeting_sentence(unit: str, meeting: Meeting) -> str:
    """One sentence about two sides, the faster one first; throughput counts a unit."""
    first, second = (side.title for side in meeting.sides)
    comparison = meeting.comparison
    where = f"at {workers_text(meeting.num_workers)}"
    said = outcome(comparison)
    if said is Outcome.TOO_FEW:
        fewest = min(max(len(point.rates) for point in side.points) for side in meeting.sides)
        if fewest >= MIN_LAUNCHES:  # in too few repetitions the same setting was there to be chosen
            fewest = min(comparison.n_first, comparison.n_second)
        return f"No verdict: fewer than three launches ({fewest}) of {first} or {second} {where}."
    if said is Outcome.NO_DIFFERENCE:
        return (
            f"No difference shown between {first} and {second} {where}, "
            f"{launches_text(comparison)} (ratio of {unit}/sec {factor_text(comparison)})."
        )
    if said is Outcome.SLOWER:
        first, second, comparison = second, first, comparison.inverse()
    faster = f"{factor_text(comparison)} faster"
    return capital(f"{first} is {faster} than {second} {where}, {launches_text(comparison)}.")


def _why_none(case: Case) -> str:
    kinds = [ALLREDUCE, PS_SYNC]
    absent = [kind.name for kind in kinds if not kind.points(case)]
    if absent:
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


def _doubts(meeting: Meeting) -> list[str]:
    lines = []
    if meeting.beyond:
        more = ", ".join(str(count) for count in meeting.beyond)
        lines.append(f"Too few launches for a verdict at more workers ({more}).")
    low, high = meeting.comparison.low, meeting.comparison.high
    undecided = outcome(meeting.comparison) is Outcome.NO_DIFFERENCE
    if undecided and low is not None and high is not None and high / low >= WIDE_INTERVAL:
        lines.append(
            "The interval is wide because launches differ that much: a quieter machine or more "
            "repetitions would narrow it."
        )
    return lines


def _share_lines(unit: str, meeting: Meeting) -> list[str]:
    """Figures per worker core, and per host paid for: hosts of servers are not free."""
    chosen = [(side, side.favourite) for side in meeting.sides if side.favourite is not None]
    if len(chosen) < 2:
        return []
    cores = [_share_text(unit, side, point.worker_cores, "worker core") for side, point in chosen]
    hosts = [_share_text(unit, side, point.common("num_hosts"), "host") for side, point in chosen]
    several = {point.common("num_hosts") for _, point in chosen} != {1}
    return [
        f"Per worker core: {', '.join(cores)}.",
        _total_cores_line(*(point for _, point in chosen)),
        *([f"Per host paid for: {', '.join(hosts)}."] if several else []),
    ]


def _share_text(unit: str, side: Side, count: int | None, what: str) -> str:
    if not count:
        return f"{side.kind.name} unknown (launches differ in their {what}s)"
    share = estimate(side.rates).mean / count
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


def _selection_lines(meeting: Meeting) -> list[str]:
    """How best settings were chosen; empty where there was no choice."""
    chosen = [
        f"{side.favourite.setting.label} was chosen in {side.selection.votes} of "
        f"{len(side.selection.chosen)} repetitions out of {len(side.points)} settings"
        for side in meeting.sides
        if len(side.points) > 1 and side.favourite is not None
    ]
    if not chosen:
        return []
    n = max(len(side.selection.chosen) for side in meeting.sides)
    few = f" (with {n} launches, on {n - 1} of them)" if n <= MIN_LAUNCHES + 1 else ""
    lines = [
        f"Best settings: {'; '.join(chosen)}. For each repetition the choice is made on the other "
        f"repetitions only{few}, so no launch counts for its own selection."
    ]
    if len({len(side.points) for side in meeting.sides}) > 1:
        tried = " and ".join(f"{len(side.points)} of {side.kind.name}" for side in meeting.sides)
        lines.append(f"Settings tried: {tried}; the side with more of them had more chances.")
    return lines


def _sentence_on_its_transport(unit: str, meeting: Meeting) -> str:
    """A sentence about two sides on one transport, which is named unless it is plain gRPC."""
    transport = meeting.sides[0].kind.transport
    where = "" if transport == GRPC else f"With {transport} on both sides: "
    return where + meeting_sentence(unit, meeting)


def _transports_apart(case: Case) -> Iterator[str]:
    """What came out with another transport: no verdict about the strategies alone."""
    for meeting in meet_apart(case, ALLREDUCE, PS_SYNC):
        transports = transports_label(*(side.kind.transport for side in meeting.sides))
        said = meeting_sentence(case.unit, meeting)
        yield f"{capital(transports)}, so this does not compare the strategies alone: {said}"


def _asynchronous(case: Case) -> list[str]:
    said = [
        _sentence_on_its_transport(case.unit, meeting)
        for meeting in meet(case, PS_ASYNC, ALLREDUCE)
    ]
    return [_ASYNCHRONOUS.format(unit=case.unit) + " ".join(said)] if said else []
