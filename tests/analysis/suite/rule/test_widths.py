"""Pairs of sweeps tell how much narrower the interval of the main ratio is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.suite.rule.self_comparisons import compared_in
from analysis.suite.rule.widths import (
    BEFORE,
    NOW,
    PAIRS,
    name_of,
    new_sweeps,
    render_widths,
)
from ps_allreduce.point.strategies import AllReduce, SynchronousServers
from tests.analysis.builders import runs, save_all
from tests.fakes import make_experiment

POINTS = (make_experiment(AllReduce, 2), make_experiment(SynchronousServers, 2))


def leave(bench: Path, kind: str, pair: int, launches: int, spread: float) -> None:
    """A sweep of two points whose launches spread by so much."""
    random = np.random.default_rng([pair, launches])
    for point in POINTS:
        rates = 100.0 * np.exp(random.normal(0.0, spread, launches))
        save_all(bench / name_of(kind, pair), runs(point, dict(enumerate(map(float, rates)))))


def test_more_launches_make_a_narrower_interval(tmp_path: Path) -> None:
    for pair in range(PAIRS):
        leave(tmp_path, BEFORE, pair, 3, 0.03)
        leave(tmp_path, NOW, pair, 12, 0.03)
    content: dict[str, object] = {}
    (line,) = render_widths(tmp_path, content)
    found = content["widths"]
    assert isinstance(found, dict)
    assert found["low"] < found["ratio"] < found["high"]
    assert found["ratio"] < 0.5
    assert f"{found['ratio']:.2f} [{found['low']:.2f}, {found['high']:.2f}], 5 pairs" in line


def test_pairs_that_are_not_there_yet_are_left_out(tmp_path: Path) -> None:
    assert list(render_widths(tmp_path, {})) == []
    leave(tmp_path, BEFORE, 0, 3, 0.03)
    assert list(render_widths(tmp_path, {})) == []
    leave(tmp_path, NOW, 0, 12, 0.03)
    (line,) = render_widths(tmp_path, {})
    assert "1 pairs of sweeps (target: at most 0.5, 5 pairs, undecided: " in line


def test_launches_of_the_new_profile_are_compared_with_each_other(tmp_path: Path) -> None:
    leave(tmp_path, BEFORE, 0, 3, 0.03)
    leave(tmp_path, NOW, 0, 12, 0.03)
    found = compared_in(new_sweeps(tmp_path))
    assert len(found) == 2 * len(POINTS)
    assert {each.session[:5] for each in found} == {"0-now"}
    assert all(each.launches == 3 and each.ratio == pytest.approx(1.0, abs=0.2) for each in found)
