"""A point that makes no sense is refused in one sentence; one that does says what it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from ps_allreduce.errors import UserError
from ps_allreduce.point.inputs.data import Digits, RecordFiles
from ps_allreduce.point.inputs.data_set import (
    MANIFEST,
    Cache,
    Encoding,
    ExampleForm,
    FileOfRecords,
    Manifest,
    Pipeline,
    Target,
)
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.measurement import FixedWarmup, Measurement, SteadyWarmup
from ps_allreduce.point.models import shipped_model
from ps_allreduce.point.models.recommenders import RECOMMENDERS, RecommenderModel
from ps_allreduce.point.models.shapes import PUBLISHED
from ps_allreduce.point.models.trained import ARCHITECTURES, TEXT_MODELS, ImageModel, TextModel
from ps_allreduce.point.models.weights import PublishedModel, ScaledModel, TensorSet, tensor_set
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AsynchronousServers,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Embeddings
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.point.workload import EmulatedCompute, Precision, Scaling, Workload
from ps_allreduce.serialization import to_json
from tests.fakes import make_experiment

COMPUTE = EmulatedCompute(forward_s=0.02, backward_s=0.04)

FILES = RecordFiles(path="/data", num_files=2, num_bytes=100, checksum="0123")

LABELLED = replace(
    FILES,
    form=ExampleForm(
        encoding=Encoding.UINT16,
        channels=12,
        image_size=120,
        target=Target.LABELS,
        num_outputs=19,
        highest=10_000.0,
    ),
)


SPARSE: dict[str, Any] = {"embeddings": Embeddings.SPARSE}

SPARSE_POINT = partial(make_experiment, SynchronousServers, **SPARSE)

MISTAKES: list[tuple[Callable[..., object], dict[str, Any], str]] = [
    (TextModel, {"name": "SmallCNN"}, "unknown model 'SmallCNN'"),
    (RecommenderModel, {"name": "SmallCNN"}, "unknown model 'SmallCNN'"),
    (RecommenderModel, {"id_exponent": -0.5}, "id_exponent must be at least 0, got -0.5."),
    (TextModel, {"vocabulary": 1}, "vocabulary must be at least 2, got 1."),
    (TextModel, {"sequence_length": 0}, "sequence_length must be at least 1, got 0."),
    (PublishedModel, {"name": "BERT"}, "unknown model 'BERT'"),
    (ImageModel, {"target": Target.VALUE}, "num_classes must be at most 1, got 10."),
    (ImageModel, {"channels": 0}, "channels must be at least 1, got 0."),
    (Pipeline, {"prefetch": -1}, "prefetch must be at least 0, got -1."),
    (Pipeline, {"parallel_maps": 0}, "parallel_maps must be at least 1, got 0."),
    (
        Workload,
        {"data": LABELLED},
        "input /data tells any labels of every image, and model SmallCNN is to learn one class",
    ),
    (
        Workload,
        {"data": LABELLED, "model": ImageModel(target=Target.LABELS, num_classes=20)},
        "input /data has images of 12 channels, and model SmallCNN takes 3",
    ),
    (
        Workload,
        {"data": LABELLED, "model": ImageModel(target=Target.LABELS, num_classes=18, channels=12)},
        "input /data has 19 labels, got num_classes 18.",
    ),
    (
        Workload,
        {"data": FILES, "model": ScaledModel(base="ResNet50", divisor=32), "emulated": COMPUTE},
        "model ResNet50/32 has no image_size, and /data does not tell one: state --image-size",
    ),
    (
        Workload,
        {"data": LABELLED, "model": ScaledModel(base="BERT-base", divisor=9), "emulated": COMPUTE},
        "model BERT-base/9 takes no images: use input synthetic, not /data.",
    ),
    (
        Workload,
        {"data": FILES, "pipeline": Pipeline(read_size=64)},
        "model SmallCNN has an image_size itself",
    ),
    (Workload, {"dealt_to": 0}, "dealt_to must be at least 1, got 0."),
    (Workload, {"dealt_to": 2, "accumulation": 3}, "accumulation 3 is no multiple of it."),
    (
        make_experiment,
        {"workload": Workload(dealt_to=2, accumulation=2)},
        "dealt_to is for a single worker that takes the batches of several, got num_workers 2.",
    ),
    (
        SteadyWarmup,
        {"most_steps": 9},
        "a warm-up of at least 10 steps and 1 s cannot end after 9 steps and 10 s.",
    ),
    (
        SPARSE_POINT,
        {"workload": Workload(model=RecommenderModel())},
        "optimizer sgd_momentum changes rows that nobody has looked up",
    ),
    (FixedWarmup, {"least_s": inf}, "least_s must be at most 1e+10, got inf."),
    (SteadyWarmup, {"most_s": nan}, "cannot end after 40 steps and nan s."),
    (partial(replace, COMPUTE), {"forward_s": nan}, "take 0.001 to 3600 s each, got nan."),
    (partial(replace, COMPUTE), {"groups": 0}, "gradient groups must be 1 to 16, got 0."),
    (partial(replace, COMPUTE), {"groups": 17}, "gradient groups must be 1 to 16, got 17."),
]


@pytest.mark.parametrize(("make", "mistake", "sentence"), MISTAKES)
def test_a_mistake_is_refused(
    make: Callable[..., object], mistake: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        make(**mistake)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (Measurement, "measured_steps", 0),
        (Measurement, "measured_s", -0.1),
        (Measurement, "event_steps", -1),
        (Spread, "workers_per_host", 0),
        (Spread, "ps_per_host", 0),
    ],
)
def test_a_number_that_is_too_small_is_refused(kind: Any, name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{name} must be at least"):
        kind(**{name: value})


def test_the_global_batch_counts_workers_and_accumulation() -> None:
    workload = Workload(batch_per_worker=16, accumulation=3)
    experiment = make_experiment(num_workers=2, workload=workload)
    assert workload.examples_per_step == 48
    assert experiment.global_batch == 96


def test_under_strong_scaling_workers_share_batch_and_time() -> None:
    compute = EmulatedCompute(forward_s=0.1, backward_s=0.2, factors=(2.0,))
    shared = Workload(batch_per_worker=64, accumulation=2, emulated=compute, scaling=Scaling.STRONG)
    experiment = make_experiment(num_workers=4, workload=shared)
    assert experiment.global_batch == 128
    assert experiment.of_each.batch_per_worker == 16
    assert experiment.of_each.emulated == replace(compute, forward_s=0.025, backward_s=0.05)
    alone = make_experiment(Single, 1, workload=shared)
    assert (alone.of_each.batch_per_worker, alone.global_batch) == (64, 128)
    assert experiment.columns()["scaling"] == "strong"
    assert experiment.title.endswith("accumulation 2, strong scaling, 0.3 s of compute")


def test_the_title_names_what_tells_points_apart() -> None:
    served = make_experiment(placement=Policy.PARTITIONED)
    assert served.title == "ps_sync, SmallCNN, 2 workers, 2 ps, partitioned"
    packed = make_experiment(AllReduce, bytes_per_pack=500_000)
    assert packed.title == "allreduce, SmallCNN, 2 workers, 0.5 MB packs"
    half = make_experiment(AllReduce, wire=Wire(in_flight=8, gradients=WireType.FLOAT16))
    assert half.title == "allreduce, SmallCNN, 2 workers, 8 in flight, float16 gradients"
    dealt = make_experiment(AsynchronousServers, staleness=4, steps_per_dispatch=2)
    assert dealt.title.endswith("round_robin, staleness of 4 steps, 2 steps per dispatch")
    mixed = Workload(precision=Precision.MIXED_BFLOAT16)
    assert replace(served, workload=mixed).title.endswith("partitioned, mixed_bfloat16")


def records(folder: Path, **files: bytes) -> RecordFiles:
    for name, content in files.items():
        (folder / f"{name}.tfrecord").write_bytes(content)
    return RecordFiles.found_in(folder)


def test_data_are_the_same_wherever_they_are(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    first, moved = records(here, a=b"one", b=b"two"), records(there, a=b"one", b=b"two")
    assert first == moved
    assert first.path != moved.path
    points = [make_experiment(workload=Workload(data=data)) for data in (first, moved)]
    assert points[0].experiment_id == points[1].experiment_id


@pytest.mark.parametrize("files", [{"a": b"ONE", "b": b"two"}, {"a": b"one"}, {"a": b"onetwo"}])
def test_replaced_data_are_other_data(tmp_path: Path, files: dict[str, bytes]) -> None:
    before = records(tmp_path, a=b"one", b=b"two")
    for path in tmp_path.iterdir():
        path.unlink()
    assert records(tmp_path, **files) != before


def test_both_ends_of_a_large_file_count(tmp_path: Path) -> None:
    content = bytearray(1_000_000)
    found = {records(tmp_path, a=bytes(content))}
    for position in (0, -1):
        content[position] = 1
        found.add(records(tmp_path, a=bytes(content)))
    assert len(found) == 3


def test_a_folder_without_files_is_told_how_to_make_some(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="experiments convert makes them"):
        RecordFiles.found_in(tmp_path)
    for split in ("training", "test"):
        (tmp_path / split).mkdir()
        records(tmp_path / split, a=b"one")
    with pytest.raises(UserError, match=r"but in its folders test, training: python -m"):
        RecordFiles.found_in(tmp_path)


def converted(folder: Path, form: ExampleForm, sizes: dict[str, int]) -> None:
    files = [FileOfRecords(name=n, records=3, num_bytes=s, sha256="") for n, s in sizes.items()]
    told = Manifest(data_set="mine", split="training", form=form, files=tuple(files))
    (folder / MANIFEST).write_text(json.dumps(to_json(told)))


def test_files_are_what_their_manifest_tells(tmp_path: Path) -> None:
    plain = records(tmp_path, a=b"one", b=b"two")
    converted(tmp_path, LABELLED.form, {"a.tfrecord": 3, "b.tfrecord": 3})
    told = RecordFiles.found_in(tmp_path)
    assert (told.form, told.num_records) == (LABELLED.form, 6)
    assert told != plain
    for sizes, sentence in (
        ({"a.tfrecord": 3}, "has b.tfrecord with 3 bytes, and its data_set.json tells of no b"),
        ({"a.tfrecord": 3, "b.tfrecord": 4}, "tells of b.tfrecord with 4 bytes: convert"),
    ):
        converted(tmp_path, LABELLED.form, sizes)
        with pytest.raises(UserError, match=re.escape(sentence)):
            RecordFiles.found_in(tmp_path)


def images(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"image")
    return folder


def test_loose_images_are_told_by_names_and_sizes(tmp_path: Path) -> None:
    names = ("cat/a.jpg", "cat/b.PNG", "dog/a.jpg", "dog/read.me", "empty/no.txt")
    here = ImageFiles.found_in(images(tmp_path / "here", *names))
    assert (here.num_files, here.num_bytes, here.num_classes) == (3, 15, 2)
    there = images(tmp_path / "there", *names)
    assert ImageFiles.found_in(there) == here
    (there / "dog/a.jpg").write_bytes(b"larger image")
    assert ImageFiles.found_in(there) != here


@pytest.mark.parametrize(
    ("names", "sentence"),
    [(("cat/a.jpg",), "at least two folders"), (("cat/a\n.jpg", "dog/a.jpg"), "a line break")],
)
def test_loose_images_that_are_no_classes_are_refused(
    tmp_path: Path, names: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        ImageFiles.found_in(images(tmp_path, *names))


def test_a_pipeline_is_told_where_files_are_read() -> None:
    read = Workload(data=FILES, pipeline=Pipeline(prefetch=0, cache=Cache.MEMORY, ordered=True))
    assert make_experiment(workload=read).title.endswith("ordered, prefetch 0, cache memory")
    assert read.columns()["prefetch"] == 0
    assert "prefetch" not in Workload(data=Digits()).columns()


def test_weights_alone_read_images_of_the_size_of_the_data_or_of_the_stated_one() -> None:
    scaled = ScaledModel(base="ResNet50", divisor=32)
    told = Workload(model=scaled, data=LABELLED, emulated=COMPUTE)
    stated = replace(told, data=FILES, pipeline=Pipeline(read_size=64))
    assert (told.read_size, stated.read_size) == (120, 64)
    assert stated.columns()["image_size"] == 64


@pytest.mark.parametrize(
    "name",
    [*ARCHITECTURES, *TEXT_MODELS, *RECOMMENDERS, *PUBLISHED, "Tensors-16-25MB", "Tensors-1-4KB"],
)
def test_a_shipped_model_has_the_name_that_it_was_asked_for_by(name: str) -> None:
    assert shipped_model(name).name == name


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_model_can_be_trained_at_the_size_it_was_designed_for(name: str) -> None:
    known = ARCHITECTURES[name]
    for size in (known.minimum_image_size, known.designed_image_size):
        assert ImageModel(name=name, image_size=size).example_shape == (size, size, 3)


@pytest.mark.parametrize("name", ["Tensors-16-25MB", "Tensors-1-4KB", "Tensors-160-1500KB"])
def test_tensors_are_told_by_their_name(name: str) -> None:
    tensors = tensor_set(name)
    assert tensors is not None
    assert tensors.name == name
    assert tensor_set("Tensors-16-25MB") == TensorSet(count=16, num_bytes=25_000_000)
    assert TensorSet(count=16, num_bytes=25_000_000).elements == 390_625


@pytest.mark.parametrize("name", ["Tensors-0-1MB", "Tensors-300-1KB", "Tensors-10001-1MB"])
def test_tensors_have_an_element_each(name: str) -> None:
    with pytest.raises(UserError, match="choose 1 to 10000 tensors"):
        tensor_set(name)
