"""The command line: mistakes are one sentence and status 2."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from analysis import __main__ as analysis
from experiments.__main__ import cli
from experiments.cli import plan
from launchers import __main__ as launchers
from launchers.cli.options import RareOption
from tests.experiments.conftest import run
from tests.fakes import FakeLauncher
from tests.goldens import golden

#: Commands that make no sense, each behind a "$", and what is said of them: a new one goes there.
#: Those of other programs than the experiments begin with its name.
REFUSALS = "sentences/refusals.txt"

PROGRAMS = {"analysis": analysis.main, "launchers": launchers.main}


def test_a_mistake_is_one_sentence_and_status_2(
    launcher: FakeLauncher,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "absence", lambda _: "")  # not every environment can train all
    leave_files()
    commands = re.findall(r"^\$ (.*)", (golden.FILES / REFUSALS).read_text(), re.MULTILINE)
    lines = []
    for command in commands:
        program, *words = shlex.split(command)
        main = PROGRAMS.get(program)
        status = run(program, *words) if main is None else main(words)
        assert status == 2, command
        out, err = capsys.readouterr()
        *usage, error = err.splitlines()
        assert (out, error[:7]) == ("", "Error: "), command
        assert not usage or usage[0].startswith(("Usage: python -m ", "Trying ")), command
        lines += [f"$ {command}", error.replace(str(tmp_path), "/home/ann"), ""]
    golden.check({REFUSALS: "\n".join(lines)})
    assert launcher.launched == []


def leave_files() -> None:
    """Models, a pipe and a folder where files are asked for, and images that are none."""
    Path("mine.py").write_text("def build(): ...")
    Path("saved.keras").touch()
    for folder in ("images", "folder.py"):
        Path(folder).mkdir()
    for pipe in ("pipe.py", "images/a.tfrecord"):
        os.mkfifo(pipe)


@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize(
    "text",
    [
        "--profile [quick|standard]",
        "--precision [float32|mixed_float16|mixed_bfloat16]",
        "--layout [colocated|dedicated|ps_hosts]",
        "--launcher [auto|local|emulated|slurm|ssh]",
        "tensors are cut; 0: never. [default: 500kB]",
        "larger variables. [default: 4MB, less for small models]",
    ],
)
def test_help_shows_choices_and_defaults(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("compare", "--help-all") == 0
    assert text in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize("command", ["compare", "run-one", "gate", "bench", "tune"])
def test_help_shows_some_two_dozen_options_and_says_how_many_more_there_are(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(word: str) -> tuple[list[str], str]:
        assert run(command, word) == 0
        text = capsys.readouterr().out
        return re.findall(r"^  (?:-h, )?(--[a-z-]+)", text, re.MULTILINE), text

    usual, brief = shown("--help")
    every, whole = shown("--help-all")
    assert len(usual) <= 32
    assert {"--launcher", "--results", "--help-all", "--help"} < set(usual) < set(every)
    assert f"{len(every) - len(usual)} further options: --help-all shows them." in brief
    assert "further options" not in whole


def test_the_help_of_compare_has_what_most_calls_state() -> None:
    rare = [each for each in cli.commands["compare"].params if isinstance(each, RareOption)]
    names = {each.name for each in cli.commands["compare"].params} - {each.name for each in rare}
    assert {"model", "num_ps", "hosts", "bandwidth", "dry_run", "emulate", "workers"} < names
    assert len(names) <= 26


@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize("words", [["--help"], ["compare", "--help"], ["run-one", "-h"]])
def test_help_is_no_mistake(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 0
    assert "Usage: python -m experiments" in capsys.readouterr().out
