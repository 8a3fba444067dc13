"""The right to make namespaces: how it is got, used, and what to do where it is refused.

Decides the words that start a program in namespaces of its own, and those that enter them.  It
starts nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

CAP_NET_ADMIN = 12

CAP_SYS_ADMIN = 21

#: Settings of the kernel that forbid ordinary users their namespaces: the value that does, and
#: the one that root may set instead.
FORBIDDING = {
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
    "user.max_user_namespaces": ("0", "10000"),
    "user.max_net_namespaces": ("0", "10000"),
    "user.max_uts_namespaces": ("0", "10000"),
}


def has_capabilities(status: str) -> bool:
    """Whether a process may make namespaces as it is, by its /proc/PID/status."""
    (effective,) = [line for line in status.splitlines() if line.startswith("CapEff:")]
    held = int(effective.split()[1], 16)
    return all(held >> capability & 1 for capability in (CAP_NET_ADMIN, CAP_SYS_ADMIN))


def needs_user_namespace() -> bool:
    """Whether this process needs a user namespace in order to make others."""
    return not has_capabilities(Path("/proc/self/status").read_text(encoding="utf-8"))


def unshare_words(with_user: bool) -> tuple[str, ...]:
    """What to put before a command that gets a network of its own."""
    user = ("--user", "--map-root-user") if with_user else ()
    return ("unshare", *user, "--net", "--")


def enter_words(pid: int, net: str, uts: str, with_user: bool) -> tuple[str, ...]:
    """What to put before a command that runs in namespaces that a process holds."""
    user = (f"--user=/proc/{pid}/ns/user", "--preserve-credentials") if with_user else ()
    return ("nsenter", *user, f"--net={net}", f"--uts={uts}", "--")


def read_settings(root: Path = Path("/proc/sys")) -> dict[str, str]:
    """Those of the settings that forbid which this kernel has."""
    settings = {}
    for name in FORBIDDING:
        with suppress(OSError):
            settings[name] = (root / name.replace(".", "/")).read_text(encoding="ascii").strip()
    return settings


def explain_refusal(refusal: str, settings: Mapping[str, str]) -> str:
    """What to do about a namespace that was refused.

    Args:
        refusal: the error as the system words it.
        settings: as `read_settings` found them.
    """
    remedies = [
        f"{name}={allowing}"
        for name, (forbidding, allowing) in FORBIDDING.items()
        if settings.get(name) == forbidding
    ]
    if remedies:
        advice = f"have root set 'sysctl -w {' '.join(remedies)}', or run this as root"
    elif os.strerror(errno.ENOSPC) in refusal:
        advice = "have root raise the limits of 'sysctl user', or end other programs that hold some"
    else:
        advice = (
            "run this as root; inside a container, give it the capabilities SYS_ADMIN and "
            "NET_ADMIN, or a security profile that lets it call unshare"
        )
    return f"emulated hosts need namespaces, which this machine refuses ({refusal}): {advice}."
