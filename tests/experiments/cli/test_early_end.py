"""A command line that is asked to end while it is importing ends at once and without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

#: A module that takes for ever to import.
SLOW = "import time\nprint('importing', flush=True)\ntime.sleep(60)\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_program_that_is_still_importing_ends_quietly(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "click.py").write_text(SLOW)
    program = subprocess.Popen(
        [sys.executable, "-m", "experiments", "--help"],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "importing\n"
    program.send_signal(number)
    assert program.communicate(timeout=10) == ("", "")
    assert program.returncode == 130
