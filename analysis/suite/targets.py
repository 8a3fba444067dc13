"""Whether targets of the suite itself are met, in the words of the bench.

Decides that an interval which reaches over the limit is undecided, and that what is not met is told
with the reason, as far as it is known.
"""

from __future__ import annotations

import math

Limits = tuple[float, float]


def up_to(limit: float) -> Limits:
    """What is allowed, from whatever low figure on."""
    return -math.inf, limit


def no_less_than(limit: float) -> Limits:
    """What is allowed, up to whatever high figure."""
    return limit, math.inf


def target_text(
    asked: str, found: tuple[float | None, float | None], allowed: Limits, reason: str = ""
) -> str:
    """`(target: at most 1.01, undecided: launches differ by 2 %)`.

    Args:
        asked: the target in words.
        found: the ends of an interval; twice the same where there is one figure.
        reason: why it may not be met.
    """
    said = _outcome(found, allowed)
    why = f": {reason}" if reason and said != "met" else ""
    return f"(target: {asked}, {said}{why})"


def _outcome(found: tuple[float | None, float | None], allowed: Limits) -> str:
    low, high = found
    if low is None or high is None:
        return "undecided"
    if allowed[0] <= low and high <= allowed[1]:
        return "met"
    return "not met" if high < allowed[0] or low > allowed[1] else "undecided"
