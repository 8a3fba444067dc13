"""The Makefile, run for real by make; only the Python that it starts is a stand-in."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from experiments.studies.catalogue import STUDIES
from ps_allreduce.record.provenance import ROOT
from tests.goldens import golden
from tests.make import run_make

#: Targets, each behind a "$", and what Python is called with: a new one goes there.
CALLS = "sentences/make.txt"

HOSTILE = [
    "with space",
    "it's",
    'say "so"',
    "$(touch pwned)",
    "$(shell touch pwned)",
    "`touch pwned`",
    "x; touch pwned; #",
    "x && touch pwned",
    "$HOME/$$/${PATH}",
    "back\\slash",
    "*",
    "--help",
]

# Answers as a supported Python would, and writes down every other call: each word ended by a NUL,
# each call by a newline and a NUL.
RECORDER = r"""#!/bin/sh
if [ "$1" = -c ]; then echo 3.11; exit; fi
echo "$PYTHONPATH" >"${0%/*}/python-path"
printf '%s\0' "$@" '
' >>"${0%/*}/calls"
"""


class RecordingMake:
    """Runs make with a Python that only writes down how it was called."""

    def __init__(self, folder: Path) -> None:
        self.calls = folder / "calls"
        self.status = 0
        self.python = folder / "python that records"
        self.python.write_text(RECORDER)
        self.python.chmod(0o755)

    def fail_experiments_with(self, status: int) -> None:
        """Let the experiments end with a status."""
        self.status = status
        with self.python.open("a") as script:
            script.write(f'if [ "$2" = experiments ]; then exit {status}; fi\n')

    def __call__(self, *words: str) -> list[list[str]]:
        """Run make and return the calls after the check of the environment."""
        done = run_make("ENV=existing", f"PYTHON={self.python}", *words)
        assert (done.returncode == 0) == (self.status == 0), done.stderr
        calls = [call.split("\0")[:-1] for call in self.calls.read_text().split("\n\0")[:-1]]
        assert calls[0] == ["-m", "ps_allreduce.environment"]
        return calls[1:]


@pytest.fixture
def recording_make(tmp_path: Path) -> RecordingMake:
    return RecordingMake(tmp_path)


def test_make_alone_describes_every_target_and_variable() -> None:
    done = run_make(check=True)
    help_text = done.stdout
    assert not done.stderr
    makefile = (ROOT / "Makefile").read_text()
    variables = re.findall(r"^VARIABLES = (.*)$", makefile, re.MULTILINE)[0].split()
    targets = re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE)
    for target in {*targets, *STUDIES} - {"help", "environment", "lint", "dev-tools"}:
        assert f"make {target} " in help_text, target
    for variable in set(variables) - {"UV"}:
        assert f"{variable}=" in help_text, variable
    for study in STUDIES.values():
        assert study.about.partition("\n")[0] in help_text


@pytest.mark.parametrize("word", ["MODELL=ResNet50", "WORKERS=4", "results=here"])
def test_an_unknown_variable_is_refused(word: str) -> None:
    done = run_make("compare", word)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{word.partition('=')[0]}: no variable of this Makefile" in done.stderr


def test_another_folder_than_the_makefiles_is_refused(tmp_path: Path) -> None:
    done = run_make("-C", str(tmp_path), "-f", str(ROOT / "Makefile"), "report")
    assert (done.returncode, done.stdout) == (2, "")
    assert "use make -C FOLDER" in done.stderr
    assert "No such file" not in done.stderr


@pytest.mark.parametrize(
    ("goal", "word"), [("compare", "HOSTS=4"), ("report", "MODEL=VGG16"), ("tune", "NUM_PS=2")]
)
def test_a_variable_that_a_target_does_not_take_is_refused(goal: str, word: str) -> None:
    done = run_make(goal, word)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{word.partition('=')[0]}: make {goal} does not take it." in done.stderr


@pytest.mark.parametrize("sweep", STUDIES)
def test_sweep_gets_profile_launcher_and_results(recording_make: RecordingMake, sweep: str) -> None:
    given = ["--profile", "standard", "--launcher", "auto", "--results", "results"]
    assert recording_make(sweep, "PROFILE=standard") == [
        ["-m", "experiments", sweep, *given],
        ["-m", "analysis", "report", "--", f"results/{sweep}"],
    ]


@pytest.mark.parametrize(("status", "calls"), [(0, 2), (1, 2), (2, 1), (130, 1)])
def test_failed_points_are_analysed_mistakes_are_not_and_make_fails_with_both(
    recording_make: RecordingMake, tmp_path: Path, status: int, calls: int
) -> None:
    runs = tmp_path / "results" / "compare" / "runs"
    runs.mkdir(parents=True)
    recording_make.fail_experiments_with(status)
    assert len(recording_make("compare", f"RESULTS={tmp_path / 'results'}")) == calls


def test_a_sweep_that_could_not_begin_has_nothing_to_analyse(
    recording_make: RecordingMake, tmp_path: Path
) -> None:
    recording_make.fail_experiments_with(1)
    assert len(recording_make("compare", f"RESULTS={tmp_path / 'results'}")) == 1


def test_target_calls(recording_make: RecordingMake) -> None:
    lines = []
    for command in re.findall(r"^\$ make (.*)", (golden.FILES / CALLS).read_text(), re.MULTILINE):
        recording_make.calls.unlink(missing_ok=True)
        (call,) = recording_make(*shlex.split(command))
        told = [word.replace(str(recording_make.python), "/opt/python") for word in call]
        lines += [f"$ make {command}", shlex.join(["python", *told]), ""]
    golden.check({CALLS: "\n".join(lines)})


@pytest.mark.parametrize("value", HOSTILE)
def test_values_arrive_as_they_were_written(recording_make: RecordingMake, value: str) -> None:
    names = ["RESULTS", "MODEL", "NUM_PS", "LAUNCHER"]
    call, report = recording_make("ps-sweep", *(f"{name}={value}" for name in names))
    assert report[3:] == ["--", f"{value}/ps-sweep"]
    options = call[3:]
    assert dict(zip(options[::2], options[1::2], strict=True)) == {
        "--profile": "quick",
        "--launcher": value,
        "--results": value,
        "--model": value,
        "--num-ps": value,
    }
    assert not (ROOT / "pwned").exists()


def test_args_are_split_at_spaces_and_nothing_else(recording_make: RecordingMake) -> None:
    call, _ = recording_make("compare", "ARGS=--seed 3 * $(touch pwned) ; 'one two'")
    assert call[9:] == ["--seed", "3", "*", "$(touch", "pwned)", ";", "'one", "two'"]
    assert not (ROOT / "pwned").exists()


def test_what_is_measured_is_not_taken_from_the_callers_environment(
    recording_make: RecordingMake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PROFILE", "LAUNCHER", "RESULTS", "MODEL", "NUM_PS", "ARGS"):
        monkeypatch.setenv(name, "left-over")
    call, _ = recording_make("compare")
    assert "left-over" not in call


def test_checkout_comes_first_on_the_path_of_an_existing_environment(
    recording_make: RecordingMake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/site/module")
    recording_make("compare")
    path = (recording_make.python.parent / "python-path").read_text()
    assert path == f"{ROOT}:/site/module\n"


@pytest.mark.parametrize(
    ("word", "choices"),
    [("PROFILE=fast", "quick standard"), ("ENV=conda", "venv existing"), ("TF=rocm", "cpu cuda")],
)
def test_unknown_value_names_the_choices(word: str, choices: str, tmp_path: Path) -> None:
    result = run_make("compare", word, f"VENV={tmp_path / 'venv'}")
    assert result.returncode != 0
    sentence = result.stderr.splitlines()[0]
    assert sentence == f"{word} is not known; choose one of: {choices}."
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(("status", "runs"), [(0, 3), (1, 3), (2, 2)])
def test_a_failed_real_test_does_not_hide_those_that_are_timed(
    recording_make: RecordingMake, status: int, runs: int
) -> None:
    recording_make.status = status
    with recording_make.python.open("a") as script:
        script.write(f'case "$*" in *"and not timed"*) exit {status};; esac\n')
    assert sum(call[:2] == ["-m", "pytest"] for call in recording_make("test")) == runs
