"""Do the hosts run the same program, the one that is meant, and can they build the model?  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from launchers.doctor.check_findings import Finding, SiteFacts, failure, ok, some, warning
from ps_allreduce.record.hosts import SLOW_IMPORT_S

#: Of the kernel; it makes hosts different kinds, but no other program.
KERNEL = "kernel"

#: What is worth a line.
SHOWN = ("python", "tensorflow", "tensorflow-cpu", "keras", "numpy")


def fork_servers(facts: SiteFacts) -> Iterator[Finding]:
    """The program comes up everywhere, and goes on answering."""
    if facts.not_started:
        yield failure(facts.not_started, "mend that first; the rest could not be looked at")
        return
    yield ok(f"{len(facts.checked)} up after {facts.start_s:.1f} s")
    for host, reason in facts.troubles.items():
        yield failure(
            f"{host}: {reason}",
            f"see on {host} what keeps it from answering: memory, disk, network, the scheduler",
            leave_out=[host],
        )


def imports(facts: SiteFacts) -> Iterator[Finding]:
    """TensorFlow is imported in reasonable time."""
    took = {host: one.import_s for host, one in facts.checked.items()}
    if not took:
        return
    # Hosts of one machine import at the same time on the same cores.
    limit = SLOW_IMPORT_S * (len(took) if facts.one_machine else 1)
    slowest = max(took, key=lambda host: took[host])
    least = "" if len(took) == 1 else f"{min(took.values()):.1f} to "
    text = f"TensorFlow imported in {least}{took[slowest]:.1f} s"
    if took[slowest] <= limit:
        yield ok(text)
    else:
        yield warning(
            f"{text} (longest on {slowest})",
            "put the environment on a faster file system, or use a container image (one file)",
        )


def versions(facts: SiteFacts) -> Iterator[Finding]:
    """The same Python and packages on all hosts."""
    per_host = {
        host: {name: text for name, text in one.facts.versions.items() if name != KERNEL}
        for host, one in facts.checked.items()
    }
    if not per_host:
        return
    of_hosts = next(iter(per_host.values()))
    from_here = {"the hosts": of_hosts, "this machine": facts.own_versions}
    if differences := _differences(per_host):
        yield failure(differences, "use one environment for all hosts (docs/setup.md)")
    elif differences := _differences(from_here):
        yield warning(
            differences,
            "harmless as long as the hosts agree, as with a container; else use one environment",
        )
    else:
        shown = ", ".join(f"{name} {text}" for name, text in of_hosts.items() if name in SHOWN)
        yield ok(f"the same everywhere: {shown}")


def _differences(versions_on: Mapping[str, Mapping[str, str]]) -> str:
    """For every package that is not the same everywhere: its versions, and who has them."""
    differences = []
    for name in dict.fromkeys(name for versions in versions_on.values() for name in versions):
        hosts_with: dict[str, list[str]] = {}
        for host, versions in versions_on.items():
            hosts_with.setdefault(versions.get(name, "missing"), []).append(host)
        if len(hosts_with) > 1:
            parts = [f"{version} on {some(hosts)}" for version, hosts in hosts_with.items()]
            differences.append(f"{name} is {', '.join(parts)}")
    return "; ".join(differences)


def checkout(facts: SiteFacts) -> Iterator[Finding]:
    """The measured program is the same on all hosts, and the one here."""
    others = [host for host, state in facts.states.items() if state.digest != facts.own_digest]
    if others:
        yield failure(
            f"the source on {some(others)} is not the one here ({facts.own_digest})",
            "use the same checkout, with the same changes, on all hosts",
            leave_out=others if len(others) < len(facts.hosts) else (),
        )
    elif facts.states:
        yield ok(f"the same source everywhere ({facts.own_digest})")


def packages(facts: SiteFacts) -> Iterator[Finding]:
    """What is imported belongs to the environment."""
    with_user_modules = [host for host, state in facts.states.items() if state.user_modules]
    others = [*_user_site(facts), *_outside(facts)]
    if with_user_modules:
        state = facts.states[with_user_modules[0]]
        yield failure(
            f"{some(state.user_modules)} comes from {state.user_site or '~/.local'} on "
            f"{some(with_user_modules)}, not from the environment",
            "export PYTHONNOUSERSITE=1, or remove the user's own packages",
        )
    elif others:
        yield from others
    elif facts.states:
        yield ok("all of the environment's own")


def _user_site(facts: SiteFacts) -> Iterator[Finding]:
    open_to = {host: s.user_site for host, s in facts.states.items() if s.user_site}
    if open_to:
        folder = next(iter(open_to.values()))
        yield warning(
            f"Python would take packages from {folder} on {some(open_to)}; it took none",
            "export PYTHONNOUSERSITE=1, so that nothing installed there later changes results",
        )


def _outside(facts: SiteFacts) -> Iterator[Finding]:
    """In an environment that was made elsewhere, modules may come from anywhere."""
    hosts = [host for host, state in facts.states.items() if state.outside_modules]
    if not hosts:
        return
    state = facts.states[hosts[0]]
    modules = f"{some(state.outside_modules)} on {some(hosts)}"
    text = f"{modules} come from neither the environment nor the checkout"
    if state.locked:
        yield warning(text, "unset PYTHONPATH, and look for .pth files in the environment")
    else:
        yield ok(f"{text}, as in an environment of modules")


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
