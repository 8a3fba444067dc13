"""A command line ends as it should: at once while it is importing, and where nobody hears it.

One whose Python lacks a package says so in a sentence.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.talk import assert_gone

#: A module that takes for ever to import.
SLOW = "import time\nprint('importing', flush=True)\ntime.sleep(60)\n"


#: Asks itself to end when Python has begun to.
ENDING = """
import atexit, os, sys
from ps_allreduce.process import end_at_once, end_in_order, end_with
end_at_once()
end_in_order()
atexit.register(os.kill, os.getpid(), int(sys.argv[1]))
end_with(0)
"""

PROGRAMS = ("experiments", "launchers", "analysis")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_program_that_is_still_importing_ends_quietly(
    tmp_path: Path, number: signal.Signals, name: str
) -> None:
    (tmp_path / "click.py").write_text(SLOW)
    program = subprocess.Popen(
        [sys.executable, "-m", name, "--help"],
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_program_that_has_done_its_work_keeps_its_status(number: signal.Signals) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", ENDING, str(int(number))], stderr=subprocess.PIPE, text=True
    )
    assert program.communicate(timeout=10)[1] == ""
    assert program.returncode == 0


@pytest.mark.parametrize(
    ("words", "streams", "status", "told"),
    [
        (
            "-m experiments --help",
            "> /dev/full",
            1,
            "Error: standard output cannot be written (No space left on device).\n",
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


def test_streams_that_are_closed_leave_their_numbers_to_no_file() -> None:
    program = (
        "import os; from ps_allreduce.process import end_at_once; end_at_once(); "
        "os._exit(os.open('/', os.O_RDONLY))"
    )
    words = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    assert subprocess.run(words, env=environment, check=False).returncode == 3


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_python_without_packages_is_told_what_to_do(name: str) -> None:
    words = [sys.executable, "-S", "-m", name, "--help"]  # -S leaves out the environment's packages
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(words, env=environment, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot run the suite: No module named 'click'. `make setup` makes" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_defect_of_the_suite_is_no_missing_package(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import launchers.nothing\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    words = [sys.executable, "-m", "launchers", "--help"]
    done = subprocess.run(words, env=environment, capture_output=True, check=False, text=True)
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'launchers.nothing'" in done.stderr


def test_a_program_ends_with_the_shell_of_its_recipe() -> None:
    program = (
        "import os, time; from ps_allreduce.process import end_at_once; end_at_once(); "
        "print(os.getpid(), flush=True); time.sleep(60)"
    )
    recipe = 'PS_ALLREDUCE_RECIPE=$$ "$1" -c "$2"; true'
    words = ["sh", "-c", recipe, "sh", sys.executable, program]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        shell.terminate()
        assert_gone([pid])
