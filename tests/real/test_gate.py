"""All strategies train the same model, and the gate would notice if they did not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ps_allreduce.exchange.buckets import Tensor, fill_buckets
from ps_allreduce.point.data import Digits
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy, make_plan
from ps_allreduce.point.strategies import AllReduce, AsynchronousServers, SynchronousServers
from ps_allreduce.point.wire import ELEMENT_BYTES, UNBUCKETED, Wire
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import Status
from tests.cluster import LocalLauncher
from tests.real.gate import TOLERANCE, Compare, Patched
from tests.real.points import launch, point

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("need_tensorflow", "two_cores")]

#: Cuts every kernel of the small model into several shards.
SPLIT = 20_000

#: Synthetic images have no even background, whose activations sit on the kink of the ReLU, where a
#: rounding error decides for thousands of pixels at once.
WORKLOAD = Workload(batch_per_worker=8)

#: The large variables of the small model are cut by these, into many messages; biases travel
#: with their neighbours.
ONE_BY_ONE = Wire(group_bytes=10_000, cut_bytes=10_000, in_flight=1)
FOUR_AT_ONCE = Wire(group_bytes=10_000, cut_bytes=20_000, in_flight=4)


def _sync(policy: Policy, accumulation: int = 1, wire: Wire | None = None) -> Experiment:
    return point(
        SynchronousServers,
        2,
        placement=policy,
        workload=replace(WORKLOAD, accumulation=accumulation),
        wire=wire,
        split_bytes=SPLIT,
    )


#: Every policy, and every way of the wire, for each strategy; not their product.
SYNCHRONOUS = {
    "allreduce": point(AllReduce, 2, workload=WORKLOAD),
    "allreduce, one by one": point(AllReduce, 2, wire=ONE_BY_ONE, workload=WORKLOAD),
    "allreduce, four at once, accumulated": point(
        AllReduce, 2, wire=FOUR_AT_ONCE, workload=replace(WORKLOAD, accumulation=3)
    ),
    "allreduce in packs": point(AllReduce, 2, bytes_per_pack=100_000, workload=WORKLOAD),
    "allreduce, digits": point(
        AllReduce, 2, wire=UNBUCKETED, workload=Workload(data=Digits(), batch_per_worker=8)
    ),
    "ps_sync, round_robin": _sync(Policy.ROUND_ROBIN),
    "ps_sync, unbucketed": _sync(Policy.LARGEST_FIRST, wire=UNBUCKETED),
    "ps_sync, one by one": _sync(Policy.PARTITIONED, wire=ONE_BY_ONE),
    "ps_sync, four at once, accumulated": _sync(Policy.GREEDY, accumulation=3, wire=FOUR_AT_ONCE),
}


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_two_workers_train_like_one_with_the_whole_batch(
    name: str, launcher: LocalLauncher, difference_from_single: Compare
) -> None:
    assert difference_from_single(launcher, SYNCHRONOUS[name]) < TOLERANCE


ASYNCHRONOUS = [
    (Policy.GREEDY, Wire()),
    (Policy.ROUND_ROBIN, UNBUCKETED),
    (Policy.PARTITIONED, ONE_BY_ONE),
    (Policy.LARGEST_FIRST, FOUR_AT_ONCE),
]


@pytest.mark.parametrize(("policy", "wire"), ASYNCHRONOUS)
def test_one_asynchronous_worker_trains_like_a_single_one(
    policy: Policy, wire: Wire, launcher: LocalLauncher, difference_from_single: Compare
) -> None:
    experiment = point(
        AsynchronousServers, placement=policy, wire=wire, workload=WORKLOAD, split_bytes=SPLIT
    )
    assert difference_from_single(launcher, experiment) < TOLERANCE


@pytest.mark.parametrize(
    ("patch", "policy"),
    [
        ("axis_0", Policy.PARTITIONED),
        ("axis_1", Policy.PARTITIONED),
        ("axis_last", Policy.PARTITIONED),
        ("slow_worker", Policy.LARGEST_FIRST),
    ],
)
def test_every_mean_is_right_along_any_axis_and_with_a_slow_worker(
    patch: str, policy: Policy, patched_launcher: Patched, difference_from_single: Compare
) -> None:
    assert difference_from_single(patched_launcher(patch), _sync(policy)) < TOLERANCE


def test_the_model_is_really_cut_and_grouped_on_the_wire(launcher: LocalLauncher) -> None:
    specs = launcher.describe(WORKLOAD)
    plan = make_plan(Policy.PARTITIONED, specs, 2, SPLIT)
    assert sum(shard.axis is not None for shard in plan.shards) > 10
    tensors = [Tensor(spec.num_bytes // ELEMENT_BYTES) for spec in specs if spec.trainable]
    buckets = fill_buckets(tensors, ONE_BY_ONE.group_size, ONE_BY_ONE.cut_size)
    assert len(buckets) > 60
    assert any(len(bucket.pieces) > 1 for bucket in buckets)


@pytest.mark.parametrize(
    ("patch", "name"),
    [
        ("sum_instead_of_mean", "allreduce"),
        ("lost_gradient", "ps_sync, round_robin"),
        ("early_read", "ps_sync, round_robin"),
    ],
)
def test_the_gate_notices_a_broken_strategy(
    patch: str, name: str, patched_launcher: Patched, difference_from_single: Compare
) -> None:
    broken = difference_from_single(patched_launcher(patch), SYNCHRONOUS[name])
    assert broken > 10 * TOLERANCE


def test_replicas_that_disagree_make_a_run_invalid(patched_launcher: Patched) -> None:
    run = launch(patched_launcher("no_exchange"), SYNCHRONOUS["allreduce"])
    assert run.status is Status.INVALID
    assert "trainable weights of worker:1 differ from worker:0" in run.reason
