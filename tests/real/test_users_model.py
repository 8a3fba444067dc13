"""A user's own model goes from its file to a record, on this machine."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from experiments import __main__ as command_line
from experiments import surroundings
from experiments.models import settle_model
from launchers.cli import run
from ps_allreduce.record.provenance import ROOT
from tests.cluster import LocalLauncher
from tests.make import run_make

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.usefixtures("two_cores"),
    pytest.mark.timeout(600),
]


#: What the page's commands end with, and what makes them brief.
COMMANDS = {
    "gate": (r"(\d\d) of \1 settings agree", ()),
    "placement": ("Suggested: ", ()),
    "compare": (
        "compare/report.html",
        ("LAUNCHER=local", "NUM_PS=1", "ARGS=--workers 2 --repetitions 1 --warmup-steps 5"),
    ),
    "export": ("Start it: ", ()),
}


def test_the_page_leads_from_the_example_to_a_training_of_ones_own(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "own_model.md").read_text()
    model = tmp_path / "mine.py"
    model.write_text(page.split("```python\n")[1].partition("```")[0])
    lines = re.findall(r"^(?:\$ |.*`)?make ([^`\n]*)", page, re.MULTILINE)
    commands = [shlex.split(line.replace("mine.py", str(model))) for line in lines]
    assert [words[0] for words in commands] == list(COMMANDS)
    target = tmp_path / "my_training"
    here = ("ENV=existing", f"PYTHON={sys.executable}", f"RESULTS={tmp_path / 'results'}")
    for words in commands:
        ending, brief = COMMANDS[words[0]]
        into = (f"INTO={target}",) if "INTO=my_training" in words else ()
        done = run_make(*words, *here, *brief, *into, timeout_s=240)
        assert done.returncode == 0, done.stderr[-3000:]
        assert re.search(ending, done.stdout)
    trained = subprocess.run(
        [target / "launch.sh", "--steps-per-epoch", "5"],
        cwd="/",
        env={name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert "step      5" in trained.stdout
    assert (target / "final.keras").exists()


WORSE = """\
import os
import signal
import sys


def hang():
    while True:
        pass


def leave():
    sys.exit(0)


def vanish():
    os._exit(0)


def crash():
    os.kill(os.getpid(), signal.SIGSEGV)


def chatter():
    for _ in range(300):
        print("word " * 20_000)
    raise RuntimeError("x" * 100_000)
"""

REFUSED = {
    "worse.py:hang": r"hang\(\) of worse\.py did not return within 5 s: it has to return a model",
    "worse.py:leave": r"leave\(\) failed at worse\.py line 12: SystemExit: 0$",
    "worse.py:vanish": r"worse\.py:vanish cannot be used: .* with status 0 and gave no answer",
    "worse.py:crash": r"worse\.py:crash cannot be used: .* by SIGSEGV and gave no answer",
    "worse.py:chatter": r"chatter\(\) failed at worse\.py line 26: RuntimeError: x{300} \.\.\.$",
    "worse.py:absent": r"worse has no function absent; it has hang, leave, vanish, crash, chatter",
    "broken.py:build": r"importing broken failed at broken\.py line 2: SyntaxError: .* closed",
    "lacking.py:build": r"importing lacking failed at lacking\.py line 1: ModuleNotFoundError: ",
}


@pytest.mark.parametrize("model", REFUSED)
def test_a_function_that_does_worse_than_raise_is_refused_in_a_sentence(
    model: str,
    launcher: LocalLauncher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(settle_model, "DEADLINE_S", 5.0)
    monkeypatch.setattr(surroundings, "this_machine", lambda _: nullcontext(launcher))
    monkeypatch.setattr(run, "end_as_interrupted", lambda: None)
    monkeypatch.chdir(tmp_path)
    files = {"worse": WORSE, "broken": "x = 1\ny = (\n", "lacking": "import absent\n"}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert command_line.main(["placement", "--model", model]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert re.search(f"^Error: {REFUSED[model]}", told), told
