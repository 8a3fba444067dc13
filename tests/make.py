"""Runs the Makefile of this checkout."""

from __future__ import annotations

import os
import subprocess

from ps_allreduce.record.provenance import ROOT

#: What the make that may be running these tests exports.
EXPORTED = {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "VENV", "TF", "HOROVOD", "PYTHON", "WHEELHOUSE"}


def run_make(
    *words: str, check: bool = False, timeout_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run make with words, and nothing of a make around it."""
    inherited = {name: value for name, value in os.environ.items() if name not in EXPORTED}
    return subprocess.run(
        ["make", "-C", str(ROOT), "--no-print-directory", *words],
        env=inherited,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=check,
    )
