"""All strategies train the same model, and the gate would notice if they did not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments import surroundings
from experiments.cli.requests import SpreadRequest
from experiments.models.workload_request import WorkloadRequest
from experiments.studies.scope import Scope
from experiments.suite import gate_arms
from experiments.suite.gate import GateRequest, run_gate
from experiments.suite.gate_arms import LIMIT
from launchers.settings import LauncherSettings
from ps_allreduce.exchange.buckets import Tensor, fill_buckets
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Digits, RecordFiles
from ps_allreduce.point.inputs.data_set import Pipeline
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.placement import Policy, make_plan
from ps_allreduce.point.strategies import (
    AllReduce,
    AsynchronousServers,
    Horovod,
    Single,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Altered
from ps_allreduce.point.wire import ELEMENT_BYTES, UNBUCKETED, Wire
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import Status
from tests.cluster import LocalLauncher
from tests.conftest import need_module_of
from tests.real.conftest import patched_words
from tests.real.gate import TOLERANCE, Compare, Patched, Trained, difference, single_for, train
from tests.real.points import launch, point

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("two_cores")]

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
    "horovod": point(Horovod, 2, workload=WORKLOAD),
    "horovod without fusion": point(Horovod, 2, fusion_bytes=0, cycle_ms=5.0, workload=WORKLOAD),
    "as shipped": point(StockAllReduce, 2, workload=WORKLOAD),
    "altered": point(StockAllReduce, 2, workload=WORKLOAD, altered=Altered.STATISTICS),
}


def test_the_batches_of_two_workers_are_together_that_of_one(
    single_run: Callable[[Experiment], Trained],
) -> None:
    of_two = single_run(single_for(SYNCHRONOUS["allreduce"]))
    whole = single_run(point(Single, workload=replace(WORKLOAD, batch_per_worker=16)))
    assert difference(whole, of_two) < TOLERANCE


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_two_workers_train_like_one_that_takes_their_batches(
    name: str, launcher: LocalLauncher, difference_from_single: Compare
) -> None:
    need_module_of(type(SYNCHRONOUS[name].strategy))
    assert difference_from_single(launcher, SYNCHRONOUS[name]) < TOLERANCE


def test_files_in_order_train_the_same_weights(
    launcher: LocalLauncher, data_dir: Path, difference_from_single: Compare
) -> None:
    files = RecordFiles.found_in(data_dir / Digits.kind)
    workload = Workload(data=files, batch_per_worker=8, pipeline=Pipeline(ordered=True))
    experiment = point(AllReduce, 2, wire=UNBUCKETED, workload=workload)
    assert difference_from_single(launcher, experiment) < TOLERANCE


def _alone(policy: Policy, wire: Wire) -> Experiment:
    return point(
        AsynchronousServers, placement=policy, wire=wire, workload=WORKLOAD, split_bytes=SPLIT
    )


ASYNCHRONOUS = {
    "greedy": _alone(Policy.GREEDY, Wire()),
    "unbucketed": _alone(Policy.ROUND_ROBIN, UNBUCKETED),
    "one by one": _alone(Policy.PARTITIONED, ONE_BY_ONE),
    "four at once": _alone(Policy.LARGEST_FIRST, FOUR_AT_ONCE),
    "several steps, accumulated": point(
        AsynchronousServers,
        workload=Workload(batch_per_worker=3, accumulation=3),
        steps_per_dispatch=4,
    ),
    "bounded": point(AsynchronousServers, workload=WORKLOAD, staleness=4, steps_per_dispatch=3),
    "as shipped": point(StockServers, workload=WORKLOAD, steps_per_dispatch=4, join_rounds=True),
    "altered": point(StockServers, workload=WORKLOAD, altered=Altered.OPTIMIZER),
}


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_one_asynchronous_worker_trains_like_a_single_one(
    name: str, launcher: LocalLauncher, difference_from_single: Compare
) -> None:
    assert difference_from_single(launcher, ASYNCHRONOUS[name]) < TOLERANCE


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
    buckets = fill_buckets(tensors, ONE_BY_ONE.messages.group_size, ONE_BY_ONE.messages.cut_size)
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


@pytest.fixture
def gate(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[int, Any]]:
    """What the gate of a patched suite ends with: its status, and what it keeps."""

    def go_through(patch: str) -> tuple[int, Any]:
        (tmp_path / "patch").write_text(patch)
        local = LocalLauncher(data_dir, fork_server=patched_words(tmp_path / "patch"))
        monkeypatch.setattr(surroundings, "launcher_of", lambda _: local)
        request = GateRequest(
            launcher=LauncherSettings(results=tmp_path),
            spread=SpreadRequest(),
            workload=WorkloadRequest(batch_per_worker=8),
        )
        status = run_gate(request)
        (path,) = (tmp_path / "gate").glob("*.json")
        return status, json.loads(path.read_text())

    return go_through


def test_the_command_finds_the_strategy_that_is_broken(
    gate: Callable[[str], tuple[int, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = gate_arms.arms

    def some(scope: Scope, num_ps: int) -> list[Experiment]:
        return arms(scope, num_ps)[:2] + arms(scope, num_ps)[-2:-1]

    monkeypatch.setattr(gate_arms, "arms", some)
    status, kept = gate("lost_gradient")
    distances = {arm["name"]: arm["agreement"]["distance"] for arm in kept["arms"]}
    assert (status, len(distances)) == (1, 3)
    for name, distance in distances.items():
        assert (distance > 100 * kept["limit"]) == name.startswith("ps_sync"), distances


def test_a_model_with_batch_norm_trains_alike_on_the_same_batches(
    launcher: LocalLauncher,
    single_run: Callable[[Experiment], Trained],
    tmp_path: Path,
) -> None:
    # Batch norm of two values makes any rounding large: here sums have one order only.
    workload = Workload(model=ImageModel(name="MobileNetV2"), batch_per_worker=2)
    experiment = point(SynchronousServers, 2, workload=workload, placement=Policy.LARGEST_FIRST)
    trained = train(launcher, experiment, tmp_path)
    assert difference(trained, single_run(single_for(experiment))) < LIMIT
    assert trained.run.placement is not None
    assert trained.run.placement.deviations == ()
    assert trained.run.placement.max_over_mean == pytest.approx(1.0, abs=0.01)
