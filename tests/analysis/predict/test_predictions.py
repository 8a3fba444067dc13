"""What is learned from launches, and what is said of clusters that nobody launched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analysis.predict.baselines import baselines
from analysis.predict.calibration import cluster_of, disturbance_of, usable
from analysis.predict.fitting import TERMS
from analysis.predict.predictions import (
    NOT_SATURATED,
    NOT_TESTED,
    UNSEEN,
    UNTOLD,
    Prediction,
    Question,
    foretell,
    predict,
)
from ps_allreduce.errors import UserError
from ps_allreduce.point.network import Traffic
from ps_allreduce.point.strategies import (
    AllReduce,
    AsynchronousServers,
    NoCommunication,
    Single,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.records import RunRecord, Status
from tests.analysis.predict.simulated import RATE, SHARE, WORKLOAD, launch, point, sweep

ALL = (SynchronousServers, AsynchronousServers, AllReduce)


def truth(found: Prediction) -> float:
    """The rate of the launch that was predicted."""
    metrics = launch(found.experiment).metrics
    assert metrics is not None
    return metrics.examples_per_sec


def served(launches: list[RunRecord]) -> list[RunRecord]:
    """Those of synchronous servers, and of lone workers."""
    wanted = ("single", "ps_sync")
    return [each for each in launches if each.experiment.strategy.kind in wanted]


@pytest.fixture(scope="module")
def launches() -> list[RunRecord]:
    return list(sweep(ALL))


@pytest.fixture(scope="module")
def predictions(launches: list[RunRecord]) -> tuple[Prediction, ...]:
    return predict(launches, Question(workers=(8, 32))).points


def test_twice_the_workers_are_predicted_from_launches_that_follow_the_formulas(
    predictions: tuple[Prediction, ...],
) -> None:
    near = [each for each in predictions if each.experiment.num_workers == 8]
    assert [type(each.experiment.strategy) for each in near] == [*ALL]
    for each in near:
        assert each.rate == pytest.approx(truth(each), rel=0.05)
        assert each.rate is not None
        assert each.low is not None
        assert each.high is not None
        assert each.low < truth(each) < each.high
        assert each.rate <= each.bound * 1.001
        assert each.calibrated == 4
        assert each.limit == "links"


def test_far_beyond_what_was_measured_only_a_bound_is_said(launches: list[RunRecord]) -> None:
    few = usable(launches, most_workers=2)
    far = predict(few, Question(workers=(17,))).points
    assert {(each.rate, each.low, each.high, each.efficiency) for each in far} == {(None,) * 4}
    assert all(each.bound > 0 for each in far)


def test_intervals_grow_with_the_distance(predictions: tuple[Prediction, ...]) -> None:
    for strategy in ALL:
        own = [each for each in predictions if isinstance(each.experiment.strategy, strategy)]
        near, far = [each.high / each.low for each in own if each.high and each.low]
        assert near < far


def test_other_links_are_predicted_from_the_stated_rate(launches: list[RunRecord]) -> None:
    found = predict(served(launches), Question(workers=(4,), bits_per_s=3 * RATE)).points
    for each in found:
        assert each.experiment.network is not None
        assert each.experiment.network.bits_per_s == 3 * RATE
        assert each.rate == pytest.approx(truth(each), rel=0.15)


def test_a_disturbance_that_no_launch_had_is_predicted_from_what_is_stated(
    launches: list[RunRecord],
) -> None:
    ring = point(AllReduce, 8)
    assert ring.network is not None
    half = RATE / 2
    changes: list[dict[str, Any]] = [
        {"bits_per_s": half},
        {"slow_host": 7, "slow_bits_per_s": half},
        {"racks": 2, "uplink_bits_per_s": half},
        {"traffic": (Traffic(bits_per_s=half * SHARE),)},
    ]
    targets = [replace(ring, network=replace(ring.network, **each)) for each in changes]
    slower, *disturbed = foretell(launches, targets).points
    assert UNSEEN not in slower.unknown
    # Each leaves half of some link that the ring passes.
    for each in disturbed:
        assert each.rate == pytest.approx(slower.rate)
        assert UNSEEN in each.unknown
        assert disturbance_of(each.experiment)


def test_more_servers_are_placed_by_the_policy_that_was_measured(
    launches: list[RunRecord],
) -> None:
    (found,) = predict(served(launches), Question(workers=(4,), num_ps=2)).points
    assert found.experiment.num_ps == 2
    assert found.rate == pytest.approx(truth(found), rel=0.05)


def test_another_batch_and_another_computation_tell_of_the_same_links() -> None:
    quick = EmulatedCompute(forward_s=0.001, backward_s=0.002)
    short = replace(WORKLOAD, batch_per_worker=2, emulated=quick)
    points = [replace(point(AllReduce, 2, 10 * RATE), workload=load) for load in (WORKLOAD, short)]
    known = [launch(each) for each in (point(Single, 1), *points)]
    found = predict(known, Question(workers=(4,))).points
    assert [each.experiment.workload for each in found] == [WORKLOAD, short]
    assert all(NOT_SATURATED not in each.unknown for each in found)
    (alone,) = predict(known[:2], Question(workers=(4,))).points
    assert NOT_SATURATED in alone.unknown


def test_what_is_left_out_is_told_once_with_its_reason(launches: list[RunRecord]) -> None:
    shipped = launch(point(StockServers, 2), gradient_bytes=None)
    known = [*served(launches), shipped]
    found = predict(known, Question(workers=(4, 5, 6, 7, 8), num_ps=17))
    assert found.points == ()
    few, unknown = found.left_out
    assert "only 16 trainable variables" in few
    assert few.startswith("ps_sync with 4 workers, ps_sync with 5 workers, ps_sync with 6 workers")
    assert "and 2 more:" in few
    assert unknown == f"stock_ps: {UNTOLD}"


@pytest.mark.parametrize("workers", [(), (0,), (65536,)])
def test_numbers_of_workers_are_refused_by_what_is_asked(workers: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"^workers to predict for are numbers from 1 to 65535"):
        Question(workers=workers)


def test_what_shared_processors_cost_besides_is_learned_from_workers_that_send_nothing() -> None:
    real = Workload(batch_per_worker=8)

    def crowded(workers: int, longer: float) -> RunRecord:
        own = replace(point(Single if workers == 1 else NoCommunication, workers), workload=real)
        bare = launch(point(Single, 1), total_cores=2, machine_busy=0.5)
        assert bare.metrics is not None
        made = own.global_batch / (0.1 * longer)
        return replace(
            bare,
            experiment=own,
            experiment_id=own.experiment_id,
            metrics=replace(bare.metrics, examples_per_sec=made),
        )

    alone, four = crowded(1, 1.0), crowded(4, 2.0 * 1.25)
    assert cluster_of([alone]).crowding == 1.0
    assert cluster_of([alone, four]).crowding == pytest.approx(1.25)
    assert cluster_of([alone, crowded(2, 1.1)]).crowding == 1.0


def test_what_launches_do_not_tell_is_named_and_widens_the_interval() -> None:
    fast = list(sweep((AllReduce,), rates=(100 * RATE,)))
    (poor,) = predict(usable(fast, most_workers=2), Question(workers=(4,))).points
    assert NOT_TESTED in poor.unknown
    assert NOT_SATURATED in poor.unknown
    assert TERMS[0] in poor.unknown
    (rich,) = predict(list(sweep((AllReduce,), (1, 2, 3))), Question(workers=(4,))).points
    assert NOT_SATURATED not in rich.unknown
    assert NOT_TESTED not in rich.unknown
    ratios = [each.high / each.low for each in (poor, rich) if each.high and each.low]
    assert ratios[0] > ratios[1]


def test_a_model_that_was_too_fast_leaves_more_room_for_slow_rates() -> None:
    slow = [
        replace(
            each,
            metrics=replace(each.metrics, examples_per_sec=each.metrics.examples_per_sec / 1.4),
        )
        if each.experiment.num_workers == 4 and each.metrics
        else each
        for each in sweep((AllReduce,))
    ]
    (found,) = predict(slow, Question(workers=(8,))).points
    assert found.rate is not None
    assert found.low is not None
    assert found.high is not None
    assert found.rate / found.low > found.high / found.rate


def test_servers_follow_the_workers_where_they_did() -> None:
    points = [point(Single, 1), *(point(SynchronousServers, n, num_ps=n) for n in (2, 4))]
    (found,) = predict([launch(each) for each in points], Question(workers=(8,))).points
    assert found.experiment.num_ps == 8
    assert found.rate == pytest.approx(truth(found), rel=0.1)


def test_failed_launches_and_larger_ones_are_not_learned_from(launches: list[RunRecord]) -> None:
    failed = replace(launches[-1], status=Status.FAILED, reason="it fell")
    assert usable([failed]) == []
    assert {each.experiment.num_workers for each in usable(launches, most_workers=2)} == {1, 2}


def test_without_a_lone_worker_only_emulated_computation_is_known(
    launches: list[RunRecord],
) -> None:
    crowd = [each for each in launches if each.experiment.num_workers > 1]
    assert predict(served(crowd), Question(workers=(8,))).points
    real = [
        replace(
            each,
            experiment=(own := replace(each.experiment, workload=Workload(batch_per_worker=8))),
            experiment_id=own.experiment_id,
        )
        for each in crowd
    ]
    with pytest.raises(UserError, match="single worker"):
        predict(real, Question(workers=(8,)))
    alone = [each for each in launches if each.experiment.num_workers == 1]
    with pytest.raises(UserError, match="nothing to predict from"):
        predict(alone, Question(workers=(8,)))
    with pytest.raises(UserError, match="numbers from 1"):
        Question(workers=())


def test_links_that_were_not_measured_predict_nothing() -> None:
    records = [
        replace(each, experiment=own, experiment_id=own.experiment_id, links=())
        for each in sweep(workers=(2, 4))
        if (own := replace(each.experiment, network=None, launcher="slurm"))
    ]
    with pytest.raises(UserError, match="on links that were measured"):
        predict(records, Question(workers=(8,)))


def test_baselines_meet_curves_of_their_own_form() -> None:
    counts = np.array([1.0, 2.0, 4.0])
    eight = np.array([8.0])
    power = baselines(counts, 0.1 * counts**0.3)
    assert power["power"](eight) == pytest.approx(0.1 * 8**0.3)
    contended = baselines(counts, 0.1 * (1 + 0.2 * (counts - 1)))
    for name in ("amdahl", "usl", "ernest"):
        assert contended[name](eight) == pytest.approx(0.1 * 2.4, rel=0.02)
    constant = baselines([1.0], [0.1])
    assert constant["linear"](eight) == pytest.approx(0.1)
    assert constant["power"](eight) == pytest.approx(0.1)
