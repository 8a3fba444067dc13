"""Comparisons of a setting with itself from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.suite.json_lines import read_lines
from analysis.suite.rule.self_comparisons import FILE, SelfComparison
from tests.experiments.conftest import Machine, run
from tests.fakes import FakeLauncher


def test_every_session_adds_its_comparisons(
    launcher: FakeLauncher, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("self-comparisons", "--comparisons", "1", "--launches", "3") == 0
    # Two settings, two sides with three launches each.
    assert len(launcher.launched) == 12
    found = read_lines(Path("results") / FILE, SelfComparison)
    assert [each.launches for each in found] == [3, 3]
    assert not any(each.false_alarm for each in found)
    assert "a setting compared with itself, 2 times in 1 sweep:" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("--comparisons", "0"), ("--launches", "2")])
def test_too_few_are_refused(launcher: FakeLauncher, words: tuple[str, str]) -> None:
    assert run("self-comparisons", *words) == 2
    assert launcher.launched == []
