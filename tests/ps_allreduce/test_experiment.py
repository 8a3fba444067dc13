"""A point's identity is its content, and a point that makes no sense is refused in one sentence."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from ps_allreduce.errors import UserError
from ps_allreduce.experiment import (
    Collective,
    Device,
    EmulatedCompute,
    Experiment,
    LayoutKind,
    Profile,
    Resources,
    Workload,
    server_settings,
)
from ps_allreduce.placement import DEFAULT_SPLIT_BYTES, Policy
from ps_allreduce.strategies import Strategy
from tests.fakes import experiments, fast, make_experiment

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


def test_the_identity_of_a_point_stays() -> None:
    # Everybody's records are found by these. They change when a field of Experiment (or of what it
    # holds) is added, renamed or given another default: that makes every point a new one, so it
    # needs a new records.FORMAT_VERSION and a line in its history. Only then, update them.
    assert (GOLDEN.experiment_id, REDUCED.experiment_id) == ("07ce2e92aabb", "eaf4647736ef")


CHANGES: list[tuple[str, Experiment, Any]] = [
    ("strategy", GOLDEN, Strategy.PS_ASYNC),
    ("num_workers", GOLDEN, 3),
    ("num_ps", GOLDEN, 3),
    ("placement", make_experiment(), Policy.GREEDY),
    ("split_bytes", GOLDEN, 4_000_001),
    ("layout", GOLDEN, LayoutKind.DEDICATED),
    ("collective", REDUCED, Collective.AUTO),
    ("bytes_per_pack", REDUCED, 1),
    ("launcher", GOLDEN, "slurm"),
    ("workload.model", GOLDEN, "ResNet50"),
    ("workload.image_size", GOLDEN, 33),
    ("workload.num_classes", GOLDEN, 11),
    ("workload.batch_per_worker", GOLDEN, 17),
    ("workload.accumulation", GOLDEN, 2),
    ("workload.input", GOLDEN, "digits"),
    ("workload.learning_rate", GOLDEN, 0.02),
    ("workload.momentum", GOLDEN, 0.0),
    ("workload.seed", GOLDEN, 2),
    ("workload.emulated", GOLDEN, None),
    ("workload.emulated.forward_s", GOLDEN, 0.021),
    ("workload.emulated.backward_s", GOLDEN, 0.041),
    ("workload.emulated.groups", GOLDEN, 8),
    ("resources.device", GOLDEN, Device.GPU),
    ("resources.cores_per_worker", GOLDEN, 2),
    ("resources.threads_per_worker", GOLDEN, 2),
    ("profile.name", GOLDEN, "other"),
    ("profile.warmup_steps", GOLDEN, 11),
    ("profile.warmup_s", GOLDEN, 6.0),
    ("profile.measured_steps", GOLDEN, 101),
    ("profile.measured_s", GOLDEN, 1.0),
    ("profile.event_steps", GOLDEN, 1),
    ("profile.repetitions", GOLDEN, 4),
    ("profile.deadline_s", GOLDEN, 121.0),
]


def changed(value: Any, path: str, new: object) -> Any:
    """A copy with one field, somewhere inside, of another value."""
    name, _, rest = path.partition(".")
    return replace(value, **{name: changed(getattr(value, name), rest, new) if rest else new})


@pytest.mark.parametrize(("path", "base", "new"), CHANGES)
def test_another_value_is_another_point(path: str, base: Experiment, new: object) -> None:
    assert changed(base, path, new).experiment_id != base.experiment_id


def paths(value: Any, prefix: str = "") -> set[str]:
    found = set()
    for field in fields(value):
        inner = getattr(value, field.name)
        found |= (
            paths(inner, f"{prefix}{field.name}.") if is_dataclass(inner) else {prefix + field.name}
        )
    return found


def test_no_field_is_left_out_of_the_changes() -> None:
    assert paths(GOLDEN) <= {path for path, _, _ in CHANGES}


@fast
@given(experiments())
def test_an_identity_is_twelve_hexadecimal_digits(experiment: Experiment) -> None:
    assert re.fullmatch("[0-9a-f]{12}", experiment.experiment_id)


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
]

COLLECTIVE_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"collective": Collective.NCCL}, "collective nccl needs workers on GPUs"),
    ({"collective": None}, "strategy allreduce needs a collective (ring, nccl, auto)"),
    ({"bytes_per_pack": None}, "bytes_per_pack (0 for one pack)"),
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


def test_only_the_partitioned_policy_cuts() -> None:
    assert server_settings(2, Policy.PARTITIONED)["split_bytes"] == DEFAULT_SPLIT_BYTES
    assert server_settings(2, Policy.GREEDY)["split_bytes"] is None
