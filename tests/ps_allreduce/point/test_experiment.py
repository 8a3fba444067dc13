"""A point that makes no sense is refused in one sentence; one that does says what it is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import (
    Collective,
    Device,
    Experiment,
    Profile,
    Resources,
    server_settings,
)
from ps_allreduce.point.placement import DEFAULT_SPLIT_BYTES, Policy
from ps_allreduce.point.spread import LayoutKind, Spread
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.point.workload import EmulatedCompute, Precision, Workload
from tests.fakes import make_experiment

GOLDEN = Experiment(
    strategy=Strategy.PS_SYNC,
    num_workers=2,
    num_ps=2,
    placement=Policy.PARTITIONED,
    split_bytes=4_000_000,
    layout=LayoutKind.COLOCATED,
    workload=Workload(emulated=EmulatedCompute(forward_s=0.02, backward_s=0.04)),
    profile=Profile(name="golden"),
)

REDUCED = Experiment(
    strategy=Strategy.ALLREDUCE,
    num_workers=2,
    collective=Collective.RING,
    bytes_per_pack=0,
    profile=Profile(name="golden"),
)

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"num_workers": 0}, "num_workers must be at least 1, got 0."),
    ({"num_workers": -1}, "num_workers must be at least 1, got -1."),
    ({"num_ps": -1}, "num_ps must be at least 0, got -1."),
    ({"num_ps": 0}, "strategy ps_sync needs num_ps of 1 or more, a placement (round_robin,"),
    ({"placement": None}, "a placement (round_robin, greedy, largest_first, partitioned)"),
    ({"layout": None}, "a layout (colocated, dedicated)"),
    ({"collective": Collective.RING}, "strategy ps_sync uses no collective: leave collective"),
    ({"bytes_per_pack": 0}, "strategy ps_sync uses no collective"),
    ({"split_bytes": 1}, "split_bytes belongs to the placement partitioned, and only to it."),
    ({"placement": Policy.PARTITIONED}, "split_bytes belongs to the placement partitioned"),
    (
        {"placement": Policy.PARTITIONED, "split_bytes": 0},
        "split_bytes must be at least 1, got 0.",
    ),
    ({"strategy": Strategy.SINGLE, **server_settings(0, Policy.GREEDY)}, "no parameter servers"),
    (
        {"strategy": Strategy.PS_ASYNC, "wire": Wire(host_aggregation=True)},
        "strategy ps_async has nothing to add up on a host before it sends: leave host_aggregation",
    ),
    (
        {
            "num_workers": 3,
            "spread": Spread(workers_per_host=2),
            "wire": Wire(host_aggregation=True),
        },
        "host_aggregation needs equally many workers on every host: num_workers 3 is no multiple "
        "of workers_per_host 2.",
    ),
]

COLLECTIVE_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"collective": Collective.NCCL}, "collective nccl needs workers on GPUs"),
    ({"collective": None}, "strategy allreduce needs a collective (ring, nccl, auto)"),
    (
        {"collective": Collective.AUTO, "bytes_per_pack": None},
        "collective auto is used in TensorFlow's packs: state bytes_per_pack (0 for one pack).",
    ),
    (
        {"bytes_per_pack": 0, "wire": Wire(in_flight=1)},
        "in packs (bytes_per_pack, or collective nccl or auto) TensorFlow decides what is sent: "
        "leave the settings of the wire out.",
    ),
    ({"bytes_per_pack": -1}, "bytes_per_pack must be at least 0, got -1."),
    ({"num_ps": 1}, "strategy allreduce has no parameter servers: leave num_ps"),
    ({"placement": Policy.GREEDY}, "strategy allreduce has no parameter servers"),
    ({"layout": LayoutKind.COLOCATED}, "strategy allreduce has no parameter servers"),
    ({"split_bytes": 1}, "split_bytes belongs to the placement partitioned, and only to it."),
]


@pytest.mark.parametrize(("mistake", "sentence"), MISTAKES)
def test_a_mistaken_point_with_servers_is_refused(mistake: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        make_experiment(**mistake)


@pytest.mark.parametrize(("mistake", "sentence"), COLLECTIVE_MISTAKES)
def test_a_mistaken_point_with_a_collective_is_refused(
    mistake: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        make_experiment(Strategy.ALLREDUCE, **mistake)


def test_a_single_worker_is_one_worker() -> None:
    with pytest.raises(UserError, match="strategy single runs on 1 worker, got num_workers 2"):
        Experiment(strategy=Strategy.SINGLE, num_workers=2, profile=Profile(name="p"))


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ({"model": "resnet50"}, "unknown model 'resnet50'; choose one of SmallCNN, ResNet50,"),
        (
            {"model": "InceptionV3", "image_size": 74},
            "image_size 74 is below the minimum of InceptionV3: use 75 or more.",
        ),
        ({"image_size": 0}, "image_size 0 is below the minimum of SmallCNN"),
        ({"batch_per_worker": 0}, "batch_per_worker must be at least 1, got 0."),
        ({"accumulation": 0}, "accumulation must be at least 1, got 0."),
        ({"num_classes": 1}, "num_classes must be at least 2, got 1."),
        ({"input": "digits", "num_classes": 9}, "input digits has 10 classes, got num_classes 9."),
        (
            {
                "emulated": EmulatedCompute(forward_s=1, backward_s=1),
                "precision": Precision.MIXED_FLOAT16,
            },
            "an emulated accelerator computes in no precision: leave mixed_float16 out.",
        ),
    ],
)
def test_a_mistaken_workload_is_refused(mistake: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        Workload(**mistake)


def test_smallest_images_are_accepted() -> None:
    assert Workload(model="InceptionV3", image_size=75).image_size == 75


def test_a_point_outlives_the_images_that_it_was_trained_on(tmp_path: Path) -> None:
    # Records are read on other machines, and after the images are gone.
    assert Workload(input=str(tmp_path / "gone")).input.endswith("gone")


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ({"forward_s": 0.0}, "forward_s must be at least 0.001, got 0."),
        ({"backward_s": -1.0}, "backward_s must be at least 0.001, got -1."),
        ({"forward_s": float("nan")}, "forward_s must be at least 0.001, got nan."),
        ({"groups": 0}, "gradient groups must be 1 to 16, got 0."),
        ({"groups": 17}, "gradient groups must be 1 to 16, got 17."),
    ],
)
def test_a_mistaken_accelerator_is_refused(mistake: dict[str, Any], sentence: str) -> None:
    settings: dict[str, Any] = {"forward_s": 0.02, "backward_s": 0.04}
    with pytest.raises(UserError, match=re.escape(sentence)):
        EmulatedCompute(**(settings | mistake))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("warmup_steps", 0),
        ("warmup_s", -1.0),
        ("measured_steps", 0),
        ("measured_s", -0.1),
        ("event_steps", -1),
        ("repetitions", 0),
        ("deadline_s", 0.0),
    ],
)
def test_a_mistaken_profile_is_refused(name: str, value: float) -> None:
    changes: dict[str, Any] = {name: value}
    with pytest.raises(UserError, match=f"{name} must be at least"):
        Profile(name="p", **changes)


@pytest.mark.parametrize("name", ["cores_per_worker", "threads_per_worker"])
def test_a_worker_has_a_core_and_a_thread(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} must be at least 1, got 0"):
        Resources(**{name: 0})  # type: ignore[arg-type]


def test_the_global_batch_counts_workers_and_accumulation() -> None:
    workload = Workload(batch_per_worker=16, accumulation=3)
    experiment = make_experiment(num_workers=2, workload=workload)
    assert experiment.images_per_worker_step == 48
    assert experiment.global_batch == 96


def test_records_say_whether_computation_was_emulated() -> None:
    assert GOLDEN.workload.compute == "emulated"
    assert REDUCED.workload.compute == "real"


def test_the_title_names_what_tells_points_apart() -> None:
    assert GOLDEN.title == "ps_sync, SmallCNN, 2 workers, 2 ps, partitioned"
    packed = replace(REDUCED, bytes_per_pack=500_000)
    assert packed.title == "allreduce, SmallCNN, 2 workers, 0.5 MB packs"
    wire = Wire(in_flight=8, gradients=WireType.FLOAT16)
    half = replace(REDUCED, bytes_per_pack=None, wire=wire)
    assert half.title == "allreduce, SmallCNN, 2 workers, in_flight 8, gradients float16"
    dealt = replace(GOLDEN, strategy=Strategy.PS_ASYNC, staleness=4, steps_per_dispatch=2)
    assert dealt.title.endswith("partitioned, staleness 4, steps_per_dispatch 2")
    mixed = Workload(precision=Precision.MIXED_BFLOAT16)
    assert replace(GOLDEN, workload=mixed).title.endswith("partitioned, mixed_bfloat16")


@pytest.mark.parametrize("name", ["workers_per_host", "ps_per_host"])
def test_a_host_has_a_task_at_least(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} must be at least 1, got 0"):
        Spread(**{name: 0})  # type: ignore[arg-type]


def test_gradients_are_carried_by_grpc_or_by_the_collective() -> None:
    def on_gpus(collective: Collective) -> Experiment:
        return replace(REDUCED, collective=collective, resources=Resources(device=Device.GPU))

    assert GOLDEN.transport == REDUCED.transport == "grpc"
    assert on_gpus(Collective.NCCL).transport == "nccl"
    assert on_gpus(Collective.AUTO).transport == "auto"
    assert make_experiment(Strategy.SINGLE).transport is None
    assert make_experiment(Strategy.NO_COMMUNICATION).transport is None


def test_only_the_partitioned_policy_cuts() -> None:
    assert server_settings(2, Policy.PARTITIONED)["split_bytes"] == DEFAULT_SPLIT_BYTES
    assert server_settings(2, Policy.GREEDY)["split_bytes"] is None
