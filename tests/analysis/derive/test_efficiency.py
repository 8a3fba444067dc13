from __future__ import annotations

from collections.abc import Iterable

import pytest

from analysis.data.cases import Case, make_cases
from analysis.derive.breakdown import breakdowns
from analysis.derive.efficiency import Scaling, launch_ratios, scalings
from analysis.derive.placement import placement_points
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import experiment, metrics, placement_used, run, runs

RATES = {0: 100.0, 1: 110.0, 2: 121.0}


def times(factor: float) -> dict[int, float | None]:
    return {key: rate * factor for key, rate in RATES.items()}


def case_of(*groups: Iterable[RunRecord]) -> Case:
    (case,) = make_cases(record for group in groups for record in group)
    return case


def by_point(case: Case) -> dict[tuple[str, int], Scaling]:
    return {(str(s.point.setting.strategy), s.point.num_workers): s for s in scalings(case)}


def test_both_bases_by_hand() -> None:
    case = case_of(
        runs(experiment(Strategy.SINGLE), times(1.0)),
        runs(experiment(Strategy.ALLREDUCE, 1), times(0.8)),
        runs(experiment(Strategy.ALLREDUCE, 2), times(1.2)),
    )
    found = by_point(case)["allreduce", 2]
    assert found.throughput is not None
    assert found.throughput.mean == pytest.approx(132.0)
    assert found.speedup_single is not None
    assert found.speedup_own is not None
    assert found.efficiency_single is not None
    assert found.efficiency_own is not None
    assert found.speedup_single.ratio == pytest.approx(1.2)
    assert found.speedup_own.ratio == pytest.approx(1.5)
    assert found.efficiency_single.ratio == pytest.approx(0.6)
    assert found.efficiency_own.ratio == pytest.approx(0.75)
    assert found.efficiency_own.high == pytest.approx(0.75)
    # Two workers of one core each, on two cores in all.
    assert found.per_worker_core == pytest.approx(66.0)
    assert found.per_total_core == pytest.approx(66.0)


def test_a_base_is_one_without_an_interval() -> None:
    case = case_of(runs(experiment(Strategy.SINGLE), times(1.0)))
    found = by_point(case)["single", 1]
    assert found.speedup_single is not None
    assert (found.speedup_single.ratio, found.speedup_single.low) == (1.0, None)


def test_without_a_base_there_is_no_speedup() -> None:
    case = case_of(runs(experiment(Strategy.ALLREDUCE, 2), times(1.0)))
    (found,) = scalings(case)
    assert (found.speedup_single, found.speedup_own, found.efficiency_own) == (None, None, None)
    assert found.throughput is not None


def test_oversubscribed_runs_claim_no_efficiency_but_show_their_speedup() -> None:
    case = case_of(
        runs(experiment(Strategy.SINGLE), times(1.0)),
        runs(experiment(Strategy.PS_SYNC, 2), times(1.2), oversubscribed=True),
    )
    found = by_point(case)["ps_sync", 2]
    assert found.marks == "*"
    assert found.efficiency_single is None
    assert found.speedup_single is not None


def test_an_oversubscribed_base_claims_none_either() -> None:
    case = case_of(
        runs(experiment(Strategy.ALLREDUCE, 1), times(1.0), oversubscribed=True),
        runs(experiment(Strategy.ALLREDUCE, 2), times(1.2)),
    )
    assert by_point(case)["allreduce", 2].efficiency_own is None


def test_emulated_compute_claims_efficiency_on_few_cores() -> None:
    load = Workload(emulated=EmulatedCompute(forward_s=0.01, backward_s=0.02))
    case = case_of(
        runs(experiment(Strategy.SINGLE, workload=load), times(1.0), oversubscribed=True),
        runs(experiment(Strategy.PS_SYNC, 2, workload=load), times(1.2), oversubscribed=True),
    )
    found = by_point(case)["ps_sync", 2]
    assert found.marks == ""
    assert found.efficiency_single is not None
    assert found.efficiency_single.ratio == pytest.approx(0.6)


def test_a_point_without_launches_has_no_figures() -> None:
    case = case_of(
        runs(experiment(Strategy.SINGLE), times(1.0)),
        runs(experiment(Strategy.ALLREDUCE, 2), {0: None, 1: None}),
    )
    found = by_point(case)["allreduce", 2]
    assert (found.throughput, found.speedup_single, found.per_worker_core) == (None, None, None)


def test_a_mark_of_the_base_is_one_of_the_ratio_too() -> None:
    busy = runs(experiment(Strategy.SINGLE), times(1.0), oversubscribed=True)
    own = [runs(experiment(Strategy.ALLREDUCE, count), times(1.0)) for count in (1, 2)]
    found = by_point(case_of(busy, *own))["allreduce", 2]
    assert (found.marks, found.marks_single, found.marks_own) == ("", "*", "")


def test_single_launches_are_divided_by_their_own_repetition() -> None:
    ratios = launch_ratios({0: 10.0, 5: 8.0}, {0: 5.0, 1: 20.0})
    # Repetition 5 has no base of its own: the geometric mean of 5 and 20 is 10.
    assert ratios == pytest.approx({0: 2.0, 5: 0.8})
    assert launch_ratios({0: 1.0}, {}) == {}


def test_parts_of_a_step_are_arithmetic_means_that_add_up() -> None:
    own = experiment(Strategy.ALLREDUCE, 2)
    case = case_of(
        [
            run(own, 1.0, 0, metrics=metrics(1.0, compute_s=0.01, communication_s=0.02)),
            run(own, 1.0, 1, metrics=metrics(1.0, compute_s=0.03, communication_s=0.04)),
            run(own, None, 2),
        ]
    )
    (found,) = breakdowns(case)
    assert [found.compute_s, found.communication_s] == pytest.approx([0.02, 0.03])
    assert found.total_s == pytest.approx(0.051)
    assert found.launch_totals_s == pytest.approx((0.031, 0.071))


def test_placement_as_planned_and_astray() -> None:
    own = experiment(Strategy.PS_SYNC, 2)
    case = case_of(runs(own, times(1.0), placement=placement_used(300, 100)))
    (found,) = placement_points(case)
    assert found.as_planned
    assert (found.planned_bytes, found.used_bytes) == ((300, 100), (300, 100))
    assert found.max_over_mean == pytest.approx(1.5)

    stray = placement_used(300, 100, deviations=("variable 0 was planned on ps:0",))
    case = case_of(
        [run(own, 1.0, 0, placement=placement_used(300, 100))], [run(own, 1.0, 1, placement=stray)]
    )
    (found,) = placement_points(case)
    assert not found.as_planned
    assert found.deviations == stray.deviations


def test_strategies_without_servers_have_no_placement() -> None:
    case = case_of(runs(experiment(Strategy.ALLREDUCE, 2), times(1.0)))
    assert placement_points(case) == ()
