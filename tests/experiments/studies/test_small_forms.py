"""The studies from the literature whose small forms have several workloads, spreads or links."""

from __future__ import annotations

import pytest

from experiments.studies.literature import network, p2, pcad
from experiments.studies.study import Study
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Device
from ps_allreduce.point.spread import Spread
from ps_allreduce.point.strategies import AllReduce, Single, StockAllReduce, SynchronousServers
from ps_allreduce.point.workload import Precision, Workload
from tests.experiments.studies.scopes import make_scope


def small(study: Study, workers_per_host: int = 1) -> list[Experiment]:
    form = study.small
    assert form is not None
    scope = make_scope(
        form.workers,
        workloads=form.workloads,
        launcher="emulated",
        spread=Spread(workers_per_host=workers_per_host),
        network=EmulatedNetwork(num_hosts=form.hosts, bits_per_s=form.bandwidth),
        settings=form.settings,
        describe=lambda workload: workload.model.variables,
        brief=True,
    )
    return [*study.points(scope)]


def test_workers_of_a_host_send_one_gradient_to_one_server_for_each_host() -> None:
    apart = [p for p in small(p2.STUDY) if isinstance(p.strategy, SynchronousServers)]
    assert [(p.num_workers, p.num_ps) for p in apart] == [(4, 4), (8, 8), (16, 16)]
    assert not any(p.strategy.host_aggregation for p in apart)
    beside = [p for p in small(p2.STUDY, 8) if isinstance(p.strategy, SynchronousServers)]
    assert [(p.num_workers, p.num_ps) for p in beside] == [(4, 1), (8, 1), (16, 2)]
    assert all(p.strategy.host_aggregation for p in beside)


def test_on_a_cluster_variables_are_cut_as_well() -> None:
    scope = make_scope((1, 2), launcher="ssh", spread=Spread())
    placements = {
        p.strategy.servers.placement for p in p2.STUDY.points(scope) if p.strategy.servers
    }
    assert placements == {Policy.ROUND_ROBIN, Policy.PARTITIONED}


def test_every_device_meets_every_link_that_it_does_not_wait_for_too_long() -> None:
    points = small(network.STUDY)
    assert {type(p.strategy) for p in points} == {AllReduce}
    met = {
        (p.workload.model.name, round(p.workload.batch_per_worker / sum(passes(p))), rate_of(p))
        for p in points
    }
    assert len(met) == len(points) == 14
    assert {m for m in met if m[0] == "VGG16/32" and m[2] == 1} == set()
    assert {rate for _, _, rate in met} == {1, 10, 56}
    assert ("ResNet50/32", 412, 10) in met


def passes(point: Experiment) -> tuple[float, float]:
    emulated = point.workload.emulated
    assert emulated is not None
    return emulated.forward_s, emulated.backward_s


def rate_of(point: Experiment) -> int:
    """Of the links that the emulated ones stand for, Gbit/s."""
    assert point.network is not None
    assert point.network.bits_per_s is not None
    return round(point.network.bits_per_s * network.DIVISOR / 1e9)


@pytest.mark.parametrize(
    ("device", "precisions"),
    [
        (Device.CPU, {Precision.FLOAT32}),
        (Device.GPU, {Precision.FLOAT32, Precision.MIXED_FLOAT16}),
    ],
)
def test_mixed_precision_is_measured_where_devices_have_it(
    device: Device, precisions: set[Precision]
) -> None:
    scope = make_scope((1, 2), workloads=(Workload(),), device=device)
    points = [*network.STUDY.points(scope)]
    assert {p.workload.precision for p in points} == precisions
    assert sum(isinstance(p.strategy, Single) for p in points) == len(precisions)


def test_both_loops_train_both_models_with_every_batch_on_every_number_of_hosts() -> None:
    # The small form has a part of the batches on several hosts.
    for points, count in ((small(pcad.STUDY), 24), (large(pcad.STUDY), 36)):
        settings = {
            (
                p.workload.model.name,
                type(p.strategy),
                p.workload.accumulation,
                p.workload.batch_per_worker,
                p.num_workers,
            )
            for p in points
        }
        assert len(points) == len(settings) == count
        assert {s[1:3] for s in settings} == {(StockAllReduce, 1), (AllReduce, 4)}


def large(study: Study) -> list[Experiment]:
    return [*study.points(make_scope((1, 2, 3), workloads=study.workloads))]


def test_times_of_compute_keep_the_measured_ratios() -> None:
    by_model = {
        (p.workload.model.name, p.workload.batch_per_worker): sum(passes(p))
        for p in small(pcad.STUDY)
    }
    assert by_model["ResNet50/1", 64] == pytest.approx(pcad.SCALED_TO_S)
    measured = pcad.COMPUTE_S["EfficientNetB0"][32] / pcad.COMPUTE_S["ResNet50"][100]
    scaled = by_model["EfficientNetB0/1", 32] / by_model["ResNet50/1", 100]
    assert scaled == pytest.approx(measured, rel=0.01)
