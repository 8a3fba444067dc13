"""All checks, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from launchers.doctor.checks import machine, network, software, speed
from launchers.doctor.facts import Facts
from launchers.doctor.findings import Findings


@dataclass(frozen=True, slots=True)
class Check:
    """A question, and the function that answers it; no finding: it could not be asked."""

    title: str
    judge: Callable[[Facts], Findings]


CHECKS = (
    Check("fork servers", software.fork_servers),
    Check("imports", software.imports),
    Check("versions", software.versions),
    Check("checkout", software.checkout),
    Check("packages", software.packages),
    Check("names", network.names),
    Check("ports", network.ports),
    Check("proxies", network.proxies),
    Check("listening", network.listening),
    Check("clocks", network.clocks),
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


def examine(facts: Facts) -> dict[str, Findings]:
    """What every check has found."""
    return {check.title: check.judge(facts) for check in CHECKS}
