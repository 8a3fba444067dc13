"""Planted causes from the command line: every turn is made once, and the command goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.suite.found_causes import FILE, FOLDER, PlantedTurn, read_lines
from experiments.suite.planted_causes import BEFOREHAND
from experiments.suite.planted_points import SIDES, draws, sound_point
from ps_allreduce.record.records import Status
from tests.experiments.conftest import Machine, run
from tests.fakes import FakeLauncher, bad_run, make_host, ok_run

#: Draws neither a hot server, which needs links, nor busy cores, which would burn some.
SEED = "34"


def test_turns_are_made_and_judged_once(
    launcher: FakeLauncher, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("planted-causes", "--seed", SEED, "--launches", "3")
    assert run(*words, "--budget-s", "0") == 1
    assert launcher.launched == []
    launcher.script = [bad_run(Status.INTERRUPTED)]
    assert run(*words) == 130
    assert len(launcher.launched) == 1
    launcher.launched.clear()
    # Both are made again.
    stolen = ok_run(hosts=(make_host(stolen_load=0.3),))
    launcher.script += [bad_run(Status.FAILED), stolen]
    assert run(*words) == 0
    turns = read_lines(Path("results") / FOLDER / SEED / FILE, PlantedTurn)
    drawn = draws(int(SEED), 3)
    assert [turn.sizes for turn in turns[len(SIDES) * BEFOREHAND :]] == [
        draw.sizes for draw in drawn
    ]
    without = 2 * sum(len(draw.sizes) for draw in drawn)
    assert len(launcher.launched) == 2 + len(SIDES) * BEFOREHAND + 3 + without
    assert (
        launcher.launched[2 : 2 + len(SIDES) * BEFOREHAND]
        == [sound_point(side) for side in SIDES] * 5
    )
    assert "right cause first: " in capsys.readouterr().out
    assert run(*words) == 0
    assert len(launcher.launched) == 2 + len(SIDES) * BEFOREHAND + 3 + without
