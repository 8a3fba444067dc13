"""What is taken home of a sweep, and what a sweep sees of its main comparison."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from analysis.data.blocks import analysed
from analysis.data.cases import cases_of
from analysis.data.load import read_sweep
from analysis.planning.choice import choose, look_at
from analysis.report.pages.case_pages import pair_rows
from analysis.report.pages.first_page import key_numbers
from analysis.report.verdict import verdict
from analysis.stats.comparisons import comparisons
from ps_allreduce.errors import UserError
from ps_allreduce.point.models.trained import ImageModel, TextModel
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AsynchronousServers,
    Horovod,
    NoCommunication,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.files import EARLY_STOPPING, write_json
from tests.analysis.builders import runs, save, save_all, times, with_wire
from tests.fakes import make_experiment

FEW, SERVED, RING, ASYNC, APART = (
    make_experiment(SynchronousServers, 1),
    make_experiment(SynchronousServers, 2),
    make_experiment(AllReduce, 2),
    make_experiment(AsynchronousServers, 2),
    make_experiment(NoCommunication, 2),
)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A sweep in which asynchronous servers and one worker with few launches are faster."""
    save_all(
        tmp_path / "compare",
        runs(FEW, times(9.0)),
        runs(SERVED, times(2.0)),
        runs(RING, times(3.0)),
        runs(ASYNC, times(5.0)),
        runs(APART, times(6.0)),
        runs(make_experiment(AllReduce, 4), times(1.0, launches=2)),
    )
    return tmp_path


def test_the_best_is_synchronous_with_enough_launches_at_the_most_workers(results: Path) -> None:
    best = choose(results, "best", None)
    assert best.record.experiment == RING
    assert (best.launches, best.unit, best.sweep) == (3, "images", results / "compare")
    assert best.rate.mean == pytest.approx(300, rel=0.01)


def test_files_that_cannot_be_read_are_counted(results: Path) -> None:
    assert choose(results, "best", None).unread == ""
    next((results / "compare").glob("runs/*/*.json")).write_text("{")
    assert choose(results, "best", None).unread.startswith("1 file of ")


def test_a_single_worker_that_is_faster_is_told(results: Path) -> None:
    assert choose(results, "best", None).better_alone == ""
    save_all(results / "compare", runs(make_experiment(Single), times(4.0)))
    told = choose(results, "best", None).better_alone
    assert told.startswith("A single worker made 400 [")
    assert told.endswith("for this model so many do not pay.")


def test_a_single_worker_that_is_equal_is_told_as_such(results: Path) -> None:
    save_all(results / "compare", runs(make_experiment(Single), times(3.01)))
    told = choose(results, "best", None).better_alone
    assert told.endswith("equal within 3 %, so for this model so many do not pay.")


def test_the_best_is_of_what_the_report_compares_and_needs_no_other_package(results: Path) -> None:
    faster = [
        make_experiment(AllReduce, 8),
        make_experiment(Horovod, 2),
        with_wire(RING, Wire(gradients=WireType.FLOAT16)),
    ]
    save_all(results / "compare", *(runs(own, times(4.0)) for own in faster))
    assert choose(results, "best", None).record.experiment == RING


def test_a_single_worker_that_may_be_faster_is_told_as_such(results: Path) -> None:
    save_all(results / "compare", runs(make_experiment(Single), times(4.0, launches=1)))
    told = choose(results, "best", None).better_alone
    assert told.endswith("whether more hosts pay for this model is not certain.")


def test_runs_of_the_gate_are_no_measurements(results: Path) -> None:
    of_gate = make_experiment(AllReduce, 2, workload=Workload(deterministic=True))
    save_all(results / "gate", runs(of_gate, times(0.1)))
    assert choose(results, "best", None).record.experiment == RING


def test_launches_of_a_search_are_no_settings_to_take_home(results: Path) -> None:
    faster = make_experiment(AllReduce, 2, workload=Workload(batch_per_worker=8))
    save_all(results / "search" / "learning", runs(faster, times(20.0), sweep="search/learning"))
    assert choose(results, "best", None).record.experiment == RING
    with pytest.raises(UserError, match="no setting begins"):
        choose(results, faster.experiment_id, None)


def test_hosts_of_servers_count_where_the_fastest_is_chosen(tmp_path: Path) -> None:
    rings = [make_experiment(AllReduce, n, spread=Spread()) for n in (2, 4)]
    apart = make_experiment(SynchronousServers, 2, spread=Spread(), layout=LayoutKind.DEDICATED)
    rates = zip((*rings, apart), (9.0, 1.0, 2.0), strict=True)
    save_all(tmp_path / "compare", *(runs(own, times(rate)) for own, rate in rates))
    assert choose(tmp_path, "best", None).record.experiment == apart


def test_a_setting_is_named_by_the_beginning_of_its_identity(results: Path) -> None:
    assert choose(results, ASYNC.experiment_id[:6], None).record.experiment == ASYNC


def test_a_setting_that_is_not_there_is_answered_with_the_fastest(results: Path) -> None:
    with pytest.raises(UserError) as refusal:
        choose(results, "zzz", None)
    lines = str(refusal.value).splitlines()
    assert lines[0] == "no setting begins with 'zzz'; of 6 with valid launches the fastest are:"
    assert FEW.experiment_id in lines[1]
    assert len(lines) == 6


def test_several_models_need_a_name_and_of_one_the_newest_sweep_counts(results: Path) -> None:
    other = make_experiment(AllReduce, 2, workload=Workload(model=ImageModel(name="VGG16")))
    save_all(results / "ps-sweep", runs(other, times(1.0)))
    with pytest.raises(UserError, match="several models were measured: state --model, "):
        choose(results, "best", None)
    assert choose(results, "best", "VGG16").record.experiment == other
    with pytest.raises(UserError, match="holds no valid launch of ResNet50"):
        choose(results, "best", "ResNet50")
    later = {"started_at": "2030-01-01T00:00:00+00:00", "finished_at": "2030-01-01T00:01:00+00:00"}
    save_all(results / "again", runs(SERVED, times(2.0), **later))
    assert choose(results, "best", "SmallCNN").record.experiment == SERVED


def test_without_a_synchronous_setting_one_has_to_be_named(tmp_path: Path) -> None:
    save_all(tmp_path / "compare", runs(ASYNC, times(5.0)))
    with pytest.raises(UserError, match=f"name a setting, for instance {ASYNC.experiment_id}"):
        choose(tmp_path, "best", None)


def test_rates_of_text_are_of_whole_examples(tmp_path: Path) -> None:
    own = make_experiment(AllReduce, 2, workload=Workload(model=TextModel()))
    save_all(tmp_path / "compare", runs(own, times(5.0)))
    assert choose(tmp_path, "best", None).unit == "examples"


def leave(folder: Path, *, may_stop_early: bool) -> None:
    """A sweep of two points with three launches each."""
    for point, factor in zip((RING, SERVED), (1.0, 1.1), strict=True):
        for record in runs(point, times(factor) if factor == 1.0 else {0: 108, 1: 113, 2: 110}):
            save(folder, record)
    choices = {EARLY_STOPPING: 3} if may_stop_early else {}
    write_json(folder / "sweep.json", {"order": [], "choices": choices})


def told(folder: Path) -> float:
    """Half of the width of the interval in the report, on the logarithm."""
    (case,) = cases_of(analysed(read_sweep(folder)))
    main = comparisons(case).main
    assert main is not None
    assert (", 97% interval" in verdict(case).headline) is case.may_stop_early
    meanings = " ".join(each.meaning for each in key_numbers(case))
    assert ("ratio, 97% interval: " in meanings) is case.may_stop_early
    assert pair_rows(case)["ratio [95 %]"].str.endswith(" (97%)").any() == case.may_stop_early
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


def test_a_headline_without_a_verdict_has_no_interval_to_tell_of(tmp_path: Path) -> None:
    leave(tmp_path, may_stop_early=True)
    for record in runs(RING, {3: None, 4: None, 5: None}):
        save(tmp_path, record)
    (case,) = cases_of(analysed(read_sweep(tmp_path)))
    told = verdict(case)
    assert told.headline.startswith("No verdict on ")
    assert "97%" not in " ".join([told.headline, *told.details])


def test_without_a_main_comparison_nothing_is_known(tmp_path: Path) -> None:
    for record in runs(RING, times(1.0)):
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
