"""All checks, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from launchers.doctor.checks import connections, machine, software, speed
from launchers.doctor.findings import Finding, Findings
from launchers.doctor.site_facts import SiteFacts


@dataclass(frozen=True, slots=True)
class Check:
    """A question, and the function that answers it; no finding: it could not be asked."""

    title: str
    judge: Callable[[SiteFacts], Iterator[Finding]]


CHECKS = (
    Check("fork servers", software.fork_servers),
    Check("imports", software.imports),
    Check("versions", software.versions),
    Check("checkout", software.checkout),
    Check("packages", software.packages),
    Check("names", connections.names),
    Check("ports", connections.ports),
    Check("proxies", connections.proxies),
    Check("listening", connections.listening),
    Check("clocks", connections.clocks),
    Check("hosts", machine.alike),
    Check("GPUs", machine.gpus),
    Check("memory", machine.memory),
    Check("load", machine.load),
    Check("open files", machine.open_files),
    Check("TMPDIR", machine.temporary),
    Check("RESULTS", machine.results),
    Check("compute", speed.computing),
    Check("links", speed.links),
)


def examine(facts: SiteFacts) -> dict[str, Findings]:
    """What every check has found."""
    return {check.title: list(check.judge(facts)) for check in CHECKS}
