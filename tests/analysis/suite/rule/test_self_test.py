"""The simulations by which the suite tests its own statistics, and the comparisons with itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.suite.bench import summarise_bench
from analysis.suite.json_lines import read_lines
from analysis.suite.rule.self_comparisons import (
    FILE,
    SelfComparison,
    add_to,
    compare_with_itself,
    compared_in,
    render_self_comparisons,
)
from analysis.suite.rule.self_test import (
    detections,
    equal_settings,
    false_alarms,
    limit_of_detection,
    misses,
)
from analysis.suite.rule.spreads import Spreads, measured_spreads
from ps_allreduce.errors import SuiteError
from ps_allreduce.point.strategies import AllReduce, Single, SynchronousServers
from tests.analysis.builders import run, runs, save_all
from tests.analysis.suite.test_bench import PHASES, POINT, bench_of
from tests.fakes import make_experiment

SPREADS = Spreads(turn=0.05, launch=0.02)
POINTS = [make_experiment(Single), make_experiment(AllReduce, 2)]
POINTS.append(make_experiment(SynchronousServers, 2))


def test_equal_settings_are_told_apart_in_at_most_five_percent() -> None:
    found = false_alarms(equal_settings(replace(SPREADS, launch=0.1), 400))
    # Of 400 at 5 %, 29 is the 97.5 % point of the binomial distribution.
    assert 0 < found.count <= 29
    low, high = found.interval
    assert low < found.rate < high


def test_intervals_of_sweeps_that_end_early_hold_the_truth() -> None:
    assert misses(equal_settings(replace(SPREADS, launch=0.01), 400)).count <= 29


def test_a_planted_difference_is_found_where_launches_agree() -> None:
    assert detections(replace(SPREADS, launch=0.005), 100).rate > 0.95
    assert detections(replace(SPREADS, launch=0.2), 100).rate < 0.3


def test_the_limit_of_detection_lies_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.suite.rule.self_test.SWEEPS_OF_A_SPREAD", 40)
    limit = limit_of_detection(SPREADS)
    assert limit is not None
    assert 0.03 < limit < 0.1


def sweep(folder: Path, launches: int = 6, seed: int = 1, spread: float = 0.02) -> None:
    random = np.random.default_rng(seed)
    turns = random.normal(0.0, 0.1, launches)
    for own in POINTS:
        logs = turns + random.normal(0.0, spread, launches)
        save_all(folder, runs(own, dict(enumerate(100 * np.exp(logs)))))


def test_spreads_of_turns_and_launches_are_taken_apart(tmp_path: Path) -> None:
    sweep(tmp_path / "compare", launches=40)
    for left_out in ("bench/overhead", "first-look"):
        sweep(tmp_path / left_out, launches=5, spread=0.5)
    found = measured_spreads(tmp_path)
    assert found is not None
    assert found.launch == pytest.approx(0.02, rel=0.3)
    assert found.turn == pytest.approx(0.1, rel=0.4)


def test_one_launch_of_each_point_tells_no_spread(tmp_path: Path) -> None:
    sweep(tmp_path / "compare", launches=1)
    assert measured_spreads(tmp_path) is None


@pytest.mark.usefixtures("few_simulations")
def test_the_bench_writes_what_the_simulations_found(tmp_path: Path) -> None:
    save_all(tmp_path / "bench" / "overhead", [run(POINT, 100.0, phases=PHASES)])
    assert any("no self-test" in line for line in summarise_bench(tmp_path))
    sweep(tmp_path / "bench" / "planted")  # where there is no study
    text = "\n".join(summarise_bench(tmp_path))
    assert "self-test, 3 simulated sweeps of 5 to 30 launches" in text
    content: dict[str, Any] = bench_of(tmp_path)
    assert 0 <= content["self_test"]["false_alarm_rate"] <= 1
    low, high = content["self_test"]["detection_interval"]
    assert low <= content["self_test"]["detection_rate"] <= high
    assert "python -m experiments self-comparisons" in text


def test_a_sweep_of_the_bench_is_compared_with_itself_once_it_is_complete(tmp_path: Path) -> None:
    assert compared_in(tmp_path) == []
    sweep(tmp_path, launches=12)
    found = compared_in(tmp_path)
    assert len(found) == 2 * len(POINTS)
    assert all(each.launches == 3 for each in found)
    (tmp_path / "sweep.json").write_text('{"order": ["00000000/0"]}')
    assert compared_in(tmp_path) == []


def test_comparisons_with_itself_add_up_over_sessions(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    sweep(first, launches=13)
    sweep(second, launches=12, seed=2)
    found = compare_with_itself(first, 3)
    # Thirteen launches are two comparisons of three pairs, and one launch is left over.
    assert len(found) == 2 * len(POINTS)
    assert {each.session for each in found} == {"1 2026-01-01 00:00:00"}
    file = tmp_path / FILE
    add_to(file, found)
    assert len(add_to(file, found)) == 6
    assert len(add_to(file, compare_with_itself(second, 3))) == 12
    content: dict[str, object] = {}
    line = render_self_comparisons(read_lines(file, SelfComparison), content)
    assert line.startswith("a setting compared with itself, 12 times in 2 sweeps")
    assert "reaches 5 %" in line
    for text, problem in (("{}\n", "missing key"), ("{\n", "no JSON")):
        file.write_text(text)
        with pytest.raises(SuiteError, match=problem):
            read_lines(file, SelfComparison)


def test_what_drifts_between_pairs_tells_a_setting_not_apart_from_itself(tmp_path: Path) -> None:
    rates: dict[int, float | None] = {n: 100.0 * 1.5 ** (n // 2) + n % 2 for n in range(6)}
    save_all(tmp_path, runs(POINTS[1], rates))
    (found,) = compare_with_itself(tmp_path, 3)
    assert not found.false_alarm
    assert found.ratio == pytest.approx(1.0, abs=0.01)
