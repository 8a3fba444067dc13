"""What checks are told about a site and what they say, and the table that people read.  Pure.

Decides that whoever reports a failure also says what to do about it.  What is good or bad, the
checks decide.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rich.text import Text

from launchers.site import Advice
from ps_allreduce.inspection.questions import HostState
from ps_allreduce.record.hosts import HostFacts, TcpCounters
from ps_allreduce.record.records import LinkRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheck:
    """One host whose fork server answers.

    Attributes:
        facts: what its fork server saw when it started.
        address: that its tasks would be reached by.
        import_s: time in which TensorFlow was imported.
        state: what it found; None if it could not look.
        clock_offset_s: of its clock against the launcher's; None if it was not asked.
        gpus_of_worker: how many CUDA shows a worker; None if it was not asked.
        gpus_of_server: how many it shows a parameter server.
        gpu_problem: what CUDA complains about.
    """

    facts: HostFacts
    address: str
    import_s: float
    state: HostState | None = None
    clock_offset_s: float | None = None
    gpus_of_worker: int | None = None
    gpus_of_server: int | None = None
    gpu_problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What became of files that hosts wrote into the results folder.

    Attributes:
        refused: why the launcher itself cannot write there; empty if it can.
        unwritable: why a host cannot.
        delays_s: seconds until a reader (outer key) saw what a writer (inner key) had written; no
            entry: it never did.
        unseen_here: hosts whose file the launcher does not see.
    """

    refused: str = ""
    unwritable: Mapping[str, str] = field(default_factory=dict)
    delays_s: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    unseen_here: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """What became of bytes that all other hosts sent to one at the same moments.

    Attributes:
        target: the one.
        congestion: the congestion control of every sender's connection, by host.
        tcp: what all senders counted; None if a kernel does not tell.
    """

    target: str
    congestion: Mapping[str, str]
    tcp: TcpCounters | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Building:
    """What became of a model that all hosts built at once.

    Attributes:
        model: its name.
        refused: why a host could not build it.
        built_s: seconds that it took, on the others.
        parameters: how many are trained, on the same.
    """

    model: str
    refused: Mapping[str, str] = field(default_factory=dict)
    built_s: Mapping[str, float] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFacts:
    """What was found out about a site.

    Attributes:
        hosts: all that were asked for, in their order.
        ps_hosts: those of them that are named for servers.
        one_machine, shares_files, advice: as the site says.
        mixed_hosts: hosts of different kinds are welcome.
        own_proxies: that gRPC would take from this process's environment.
        own_digest: of the program in this checkout.
        own_versions: of Python and the packages in this process.
        not_started: why the fork servers did not come up; empty if they did.
        start_s: time until all of them were ready.
        checked: the hosts whose fork servers answer.
        troubles: why a host could not be looked at further.
        sharing: None if it was not tried.
        flops: 32-bit floating-point operations per second of every host, all busy at once.
        links: what was measured between hosts.
        links_trouble: why that came to an end; empty if it did not.
        bursts: None if they could not be tried.
        building: None where no model was to be built, or no host was there.
    """

    hosts: tuple[str, ...]
    ps_hosts: tuple[str, ...] = ()
    one_machine: bool
    shares_files: bool
    advice: Advice
    mixed_hosts: bool = False
    results: str
    own_proxies: Mapping[str, str] = field(default_factory=dict)
    own_digest: str
    own_versions: Mapping[str, str]
    not_started: str = ""
    start_s: float = 0.0
    checked: Mapping[str, HostCheck] = field(default_factory=dict)
    troubles: Mapping[str, str] = field(default_factory=dict)
    sharing: Sharing | None = None
    flops: Mapping[str, float] = field(default_factory=dict)
    links: tuple[LinkRecord, ...] = ()
    links_trouble: str = ""
    bursts: Bursts | None = None
    building: Building | None = None

    @property
    def states(self) -> dict[str, HostState]:
        """Of the hosts that could look."""
        return {host: one.state for host, one in self.checked.items() if one.state is not None}


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


def warning(text: str, remedy: str) -> Finding:
    """Runs can be made, but somebody should know."""
    return Finding(level=Level.WARNING, text=text, remedy=remedy)


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
    indent = " " * (margin + LEVEL_WIDTH + 2)
    room = max(width - len(indent), 30)
    first, *rest = _wrap(finding.text, room) or [""]
    remedy = _wrap(f"-> {finding.remedy}", room)
    more = rest + (remedy if finding.remedy else [])
    begin = f"{title:<{margin}}{_shown(finding.level)}  {first}"
    return [begin, *(indent + line for line in more)]


def coloured(table: str) -> Text:
    """The same text, on a terminal with levels in colours."""
    text = Text(table)
    for level, colour in COLOURS.items():
        text.highlight_words([f"{_shown(level)}  "], colour)
    return text


def _shown(level: Level) -> str:
    return f"{level if level is Level.OK else level.upper():<{LEVEL_WIDTH}}"


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
