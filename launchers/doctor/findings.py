"""What a check has found, and how hosts are named in it.

Decides that whoever reports a failure also says what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

MOST_NAMES = 6


class Level(StrEnum):
    """How bad it is: a run fails, or misleads, only after a failure."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of a check.

    Attributes:
        text: what was found.
        remedy: what to do about it.
        leave_out: hosts that a run would be better off without.
    """

    level: Level
    text: str
    remedy: str = ""
    leave_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level is not Level.OK and not self.remedy:
            raise ValueError(f"nothing is said about what to do: {self.text}")


Findings = Sequence[Finding]


def ok(text: str) -> Finding:
    """All is well."""
    return Finding(level=Level.OK, text=text)


def warning(text: str, remedy: str, leave_out: Iterable[str] = ()) -> Finding:
    """Runs can be made, but somebody should know."""
    return Finding(level=Level.WARNING, text=text, remedy=remedy, leave_out=tuple(leave_out))


def failure(text: str, remedy: str, leave_out: Iterable[str] = ()) -> Finding:
    """Runs would fail, or their figures would mislead."""
    return Finding(level=Level.FAILURE, text=text, remedy=remedy, leave_out=tuple(leave_out))


def some(names: Iterable[str]) -> str:
    """The names in their order; of many the first few."""
    every = list(names)
    if len(every) <= MOST_NAMES:
        return ", ".join(every)
    return f"{', '.join(every[: MOST_NAMES - 1])} and {len(every) - MOST_NAMES + 1} more"
