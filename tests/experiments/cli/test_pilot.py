"""A sweep that is to be published begins with a pilot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.cli import plan
from experiments.tuning import tune as tuning
from launchers.run.conclude import LaunchedRun
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.record.files import iter_record_paths
from ps_allreduce.record.records import Status
from tests.experiments.conftest import run
from tests.fakes import METRICS, FakeLauncher, bad_run, ok_run

WORDS = (
    *("compare", "--profile", "standard", "--model", "SmallCNN"),
    *("--workers", "1,2", "--results", "made"),
)


@pytest.fixture(autouse=True)
def without_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes before a pilot; Horovod is there."""
    monkeypatch.setattr(tuning, "tuned_first", lambda request: request)
    monkeypatch.setattr(plan, "absence", lambda _: "")


def launches(*rates: float) -> list[LaunchedRun]:
    return [ok_run(metrics=replace(METRICS, examples_per_sec=rate)) for rate in rates]


def windows(launcher: FakeLauncher) -> list[float]:
    measurements = [point.measurement for point in launcher.launched]
    return [each.measured_s for each in measurements if isinstance(each, Measurement)]


def test_a_pilot_chooses_windows_and_launches_once(
    launcher: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.script = launches(9e4, 1e5, 5e4, 105e3, 52e3)
    words = (*WORDS, "--budget-s", "1450")
    assert run(*words) == 0
    said = capsys.readouterr().err
    assert "A pilot of 5 runs chooses" in said
    assert "Launches of SmallCNN spread by 3." in said
    assert (
        "windows of 1 s, every point launched 5 times, those of the main comparison 30 times"
        in said
    )
    assert len(list(iter_record_paths(tmp_path / "made" / "pilot"))) == 5
    assert windows(launcher)[:5] == [1.0] * 5
    assert set(windows(launcher)[5:]) == {1.0}
    made = len(launcher.launched)
    assert run(*words) == 0
    assert len(launcher.launched) == made
    assert "pilot" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--repetitions", "2"), ("--dry-run",)])
def test_stated_repetitions_and_dry_runs_need_no_pilot(
    words: tuple[str, ...], launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*WORDS, *words) == 0
    assert "pilot" not in capsys.readouterr().err
    assert set(windows(launcher)) <= {20.0}


def test_more_points_than_the_time_allows_are_told(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*WORDS, "--budget-s", "30") == 0
    said = capsys.readouterr().err
    assert "That is more than the 0.5 min" in said
    assert "--repetitions 1 takes less" in said
    assert len(launcher.launched) == 5 + 5 * 16


def test_a_pilot_that_fails_leaves_the_profile_as_it_is(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.script = [bad_run(Status.FAILED)] * 5
    assert run(*WORDS) == 0
    assert "Runs of the pilot failed" in capsys.readouterr().err
    assert windows(launcher)[5:] == [20.0] * 80


def test_an_interrupted_pilot_ends_the_call(launcher: FakeLauncher) -> None:
    launcher.script = [bad_run(Status.INTERRUPTED)]
    assert run(*WORDS) == 130
    assert len(launcher.launched) == 1


def test_a_budget_need_not_hold_what_was_made_before(launcher: FakeLauncher) -> None:
    words = ("compare", "--workers", "1,2", "--repetitions", "1")
    assert run(*words) == 0
    launcher.launched.clear()
    assert run(*words, "--budget-s", "30") == 0
    assert launcher.launched == []
