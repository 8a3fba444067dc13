"""Can the model be built on the hosts?  Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launchers.doctor.findings import Finding, SiteFacts, failure, ok


def building(facts: SiteFacts) -> Iterator[Finding]:
    """Every host builds the model that is to be trained."""
    if (tried := facts.building) is None:
        return
    for host in facts.hosts:
        if host in tried.refused:
            yield failure(
                f"{host}: {tried.refused[host]}",
                f"see what {host} lacks for {tried.model}: a package, a file, memory, time",
            )
        elif host in tried.built_s:
            yield ok(
                f"{host}: {tried.model} built in {tried.built_s[host]:.1f} s, "
                f"{tried.parameters[host]:,} trainable parameters"
            )
