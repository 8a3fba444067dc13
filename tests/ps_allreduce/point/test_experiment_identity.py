"""Everything that decides what is measured is part of a point's identity."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given

from ps_allreduce.point.accelerators import Distribution, Jitter
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import OwnDataset, RecordFiles, Synthetic
from ps_allreduce.point.inputs.data_set import ExampleForm, Pipeline
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.measurement import Evaluation, Measurement
from ps_allreduce.point.models.recommenders import RecommenderModel
from ps_allreduce.point.models.trained import (
    OwnModel,
    TextModel,
)
from ps_allreduce.point.models.weights import PublishedModel, ScaledModel, TensorSet
from ps_allreduce.point.network import EmulatedNetwork, Traffic
from ps_allreduce.point.optimizers import Adagrad, AdamW
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AsynchronousServers,
    NoCommunication,
    SynchronousServers,
)
from ps_allreduce.point.strategies.all_reduce import Packs
from ps_allreduce.point.strategies.base import Servers
from ps_allreduce.point.strategies.stated import Embeddings, StrategySettings
from ps_allreduce.point.wire import WireType
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.serialization import LATER, identity_of
from tests.examples import experiments, fast

GOLDEN = Experiment(
    strategy=SynchronousServers(
        servers=Servers(num_ps=2, placement=Policy.PARTITIONED, split_bytes=4_000_000)
    ),
    num_workers=2,
    workload=Workload(emulated=EmulatedCompute(forward_s=0.02, backward_s=0.04)),
)

#: On hosts of an emulated network.
SPREAD = replace(
    GOLDEN,
    launcher="emulated",
    spread=Spread(workers_per_host=2, ps_per_host=2),
    network=EmulatedNetwork(
        num_hosts=4,
        bits_per_s=1e9,
        slow_host=3,
        slow_bits_per_s=1e8,
        racks=2,
        uplink_bits_per_s=1e9,
    ),
)

REDUCED = Experiment(strategy=AllReduce(sending=Packs()), num_workers=2)

FILES = RecordFiles(path="/data", num_files=2, num_bytes=100, checksum="0123")


def test_the_identity_of_a_point_stays() -> None:
    # Everybody's records are found by these. They change when a field of Experiment (or of what it
    # holds) is added, renamed or given another default: that makes every point a new one, so it
    # needs a new records.FORMAT_VERSION and a line in its history. Only then, update them.
    identities = [point.experiment_id for point in (GOLDEN, SPREAD, REDUCED)]
    assert identities == ["c3e84078006c", "c2be5e00ee1c", "a252823b8eb7"]


DEALT = replace(GOLDEN, strategy=AsynchronousServers())

READING = replace(GOLDEN, workload=Workload(data=FILES))

EVALUATED = replace(GOLDEN, measurement=Measurement(evaluation=Evaluation(batches=2)))

TOLD = ExampleForm(num_outputs=10, image_size=32)

LOOSE = replace(
    GOLDEN,
    workload=Workload(
        data=ImageFiles(path="/data", num_files=2, num_bytes=100, num_classes=2, checksum="0123")
    ),
)

SENDING = replace(GOLDEN, workload=replace(GOLDEN.workload, model=TensorSet(count=2, num_bytes=80)))

WRITING = replace(GOLDEN, workload=Workload(model=TextModel()))

CHOOSING = replace(GOLDEN, workload=Workload(model=RecommenderModel(), optimizer=Adagrad()))

SPARSE = replace(
    CHOOSING,
    strategy=SynchronousServers.of(StrategySettings(embeddings=Embeddings.SPARSE)),
)

SCALED = replace(
    SENDING,
    workload=replace(SENDING.workload, model=ScaledModel(base="InceptionV3", divisor=32)),
)

READ_FOR_NOTHING = replace(
    SCALED,
    workload=replace(
        SCALED.workload, data=replace(FILES, form=TOLD), pipeline=Pipeline(read_size=48)
    ),
)

PUBLISHED = replace(
    SENDING, workload=replace(SENDING.workload, model=PublishedModel(name="BERT-base"))
)

OWN = replace(
    GOLDEN,
    workload=Workload(
        model=OwnModel(
            name="mine.py:build",
            module="mine",
            function="build",
            digest="0badcafe",
            has_dataset=True,
            notes=("without your clipnorm 1.0",),
        ),
        data=OwnDataset(),
        optimizer=AdamW(),
    ),
)

DRAWN = replace(OWN, workload=replace(OWN.workload, data=Synthetic()))

JITTER = Jitter(distribution=Distribution.LOGNORMAL, variation=0.1)

JITTERED = replace(
    GOLDEN,
    workload=Workload(emulated=EmulatedCompute(forward_s=0.02, backward_s=0.04, jitter=JITTER)),
)

#: Where files are is no part of what they are, nor what they are called, nor what is said of them.
NO_PART = {
    *("workload.data.path", "workload.data.num_records"),
    *("workload.model.notes", "workload.model.learning", "workload.model.only_whole"),
}


def changed(value: Any, path: str, new: object) -> Any:
    """A copy with one field, somewhere inside, of another value."""
    name, _, rest = path.partition(".")
    return replace(value, **{name: changed(getattr(value, name), rest, new) if rest else new})


BASES = (
    *(GOLDEN, SPREAD, REDUCED, DEALT, READING, EVALUATED, SENDING, JITTERED, OWN, WRITING),
    *(PUBLISHED, SCALED, LOOSE, READ_FOR_NOTHING, CHOOSING, SPARSE),
)


def paths(value: Any, prefix: str = "") -> Iterator[str]:
    """Of all fields; those that came later and are at their default make no other point."""
    for field in fields(value):
        inner = getattr(value, field.name)
        if LATER.items() <= field.metadata.items() and inner == field.default:
            continue
        if is_dataclass(inner):
            yield from paths(inner, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def told(identity: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The paths of what identifies a point."""
    for name, inner in identity.items():
        if isinstance(inner, Mapping):
            yield from told(inner, f"{prefix}{name}.")
        elif name != "kind":
            yield prefix + name


@pytest.mark.parametrize("base", BASES)
def test_every_field_identifies_a_point_but_those_that_say_where_and_how_things_are_called(
    base: Experiment,
) -> None:
    name = {"workload.model.name"} if base is OWN else set()  # of a file, which may move
    assert set(told(identity_of(base))) == set(paths(base)) - NO_PART - name


@pytest.mark.parametrize(
    ("path", "base", "new"),
    [
        ("num_workers", GOLDEN, 3),
        ("strategy", GOLDEN, NoCommunication()),
        ("workload.seed", GOLDEN, 2),
        ("strategy.wire.gradients", GOLDEN, WireType.FLOAT16),
        ("network.loss", SPREAD, 0.001),
        ("network.traffic", SPREAD, (Traffic(bits_per_s=1e7),)),
        ("workload.emulated.factors", GOLDEN, (1.0, 1.5)),
        ("measurement.evaluation.batches", EVALUATED, 3),
        ("workload.data.place", READING, "/nfs"),
    ],
)
def test_another_value_is_another_point(path: str, base: Experiment, new: object) -> None:
    assert changed(base, path, new).experiment_id != base.experiment_id


@pytest.mark.parametrize(
    ("path", "base", "new"),
    [
        ("workload.data.path", READING, "/moved"),
        ("workload.data.path", LOOSE, "/moved"),
        ("workload.data.num_records", READING, 50),
        ("workload.model.name", OWN, "moved/mine.py:build"),
        ("workload.model.notes", OWN, ()),
        ("workload.model.only_whole", OWN, "it is so"),
    ],
)
def test_where_data_and_models_are_is_no_part_of_a_point(
    path: str, base: Experiment, new: object
) -> None:
    assert changed(base, path, new).experiment_id == base.experiment_id


@fast
@given(experiments())
def test_an_identity_is_twelve_hexadecimal_digits(experiment: Experiment) -> None:
    assert re.fullmatch("[0-9a-f]{12}", experiment.experiment_id)
