"""Do the hosts run the same program, and the one that is meant?  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from launchers.doctor.facts import Facts
from launchers.doctor.findings import Findings, failure, ok, some, warning

#: An import from a shared file system in a bad mood; one that is well takes three to ten.
SLOW_IMPORT_S = 30.0

#: Of the kernel; it makes hosts different kinds, but no other program.
KERNEL = "kernel"


def fork_servers(facts: Facts) -> Findings:
    """The program comes up everywhere, and goes on answering."""
    if facts.not_started:
        return [failure(facts.not_started, "mend that first; the rest could not be looked at")]
    up = ok(f"{len(facts.checked)} up after {facts.start_s:.1f} s")
    return [
        up,
        *(
            failure(
                f"{host}: {reason}",
                f"see on {host} what keeps it from answering: memory, disk, network, the scheduler",
                leave_out=[host],
            )
            for host, reason in facts.troubles.items()
        ),
    ]


def imports(facts: Facts) -> Findings:
    """TensorFlow is imported in reasonable time."""
    if not facts.checked:
        return []
    took = {host: one.import_s for host, one in facts.checked.items()}
    # Hosts of one machine import at the same time on the same cores.
    limit = SLOW_IMPORT_S * (len(took) if facts.one_machine else 1)
    slowest = max(took, key=lambda host: took[host])
    least = "" if len(took) == 1 else f"{min(took.values()):.1f} to "
    text = f"TensorFlow imported in {least}{took[slowest]:.1f} s"
    if took[slowest] > limit:
        return [
            warning(
                f"{text} (longest on {slowest})",
                "put the environment on a faster file system, or use a container image (one file)",
            )
        ]
    return [ok(text)]


def versions(facts: Facts) -> Findings:
    """The same Python and packages on all hosts."""
    per_host = {
        host: {name: text for name, text in one.facts.versions.items() if name != KERNEL}
        for host, one in facts.checked.items()
    }
    if not per_host:
        return []
    if differences := _differences(per_host):
        return [
            failure("; ".join(differences), "use one environment for all hosts (docs/setup.md)")
        ]
    theirs = next(iter(per_host.values()))
    if differences := _differences({"the hosts": theirs, "this machine": facts.own_versions}):
        return [
            warning(
                "; ".join(differences),
                "harmless as long as the hosts agree, as with a container; else use one "
                "environment",
            )
        ]
    told = ", ".join(f"{name} {text}" for name, text in theirs.items() if name in SHOWN)
    return [ok(f"the same everywhere: {told}")]


#: What is worth a line.
SHOWN = ("python", "tensorflow", "tensorflow-cpu", "keras", "numpy")


def _differences(found: Mapping[str, Mapping[str, str]]) -> list[str]:
    """For every package that is not the same everywhere: its versions, and who has them."""
    names = dict.fromkeys(name for versions in found.values() for name in versions)
    told = []
    for name in names:
        holders: dict[str, list[str]] = {}
        for host, versions in found.items():
            holders.setdefault(versions.get(name, "missing"), []).append(host)
        if len(holders) > 1:
            parts = [f"{version} on {some(hosts)}" for version, hosts in holders.items()]
            told.append(f"{name} is {', '.join(parts)}")
    return told


def checkout(facts: Facts) -> Findings:
    """The measured program is the same on all hosts, and the one here."""
    other = {h: s.digest for h, s in facts.states.items() if s.digest != facts.own_digest}
    if other:
        return [
            failure(
                f"the source on {some(other)} is not the one here ({facts.own_digest})",
                "use the same checkout, with the same changes, on all hosts",
                leave_out=other if len(other) < len(facts.hosts) else (),
            )
        ]
    return [ok(f"the same source everywhere ({facts.own_digest})")] if facts.states else []


def packages(facts: Facts) -> Findings:
    """What is imported belongs to the environment."""
    if not facts.states:
        return []
    users = {h: s.user_modules for h, s in facts.states.items() if s.user_modules}
    if users:
        host, modules = next(iter(users.items()))
        return [
            failure(
                f"{some(modules)} comes from {facts.states[host].user_site or '~/.local'} on "
                f"{some(users)}, not from the environment",
                "export PYTHONNOUSERSITE=1, or remove the user's own packages",
            )
        ]
    return [*_user_site(facts), *_outside(facts)] or [ok("all of the environment's own")]


def _user_site(facts: Facts) -> Findings:
    open_to = {host: s.user_site for host, s in facts.states.items() if s.user_site}
    if not open_to:
        return []
    folder = next(iter(open_to.values()))
    return [
        warning(
            f"Python would take packages from {folder} on {some(open_to)}; it took none",
            "export PYTHONNOUSERSITE=1, so that nothing installed there later changes results",
        )
    ]


def _outside(facts: Facts) -> Findings:
    """In an environment that was made elsewhere, modules may come from anywhere."""
    found = {h: s.outside_modules for h, s in facts.states.items() if s.outside_modules}
    if not found:
        return []
    host, modules = next(iter(found.items()))
    text = f"{some(modules)} on {some(found)} come from neither the environment nor the checkout"
    if not facts.states[host].locked:
        return [ok(f"{text}, as in an environment of modules")]
    return [warning(text, "unset PYTHONPATH, and look for .pth files in the environment")]
