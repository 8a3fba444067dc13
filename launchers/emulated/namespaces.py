"""The right to make namespaces: how it is got, used, and what to do where it is refused.

Decides the words that start a program in namespaces of its own.  It starts nothing.
"""

from __future__ import annotations

from pathlib import Path

CAP_NET_ADMIN = 12

CAP_SYS_ADMIN = 21


def has_capabilities(status: str) -> bool:
    """Whether a process may make namespaces as it is, by its /proc/PID/status."""
    (effective,) = [line for line in status.splitlines() if line.startswith("CapEff:")]
    held = int(effective.split()[1], 16)
    return all(held >> capability & 1 for capability in (CAP_NET_ADMIN, CAP_SYS_ADMIN))


def needs_user_namespace() -> bool:
    """Whether this process needs a user namespace in order to make others."""
    return not has_capabilities(Path("/proc/self/status").read_text(encoding="ascii"))


def unshare_words(with_user: bool) -> tuple[str, ...]:
    """What to put before a command that gets a network of its own."""
    user = ("--user", "--map-root-user") if with_user else ()
    return ("unshare", *user, "--net", "--")


def enter_words(pid: int, net: str, uts: str, with_user: bool) -> tuple[str, ...]:
    """What to put before a command that runs in namespaces that a process holds."""
    user = (f"--user=/proc/{pid}/ns/user", "--preserve-credentials") if with_user else ()
    return ("nsenter", *user, f"--net={net}", f"--uts={uts}", "--")
