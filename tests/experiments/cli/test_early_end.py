"""A command line ends as it should: at once while it is importing, and where nobody hears it."""

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


@pytest.mark.parametrize(
    ("words", "streams", "status", "told"),
    [
        (
            "-m experiments --help",
            "> /dev/full",
            1,
            "Error: this host refuses the launcher something: No space",
        ),
        (
            "-m experiments compare --workers 0",
            "> /dev/full",
            2,
            "Usage: python -m experiments compare",
        ),
        ("-m experiments compare --workers 0", "2> /dev/full", 2, ""),
        ("-m experiments compare --workers 0", "<&- >&- 2>&-", 2, ""),
        ("-O -m experiments --help", "", 2, "Error: without its assertions the suite would not"),
    ],
)
def test_output_that_is_lost_leaves_the_status(
    words: str, streams: str, status: int, told: str
) -> None:
    command = f"{sys.executable} {words} {streams}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False, text=True)
    assert done.returncode == status
    assert done.stderr.startswith(told)
    assert "Exception" not in done.stderr
