"""Why one setting is faster than another, in sentences and a table.

Decides the words: how many milliseconds of a step each part has, and of which differences a
sentence tells.  Which parts there are and which comes first is decided in `stats.causes`, what to
change in `remedies`; that is said once, of the headline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import pandas as pd

from analysis.data.cases import Case
from analysis.report.remedies import advice_text
from analysis.stats.causes import (
    CausedPart,
    Difference,
    Explanation,
    explanations,
    seen_explanations,
)
from analysis.stats.comparisons import comparisons
from analysis.stats.decision import Outcome
from analysis.stats.explained_parts import MOST_STRETCH, Cause
from analysis.stats.findings import headline_row
from analysis.stats.setting_pairs import ladders
from analysis.stats.statistics import MIN_LAUNCHES, launches_to_tell
from analysis.wording import (
    NONE,
    capital,
    count_text,
    factor_text,
    number,
    three_digits,
    transports_label,
    workers_text,
)

#: So many differences have a sentence, that of the headline first; the table has all.
MOST_TOLD = 3

#: A sentence tells the largest parts, until those that are left make less than this share.
UNTOLD = 0.1

#: Beside a larger part that is sure, parts of this share are not told.
SMALL = 0.02

#: Of parts that nobody measured.
_LIMITS = (
    '"up to" and "down to": estimates from bytes and rates of links (in parentheses what the '
    'busiest link would save by itself), or from what other programs took; "at least" and "at '
    'most": what they leave. None of these has an interval.'
)

_SAVED = "what the busiest link would save if"
_STRETCHED = (
    f", stretched to the time in which gradients travel (at most {MOST_STRETCH:g} times, as no "
    "link is used perfectly), and no more than exchange and update are longer"
)

#: What each part is.
MEANINGS: Mapping[Cause, str] = {
    Cause.COMPUTE: "how long the fastest worker computes",
    Cause.SLOWED: "how much longer than alone the fastest worker computes; compute is without it",
    Cause.INPUT: "how long the worker whose gradients come last waits for its batch",
    Cause.WORKER: "how much longer one worker always computes than the fastest one; where workers "
    "do not meet, the mean over all their steps",
    Cause.IN_TURN: "how long workers wait for each other because now one, now another is slower",
    Cause.HOT_SERVER: f"{_SAVED} all servers held equally many bytes{_STRETCHED}",
    Cause.HOT_ROWS: f"{_SAVED} servers were asked for equally many rows{_STRETCHED}",
    Cause.EXCHANGE: "the rest of the exchange that no computation hides, the update, and waits for "
    "a worker whose values always come late",
    Cause.SLOW_LINK: f"{_SAVED} all links were as fast as the fastest{_STRETCHED}",
    Cause.LOST: "delay of stalled steps in runs that lost packets, shared by all steps; where only "
    "one of two settings that send alike loses any, all that its exchange takes longer",
    Cause.DISPATCH: "from the end of a step until the next one begins on the worker",
    Cause.FOREIGN: "how much longer steps take because of other programs, as far as the share of "
    "the processors that these took can explain it, and no more than steps are longer than in an "
    "undisturbed launch of the setting",
    Cause.FEWER_WORKERS: "how much longer fewer workers take for the same number of examples",
}


def meanings_table(case: Case) -> pd.DataFrame:
    """What the parts of a case's differences mean."""
    seen = seen_explanations(case)
    found = {part.cause for told in seen for part in told.difference.parts}
    rows = [{"part": cause, "is": text} for cause, text in MEANINGS.items() if cause in found]
    return pd.DataFrame(rows)


def explanation_note(case: Case) -> str:
    """What the table of parts is of, and how it was made."""
    seen = seen_explanations(case)
    told = [
        "Milliseconds of a mean step that the slower setting takes more (with a minus, less) than "
        "the faster one, with 95 % intervals over launches; the parts of a row add up to its "
        "difference."
    ]
    if any(part.limit for each in seen for part in each.difference.parts):
        told.append(_LIMITS)
    told.append(
        "Only the ratio was tested; it is of geometric means of rates, so it may differ a little "
        "from that of the mean steps. All are of turns that both settings have in common, where "
        "these are three or more."
    )
    if any(map(_other_batches, seen)):
        told.append(
            "Where the global batches differ, the slower setting's step is scaled to the same "
            "number of examples."
        )
    return " ".join(told)


def _other_batches(told: Explanation) -> bool:
    """A step of the one is not of as many examples as one of the other."""
    return told.slower.experiment.global_batch != told.faster.experiment.global_batch


def explanation_lines(case: Case) -> list[str]:
    """Where differences come from, how many only the table has, and which have no parts."""
    found, row = explanations(case), headline_row(case)
    headline = {*row.points} if row else set()
    seen = [told for told in found if not told.unseen and told.difference.causes]
    seen.sort(key=lambda told: {*told.row.points} != headline)
    lines = [explanation_sentence(told) for told in seen[:MOST_TOLD]]
    if len(seen) > MOST_TOLD:
        more = count_text(len(seen) - MOST_TOLD, "more difference")
        lines.append(f"The table has the parts of {more}.")
    return [*lines, *_unseen_lines(case, found)]


def explanation_sentence(told: Explanation) -> str:
    """Where a difference comes from."""
    told_parts = _worth_telling(told.difference)
    largest = told_parts[0]
    parts = f"{_parts_text(told_parts)}{_others_text(told, told_parts)}"
    said = [f"{_ratio_text(told)} {_longer_text(told)}: {parts}."]
    if transports := transports_label(*(point.transport for point in told.row.points)):
        said.append(f"{capital(transports)} may be a part of it.")
    if not largest.sure:
        said.append(f"What causes it is not certain: {_to_tell(told, largest)}.")
    return " ".join(said)


def _to_tell(told: Explanation, part: CausedPart) -> str:
    """How many launches would tell whether a part is there; instead of advice."""
    made = min(len(told.faster.launches), len(told.slower.launches))
    wanted = launches_to_tell(part.unproven, made) if made >= MIN_LAUNCHES else MIN_LAUNCHES
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
    """A step of fewer workers trains fewer examples: the difference is that of as many."""
    slower, faster = (point.setting.label for point in (told.slower, told.faster))
    more = _ms_text(told.difference.step.mean)
    if _other_batches(told):
        return f"For the examples of a step of {faster}, {slower} takes {more} more"
    return f"A step of {slower} takes {more} more than one of {faster}"


def _worth_telling(difference: Difference) -> list[CausedPart]:
    """Until little is left; beside a part that is sure only those that are, none small."""
    parts: list[CausedPart] = []
    for part in difference.causes:
        if sum(each.seconds.mean for each in parts) > (1 - UNTOLD) * difference.step.mean:
            break
        is_small = part.seconds.mean < SMALL * difference.step.mean
        if not parts or not difference.causes[0].sure or (part.sure and not is_small):
            parts.append(part)
    return parts


def _others_text(told: Explanation, parts: Sequence[CausedPart]) -> str:
    """What all other parts take together, where that is not little."""
    left_s = told.difference.step.mean - sum(part.seconds.mean for part in parts)
    if left_s <= UNTOLD * told.difference.step.mean:
        return _less_text(told, parts)
    own = {part.limit for part in parts}
    above, below = bool({"up to", "at most"} & own), bool({"at least", "down to"} & own)
    # What parts leave that are limits of each other has none.
    limit = "" if above is below else "at least " if above else "up to "
    return f"; all other parts together take {limit}{_ms_text(left_s)} more"


def _less_text(told: Explanation, parts: Sequence[CausedPart]) -> str:
    """What other parts take less, where those that are told are more than the whole."""
    told_s, step_s = sum(part.seconds.mean for part in parts), told.difference.step.mean
    if _ms(told_s) <= _ms(step_s):
        return ""
    limits = {part.limit for part in told.difference.parts if part not in parts}
    own = {part.limit for part in parts}
    match "up to" in own, "at least" in own:
        case True, False:  # it leaves nothing of what it is taken off
            limit = "up to "
        case False, True:
            limit = "at least "
        case _:
            limit = "up to " * bool(limits & {"down to", "at least"})
    return f"; all other parts together take {limit}{_ms_text(told_s - step_s)} less"


def _parts_text(parts: Iterable[CausedPart]) -> str:
    return ", ".join(f"{_seconds_text(part)} {part.cause}" for part in parts)


def _ms(seconds: float | None) -> float:
    """Three digits."""
    return three_digits((seconds or 0.0) * 1e3)


def _ms_text(seconds: float) -> str:
    return f"{number(_ms(seconds))} ms"


def _interval_text(part: CausedPart) -> str:
    ends = part.interval
    return "" if None in ends else f" [{', '.join(number(_ms(end)) for end in ends)}]"


def _unseen_lines(case: Case, found: Iterable[Explanation]) -> Iterator[str]:
    """Settings whose steps are not divided, and what explains them instead."""
    pairs = [told.unseen for told in found if told.unseen]
    if not pairs:
        return
    yield "Steps of plain TensorFlow are not divided into parts."
    if all(len(unseen) > 1 for unseen in pairs):
        return
    if any(ladders(case)):
        yield from _helpful_rungs(case)
    else:
        yield "make ladder measures one by one what the suite does differently."


def _helpful_rungs(case: Case) -> Iterator[str]:
    """Of each ladder the rungs that are decided to be faster than the one before."""
    table = comparisons(case)
    for ladder in ladders(case):
        names = [
            rung.name
            for (_, before), (rung, point) in pairwise(ladder.rungs)
            if (row := table.between(point, before)) and row.outcome is Outcome.FASTER
        ]
        decided = "; ".join(names) or "none"
        yield f"Changes of {ladder.name} that are decided to bring something: {decided}."


def explanation_table(case: Case) -> pd.DataFrame:
    """A row for each pair that differs and is divided: milliseconds by cause, as text."""
    rows = [_row(told) for told in seen_explanations(case)]
    return pd.DataFrame(rows).fillna(NONE)


def _row(told: Explanation) -> dict[str, str]:
    row = {
        "faster": told.faster.setting.label,
        "slower": told.slower.setting.label,
        "ratio": factor_text(told.row.decision),
        "difference ms": _ms_text(told.difference.step.mean).removesuffix(" ms"),
    }
    for part in told.difference.parts:
        saved = "" if part.saved_s is None else f" ({number(_ms(part.saved_s))})"
        row[f"{part.cause} ms"] = _seconds_text(part).replace(" ms", "", 1) + saved
    return row


def main_reason(case: Case) -> str:
    """Why what the headline compares came out so; empty where it shows no difference."""
    row = headline_row(case)
    if row is None:
        return ""
    found = (told for told in explanations(case) if {*told.row.points} == {*row.points})
    return next((_reason(told) for told in found), "")


def _reason(told: Explanation) -> str:
    """The parts of the difference, with what to change about the first if that is certain."""
    if told.unseen or not told.difference.causes:
        return ""
    longer = _longer_text(told)
    parts = _worth_telling(told.difference)
    part = parts[0]
    if not part.sure:
        mean = f"the largest mean is that of {part.cause}, {_seconds_text(part)}"
        mean += _less_text(told, [part])
        return f"{longer}. What causes it is not certain: {mean}; {_to_tell(told, part)}."
    found = f"{_parts_text(parts)}{_others_text(told, parts)}"
    return f"{longer}: {found}. {advice_text(told, part.cause)}".rstrip()


def _seconds_text(part: CausedPart) -> str:
    limit = f"{part.limit} " * bool(part.limit)
    return f"{limit}{_ms_text(part.seconds.mean)}{_interval_text(part)}"
