"""Which state of the suite's source makes a run."""

from __future__ import annotations

from pathlib import Path

from launchers.processes import run_quietly
from ps_allreduce.record.provenance import ROOT, source_digest

PACKAGES = ("ps_allreduce", "launchers", "experiments")


def source_state(root: Path = ROOT) -> str:
    """The commit, with a digest of the source files where they differ from it.

    Without git, the digest alone.
    """
    digest = source_digest(path for name in PACKAGES for path in (root / name).rglob("*.py"))
    head = run_quietly(["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"], 10)
    if head is None or head.status != 0:
        return f"unknown, source {digest}"
    changed = run_quietly(["git", "-C", str(root), "status", "--porcelain", "--", *PACKAGES], 10)
    clean = changed is not None and changed.status == 0 and not changed.out.strip()
    return head.out.strip() if clean else f"{head.out.strip()} with changes, source {digest}"
