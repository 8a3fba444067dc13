"""What a sweep sees of its main comparison: what the report will tell."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from analysis.data.blocks import analysed
from analysis.data.cases import cases_of
from analysis.data.load import read_sweep
from analysis.planning.choice import look_at
from analysis.report.verdict import verdict
from analysis.stats.comparisons import comparisons
from ps_allreduce.point.strategies import AllReduce, Horovod, SynchronousServers
from ps_allreduce.record.files import EARLY_STOPPING, write_json
from tests.analysis.builders import runs, save, times
from tests.fakes import make_experiment

TWO = (make_experiment(AllReduce, 2), make_experiment(SynchronousServers, 2))


def leave(folder: Path, *, may_stop_early: bool) -> None:
    """A sweep of two points with three launches each."""
    for point, factor in zip(TWO, (1.0, 1.1), strict=True):
        for record in runs(point, times(factor) if factor == 1.0 else {0: 108, 1: 113, 2: 110}):
            save(folder, record)
    choices = {EARLY_STOPPING: 3} if may_stop_early else {}
    write_json(folder / "sweep.json", {"order": [], "choices": choices})


def told(folder: Path) -> float:
    """Half of the width of the interval in the report, on the logarithm."""
    (case,) = cases_of(analysed(read_sweep(folder)))
    main = comparisons(case).main
    assert main is not None
    levels = [line for line in verdict(case).details if "is tested at 3% instead of 5%" in line]
    assert len(levels) == case.may_stop_early
    decision = main.decision
    assert decision.low is not None
    assert decision.high is not None
    return math.log(decision.high / decision.low) / 2


def test_a_sweep_that_may_end_early_has_a_wider_interval(tmp_path: Path) -> None:
    widths = []
    for name, may_stop_early in (("once", False), ("early", True)):
        leave(tmp_path / name, may_stop_early=may_stop_early)
        width = look_at(tmp_path / name).half_width
        assert width is not None
        assert math.log1p(width) == pytest.approx(told(tmp_path / name))
        widths.append(width)
    assert 1.1 < widths[1] / widths[0] < 1.5


def test_without_a_main_comparison_nothing_is_known(tmp_path: Path) -> None:
    for record in runs(TWO[0], times(1.0)):
        save(tmp_path, record)
    assert look_at(tmp_path).half_width is None


@pytest.mark.parametrize(("factor", "beaten"), [(0.5, True), (0.99, False)])
def test_a_setting_that_is_decided_slower_leaves_and_widens_nothing(
    factor: float, beaten: bool, tmp_path: Path
) -> None:
    leave(tmp_path, may_stop_early=False)
    before = look_at(tmp_path)
    third = make_experiment(Horovod, 2)
    for record in runs(third, {0: 101.0 * factor, 1: 100.0 * factor, 2: 103.0 * factor}):
        save(tmp_path, record)
    look = look_at(tmp_path)
    assert look.beaten == ({third.point_id} if beaten else set())
    assert before.beaten == frozenset()
    assert before.half_width is not None
    assert look.half_width is not None
    assert (look.half_width == before.half_width) is beaten
