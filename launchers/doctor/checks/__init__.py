"""All checks, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from launchers.doctor.check_findings import Finding, Findings, SiteFacts
from launchers.doctor.checks import connections, machine, software, speed

#: By the titles of questions, the functions that answer them; no finding: it could not be asked.
CHECKS: Mapping[str, Callable[[SiteFacts], Iterator[Finding]]] = {
    "fork servers": software.fork_servers,
    "imports": software.imports,
    "versions": software.versions,
    "checkout": software.checkout,
    "packages": software.packages,
    "names": connections.names,
    "ports": connections.ports,
    "proxies": connections.proxies,
    "listening": connections.listening,
    "clocks": connections.clocks,
    "hosts": machine.alike,
    "GPUs": machine.gpus,
    "memory": machine.memory,
    "load": machine.load,
    "open files": machine.open_files,
    "TMPDIR": machine.temporary,
    "RESULTS": machine.results,
    "compute": speed.computing,
    "links": speed.links,
    "congestion": speed.congestion,
    "loss": speed.loss,
}


def examine(facts: SiteFacts) -> dict[str, Findings]:
    """What every check has found; one about a model has a line only where there is one."""
    found: dict[str, Findings] = {title: list(judge(facts)) for title, judge in CHECKS.items()}
    return found if facts.building is None else found | {"model": list(software.building(facts))}
