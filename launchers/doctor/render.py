"""What was found, as a table for people.  Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

import click

from launchers.doctor.findings import Finding, Findings, Level

COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.FAILURE: "red"}

LEVEL_WIDTH = max(len(level) for level in Level)


def render(
    found: Mapping[str, Findings], *, num_hosts: int, seconds: float, scheduled: bool, width: int
) -> str:
    """A line or more for every check; below them how many there are, and whom to leave out.

    Args:
        found: by title of the check.
        scheduled: hosts are chosen by Slurm.
        width: characters of a line.
    """
    margin = max(len(title) for title in found) + 2
    lines = [
        line
        for title, findings in found.items()
        for number, finding in enumerate(findings)
        for line in _lines(finding, "" if number else title, margin, width)
    ]
    every = [finding for findings in found.values() for finding in findings]
    return "\n".join([*lines, "", *_conclusion(found, every, num_hosts, seconds, scheduled)])


def _lines(finding: Finding, title: str, margin: int, width: int) -> list[str]:
    level = finding.level if finding.level is Level.OK else finding.level.upper()
    indent = " " * (margin + LEVEL_WIDTH + 2)
    room = max(width - len(indent), 30)
    first, *rest = _wrap(finding.text, room) or [""]
    word = click.style(f"{level:<{LEVEL_WIDTH}}", fg=COLOURS[finding.level])
    remedy = _wrap(f"-> {finding.remedy}", room)
    more = rest + (remedy if finding.remedy else [])
    return [f"{title:<{margin}}{word}  {first}", *(indent + line for line in more)]


def _wrap(text: str, width: int) -> list[str]:
    """Paths and options stay whole, so that they can be copied."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _conclusion(
    found: Mapping[str, Findings],
    every: Iterable[Finding],
    num_hosts: int,
    seconds: float,
    scheduled: bool,
) -> list[str]:
    levels = [finding.level for finding in every]
    lines = [
        f"{_count(levels.count(Level.FAILURE), 'failure')}, "
        f"{_count(levels.count(Level.WARNING), 'warning')}; {_count(num_hosts, 'host')}, "
        f"{seconds:.0f} s"
    ]
    missing = [title for title, findings in found.items() if not findings]
    if missing:
        lines.append(f"Not looked at: {', '.join(missing)}.")
    hosts = leave_out(found)
    if hosts and scheduled:
        words = f"--exclude={','.join(hosts)}"
        lines += [f"For salloc and sbatch, or in ARGS as --sbatch={words}:", words]
    elif hosts:
        lines.append(f"Better without: {' '.join(hosts)}")
    return lines


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def leave_out(found: Mapping[str, Findings]) -> list[str]:
    """Hosts that a run would be better off without, each once."""
    every = [finding for findings in found.values() for finding in findings]
    return list(dict.fromkeys(host for finding in every for host in finding.leave_out))


def has_failed(found: Mapping[str, Findings]) -> bool:
    """There is a failure among the findings."""
    return any(f.level is Level.FAILURE for findings in found.values() for f in findings)
