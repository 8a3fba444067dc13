"""What a check has found, how hosts are named in it, and the table that people read.  Pure.

Decides that whoever reports a failure also says what to do about it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import click

MOST_NAMES = 6


class Level(StrEnum):
    """How bad it is: a run fails, or misleads, only after a failure."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.FAILURE: "red"}

LEVEL_WIDTH = max(len(level) for level in Level)


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


#: What every check has found, by its title.
ByCheck = Mapping[str, Findings]


def render(
    by_check: ByCheck,
    *,
    num_hosts: int,
    seconds: float,
    avoid: Callable[[Sequence[str]], str],
    width: int,
) -> str:
    """A line or more for every check; below them how many there are, and whom to leave out.

    Args:
        avoid: says how to ask for other hosts than some.
        width: characters of a line.
    """
    margin = max(len(title) for title in by_check) + 2
    lines = [
        line
        for title, findings in by_check.items()
        for number, finding in enumerate(findings)
        for line in _lines(finding, "" if number else title, margin, width)
    ]
    levels = [finding.level for finding in _every(by_check)]
    failures = _count(levels.count(Level.FAILURE), "failure")
    warnings = _count(levels.count(Level.WARNING), "warning")
    lines += ["", f"{failures}, {warnings}; {_count(num_hosts, 'host')}, {seconds:.0f} s"]
    if missing := [title for title, findings in by_check.items() if not findings]:
        lines.append(f"Not looked at: {', '.join(missing)}.")
    if hosts := leave_out(by_check):
        lines.append(avoid(hosts))
    return "\n".join(lines)


def _lines(finding: Finding, title: str, margin: int, width: int) -> list[str]:
    level = finding.level if finding.level is Level.OK else finding.level.upper()
    indent = " " * (margin + LEVEL_WIDTH + 2)
    room = max(width - len(indent), 30)
    first, *rest = _wrap(finding.text, room) or [""]
    coloured = click.style(f"{level:<{LEVEL_WIDTH}}", fg=COLOURS[finding.level])
    remedy = _wrap(f"-> {finding.remedy}", room)
    more = rest + (remedy if finding.remedy else [])
    return [f"{title:<{margin}}{coloured}  {first}", *(indent + line for line in more)]


def _wrap(text: str, width: int) -> list[str]:
    """Paths and options stay whole, so that they can be copied."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _every(by_check: ByCheck) -> list[Finding]:
    return [finding for findings in by_check.values() for finding in findings]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def leave_out(by_check: ByCheck) -> list[str]:
    """Hosts that a run would be better off without, each once."""
    return list(dict.fromkeys(host for each in _every(by_check) for host in each.leave_out))


def has_failed(by_check: ByCheck) -> bool:
    """There is a failure among the findings."""
    return any(finding.level is Level.FAILURE for finding in _every(by_check))
