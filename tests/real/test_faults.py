"""A few minutes of faults at random moments of real sweeps; `make faults` goes on for days."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ps_allreduce.record.provenance import ROOT
from tests.conftest import skip_or_fail
from tests.faults.tally import Verdict, read

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("two_cores", "mounts"),
]


@pytest.fixture
def mounts() -> None:
    """Whoever is not root may become it in a namespace."""
    words = ["unshare", "--user", "--map-root-user", "--mount", "true"]
    done = subprocess.run(words, capture_output=True, check=False, text=True)
    if done.returncode:
        skip_or_fail(f"faults need namespaces: {done.stderr.strip()}")


@pytest.mark.parametrize(("launcher", "seed"), [("local", 1), ("emulated", 1)])
def test_faults_at_random_moments_break_no_promise(
    launcher: str, seed: int, tmp_path: Path
) -> None:
    file = tmp_path / "faults.jsonl"
    words = ["--faults", "1", "--seed", str(seed), "--launcher", launcher, "--file", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {line.verdict for line in read(file)} <= {Verdict.HELD, Verdict.MISSED}
