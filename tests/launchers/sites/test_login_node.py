"""Training on a login node is refused; everywhere else nobody is bothered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from launchers import make_launcher
from launchers.processes import Answer
from launchers.settings import LauncherSettings
from launchers.sites import login_node
from launchers.sites.local import LocalLauncher
from launchers.sites.login_node import is_login_node
from ps_allreduce.errors import UserError

UP = "Slurmctld(primary) at controller is UP\n"

DOWN = "Slurmctld(primary) at controller is DOWN\n"


def answer(monkeypatch: pytest.MonkeyPatch, given: tuple[int, str] | None) -> list[Sequence[str]]:
    """Let `scontrol ping` answer; the commands that were run."""
    asked: list[Sequence[str]] = []

    def run_quietly(words: Sequence[str], timeout_s: float) -> Answer | None:
        asked.append(words)
        return given and Answer(status=given[0], out=given[1], err="")

    monkeypatch.setattr(login_node, "run_quietly", run_quietly)
    return asked


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param((0, UP), True, id="controller up"),
        pytest.param((0, UP + DOWN), True, id="backup controller down"),
        pytest.param((1, DOWN), False, id="controller down"),
        pytest.param((1, UP), False, id="failed"),
        pytest.param((0, ""), False, id="silent"),
        pytest.param(None, False, id="no Slurm, or no answer in time"),
    ],
)
def test_a_machine_whose_controller_answers_is_a_login_node(
    monkeypatch: pytest.MonkeyPatch, given: tuple[int, str] | None, expected: bool
) -> None:
    asked = answer(monkeypatch, given)
    assert is_login_node({"HOME": "/"}) is expected
    assert asked == [["scontrol", "ping"]]


@pytest.mark.parametrize("variable", ["SLURM_JOB_ID", "SLURM_JOBID"])
def test_inside_a_job_nobody_is_asked(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    asked = answer(monkeypatch, (0, UP))
    assert not is_login_node({variable: "17"})
    assert asked == []


def test_an_empty_job_number_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, (0, UP))
    assert is_login_node({"SLURM_JOB_ID": ""})


def test_the_local_launcher_refuses_a_login_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(login_node, "is_login_node", lambda _: True)
    with (
        pytest.raises(UserError, match=r"LAUNCHER=slurm.*salloc or sbatch.*--allow-login-node"),
        LocalLauncher(tmp_path),
    ):
        pass


def test_the_refusal_can_be_overruled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def never(_: object) -> NoReturn:
        raise AssertionError("asked although overruled")

    monkeypatch.setattr(login_node, "is_login_node", never)
    with LocalLauncher(tmp_path, allow_login_node=True):
        pass


def test_an_unknown_launcher_is_told_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown launcher 'slrum'; choose one of local"):
        make_launcher("slrum", LauncherSettings(data_dir=tmp_path))
