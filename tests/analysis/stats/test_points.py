from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from analysis.data.cases import Case, processors_may_limit
from analysis.data.columns import COLUMNS
from analysis.stats.points import launch_ratios, placement_points, point_table
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.strategies import AllReduce, AnyStrategy, Single, SynchronousServers
from ps_allreduce.point.workload import EmulatedCompute, Workload
from tests.analysis.builders import (
    case_of,
    metrics,
    on_shared_cores,
    placement_used,
    run,
    runs,
)
from tests.fakes import make_experiment

RATES = {0: 100.0, 1: 110.0, 2: 121.0}


def times(factor: float) -> dict[int, float | None]:
    return {key: rate * factor for key, rate in RATES.items()}


def point_of(case: Case, strategy: type[AnyStrategy], num_workers: int) -> dict[str, Any]:
    position = [(p.setting.traits, p.num_workers) for p in case.points]
    return dict(point_table(case).iloc[position.index((strategy, num_workers))])


def test_both_bases_by_hand() -> None:
    case = case_of(
        runs(make_experiment(Single), times(1.0)),
        runs(make_experiment(AllReduce, 1), times(0.8)),
        runs(make_experiment(AllReduce, 2), times(1.2)),
    )
    found = point_of(case, AllReduce, 2)
    ratios = {
        "rate": 132.0,
        "speedup_single": 1.2,
        "speedup_own": 1.5,
        "efficiency_single": 0.6,
        "efficiency_own": 0.75,
        "efficiency_own_high": 0.75,
        # Two workers of one core each, on two cores in all.
        "per_worker_core": 66.0,
        "per_total_core": 66.0,
    }
    assert {name: found[name] for name in ratios} == pytest.approx(ratios)
    assert pd.isna(found["pairs_single"])


def test_a_base_is_one_without_an_interval() -> None:
    found = point_of(case_of(runs(make_experiment(Single), times(1.0))), Single, 1)
    assert found["speedup_single"] == 1.0
    assert pd.isna(found["speedup_single_low"])


def test_without_a_base_there_is_no_speedup_and_without_launches_no_figure() -> None:
    own = make_experiment(AllReduce, 2)
    found = point_table(case_of(runs(own, times(1.0)))).iloc[0]
    assert found[["speedup_single", "speedup_own", "efficiency_own"]].isna().all()
    assert found["rate"] == pytest.approx(110.0)
    lost = case_of(runs(make_experiment(Single), times(1.0)), runs(own, {0: None, 1: None}))
    found = pd.Series(point_of(lost, AllReduce, 2))
    assert found[["rate", "speedup_single", "per_worker_core"]].isna().all()


EMULATED = Workload(emulated=EmulatedCompute(forward_s=0.01, backward_s=0.02))


@pytest.mark.parametrize("workload", [Workload(), EMULATED], ids=["real", "emulated"])
def test_cores_that_workers_share_are_told_of_all_tasks_only(workload: Workload) -> None:
    network = EmulatedNetwork(num_hosts=4, bits_per_s=10**9)
    points = [make_experiment(AllReduce, n, workload=workload, network=network) for n in (2, 4)]
    case = case_of(
        *(runs(own, times(1.0), tasks=on_shared_cores(4), total_cores=2) for own in points)
    )
    found = pd.Series(point_of(case, AllReduce, 4))
    assert pd.isna(found["per_worker_core"])
    assert found["per_total_core"] == pytest.approx(55.0)


@pytest.mark.parametrize(
    ("workload", "crowded", "marks", "claimed"),
    [
        pytest.param(Workload(), (2,), ("*", "*", "*"), (False, False), id="the point"),
        pytest.param(Workload(), (0,), ("", "*", ""), (False, True), id="the base single"),
        pytest.param(Workload(), (1,), ("", "", "*"), (True, False), id="its own base"),
        pytest.param(EMULATED, (0, 1, 2), ("", "", ""), (True, True), id="emulated compute"),
    ],
)
def test_oversubscribed_points_and_bases_show_speedup_and_claim_no_efficiency(
    workload: Workload, crowded: tuple[int, ...], marks: tuple[str, ...], claimed: tuple[bool, bool]
) -> None:
    # Three points: single, one worker, two workers.
    points = [make_experiment(Single, workload=workload)]
    points += [make_experiment(AllReduce, count, workload=workload) for count in (1, 2)]
    records = [
        runs(own, times(factor), oversubscribed=number in crowded)
        for number, (own, factor) in enumerate(zip(points, (1.0, 1.0, 1.2), strict=True))
    ]
    found = point_of(case_of(*records), AllReduce, 2)
    assert tuple(found[name] for name in ("marks", "marks_single", "marks_own")) == marks
    for base, known in zip(("single", "own"), claimed, strict=True):
        assert found[f"speedup_{base}"] == pytest.approx(1.2)
        efficiency = 0.6 if known else math.nan
        assert found[f"efficiency_{base}"] == pytest.approx(efficiency, nan_ok=True)


@pytest.mark.parametrize(
    ("network", "oversubscribed", "compute", "busy", "marked"),
    [
        pytest.param("1gbit", True, "real", 0.65, False, id="few cores, and idle ones"),
        pytest.param("1gbit", False, "real", 0.95, True, id="cores of their own, all busy"),
        pytest.param("1gbit", True, "emulated", 0.95, True, id="the links keep cores busy"),
        pytest.param("1gbit", True, "emulated", None, True, id="the links may keep cores busy"),
        pytest.param("1gbit", False, "real", None, False, id="cores of their own, not known"),
        pytest.param(None, True, "real", 0.95, True, id="shared cores, busy"),
        pytest.param(None, True, "real", 0.6, False, id="shared cores, idle"),
        pytest.param(None, True, "real", None, True, id="shared cores, not known"),
        pytest.param(None, True, "emulated", None, False, id="nobody computes"),
        pytest.param(None, False, "real", 0.99, False, id="tasks keep their own cores busy"),
    ],
)
def test_a_mark_follows_what_was_measured_and_else_the_plan(
    network: str | None, oversubscribed: bool, compute: str, busy: float | None, marked: bool
) -> None:
    row = {"network": network, "oversubscribed": oversubscribed, "compute": compute, "busy": busy}
    runs = pd.DataFrame([row]).astype({name: COLUMNS[name] for name in row})
    assert list(processors_may_limit(runs)) == [marked]


def test_single_launches_are_divided_by_their_own_repetition() -> None:
    ratios = launch_ratios(pd.Series({0: 10.0, 5: 8.0}), pd.Series({0: 5.0, 1: 20.0}))
    # Repetition 5 has no base of its own: the geometric mean of 5 and 20 is 10.
    assert ratios.to_dict() == pytest.approx({0: 2.0, 5: 0.8})
    assert launch_ratios(pd.Series({0: 1.0}), pd.Series(dtype=float)).empty


def test_parts_of_a_step_are_arithmetic_means_that_add_up() -> None:
    own = make_experiment(AllReduce, 2)
    case = case_of(
        [
            run(own, 1.0, 0, metrics=metrics(1.0, compute_s=0.01, communication_s=0.02)),
            run(own, 1.0, 1, metrics=metrics(1.0, compute_s=0.03, communication_s=0.04)),
            run(own, None, 2),
        ]
    )
    parts = point_table(case).iloc[0][["compute_s", "communication_s", "input_wait_s"]]
    assert list(parts) == pytest.approx([0.02, 0.03, 0.001])


def test_placement_as_planned_and_astray() -> None:
    own = make_experiment(SynchronousServers, 2)
    case = case_of(runs(own, times(1.0), placement=placement_used(300, 100)))
    (found,) = placement_points(case)
    assert found.as_planned
    assert (found.planned_bytes, found.worst.bytes_per_server) == ((300, 100), (300, 100))
    assert found.worst.max_over_mean == pytest.approx(1.5)

    stray = placement_used(300, 100, deviations=("variable 0 was planned on ps:0",))
    case = case_of(
        [run(own, 1.0, 0, placement=placement_used(300, 100))], [run(own, 1.0, 1, placement=stray)]
    )
    (found,) = placement_points(case)
    assert not found.as_planned
    assert found.deviations == stray.deviations
    # Strategies without servers have no placement.
    assert placement_points(case_of(runs(make_experiment(AllReduce, 2), times(1.0)))) == []
