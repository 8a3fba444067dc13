"""Two sides that meet, in one sentence.

Decides how a decision is told: the faster side first, or why nothing can be said of them.  Of the
suite and plain TensorFlow it says the same words whichever is faster.  What is decided comes from
`stats.decisions`, how a size is told from `sizes`.
"""

from __future__ import annotations

from analysis.data.cases import Case, Point
from analysis.report.sentences.sizes import where_text
from analysis.stats.decision import Decision, Outcome
from analysis.stats.decisions import decisions
from analysis.stats.pairs.sides import Meeting
from analysis.wording import capital, factor_text, launches_text, missing_text


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
