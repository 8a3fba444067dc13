"""What commands take from the world around them: launchers, and the state of the source.

The one place where tests put something else.
"""

from __future__ import annotations

from pathlib import Path

from launchers import make_launcher
from launchers.processes import run_quietly
from launchers.run.launcher import HostsLauncher
from launchers.settings import LauncherSettings
from ps_allreduce.record.provenance import ROOT, source_digest

PACKAGES = ("ps_allreduce", "launchers", "experiments")


#: The launcher that was asked for.
launcher_of = make_launcher


def this_machine(results: Path) -> HostsLauncher:
    """A launcher to ask about models and images, wherever runs are made."""
    return make_launcher(LauncherSettings(results=results, allow_login_node=True))


def source_state(root: Path = ROOT) -> str:
    """The state of the suite's source: the commit, or with changes a digest of its files as well.

    Without git, the digest alone.
    """
    sources = (path for name in PACKAGES for path in (root / name).rglob("*.py"))
    digest = source_digest(sources, root)
    head = run_quietly(["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"], 10)
    if head is None or head.status != 0:
        return f"unknown, source {digest}"
    changed = run_quietly(["git", "-C", str(root), "status", "--porcelain", "--", *PACKAGES], 10)
    clean = changed is not None and changed.status == 0 and not changed.out.strip()
    return head.out.strip() if clean else f"{head.out.strip()} with changes, source {digest}"
