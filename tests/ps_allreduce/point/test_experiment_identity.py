"""Everything that decides what is measured is part of a point's identity."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given

from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.point.accelerators import Distribution, Jitter
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Digits, OwnDataset, RecordFiles, Synthetic
from ps_allreduce.point.inputs.data_set import Cache, Encoding, ExampleForm, Pipeline, Target
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.measurement import Evaluation, EvaluationMode, FixedWarmup, Measurement
from ps_allreduce.point.models.recommenders import SMALL_DLRM, RecommenderModel
from ps_allreduce.point.models.trained import (
    SMALL_GPT_UNTIED,
    ImageModel,
    OwnModel,
    TextModel,
    Unit,
)
from ps_allreduce.point.models.weights import PublishedModel, ScaledModel, TensorSet
from ps_allreduce.point.network import EmulatedNetwork, Traffic
from ps_allreduce.point.optimizers import Adagrad, AdamW, Sgd
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Coordinator, Device, LayoutKind, Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AsynchronousServers,
    NoCommunication,
    SynchronousServers,
)
from ps_allreduce.point.strategies.all_reduce import Packs
from ps_allreduce.point.strategies.base import Embeddings, Servers, StrategySettings
from ps_allreduce.point.wire import Collective, Wire, WireType
from ps_allreduce.point.workload import EmulatedCompute, Precision, Scaling, Workload
from tests.examples import experiments, fast
from tests.fakes import make_experiment

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

OTHER_FORM: dict[str, object] = {
    "encoding": Encoding.UINT16,
    "channels": 1,
    "image_size": 64,
    "target": Target.LABELS,
    "num_outputs": 9,
    "highest": 15.0,
}

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

UNLIMITED = EmulatedNetwork(num_hosts=4, bits_per_s=None)

CHANGES: list[tuple[str, Experiment, Any]] = [
    ("strategy", GOLDEN, NoCommunication()),
    ("num_workers", GOLDEN, 3),
    ("strategy.servers.num_ps", GOLDEN, 3),
    ("strategy.servers.placement", make_experiment(), Policy.GREEDY),
    ("strategy.servers.split_bytes", GOLDEN, 4_000_001),
    ("strategy.servers.layout", GOLDEN, LayoutKind.DEDICATED),
    ("strategy.wire.group_bytes", GOLDEN, 0),
    ("strategy.wire.cut_bytes", GOLDEN, 0),
    ("strategy.wire.in_flight", GOLDEN, 0),
    ("strategy.wire.gradients", GOLDEN, WireType.FLOAT16),
    ("strategy.host_aggregation", GOLDEN, True),
    ("strategy.staleness", DEALT, 2),
    ("strategy.steps_per_dispatch", DEALT, 2),
    ("strategy.collective", REDUCED, Collective.AUTO),
    ("strategy.sending.bytes_per_pack", REDUCED, 1),
    ("strategy.sending", REDUCED, Wire()),
    ("measurement.evaluation", GOLDEN, Evaluation(batches=2)),
    ("measurement.evaluation.batches", EVALUATED, 3),
    ("measurement.evaluation.mode", EVALUATED, EvaluationMode.SEQUENTIAL),
    ("workload.data.place", READING, "/nfs"),
    ("workload.data.place", LOOSE, "/nfs"),
    ("launcher", GOLDEN, "slurm"),
    ("spread", GOLDEN, Spread()),
    ("spread.workers_per_host", SPREAD, 1),
    ("spread.ps_per_host", SPREAD, None),
    ("spread.coordinator", SPREAD, Coordinator.FIRST_SERVER),
    ("network", GOLDEN, UNLIMITED),
    ("network.num_hosts", SPREAD, 5),
    ("network.bits_per_s", SPREAD, None),
    ("network.delay_s", SPREAD, 0.001),
    ("network.slow_host", SPREAD, 0),
    ("network.slow_bits_per_s", SPREAD, 2e8),
    ("network.racks", replace(SPREAD, network=UNLIMITED), 2),
    ("network.uplink_bits_per_s", SPREAD, 2e9),
    ("network.congestion", SPREAD, "reno"),
    ("network.port_buffer_bytes", SPREAD, 65536),
    ("network.rto_min_s", SPREAD, 0.4),
    ("network.loss", SPREAD, 0.001),
    ("network.traffic", SPREAD, (Traffic(bits_per_s=1e7),)),
    ("interface", GOLDEN, "eth0"),
    ("workload.model", SENDING, ImageModel()),
    ("workload.model.name", GOLDEN, "ResNet50"),
    ("workload.model.image_size", GOLDEN, 33),
    ("workload.model.num_classes", GOLDEN, 11),
    ("workload.model.channels", GOLDEN, 4),
    ("workload.model.target", GOLDEN, Target.LABELS),
    ("workload.model.count", SENDING, 3),
    ("workload.model.num_bytes", SENDING, 88),
    ("workload.model.name", WRITING, SMALL_GPT_UNTIED),
    ("workload.model.vocabulary", WRITING, 8191),
    ("workload.model.name", CHOOSING, SMALL_DLRM),
    ("strategy.servers.table_rows", SPARSE, RowRule.HASH),
    ("strategy.embeddings", replace(CHOOSING, strategy=NoCommunication()), Embeddings.SPARSE),
    ("workload.model.id_exponent", CHOOSING, 1.0),
    ("workload.optimizer.learning_rate", CHOOSING, 0.1),
    ("workload.optimizer.initial_accumulator_value", CHOOSING, 0.2),
    ("workload.optimizer.epsilon", CHOOSING, 0.2),
    ("workload.model.sequence_length", WRITING, 127),
    ("workload.model.name", PUBLISHED, "ViT-B-16"),
    ("workload.model.base", SCALED, "ResNet50"),
    ("workload.model.divisor", SCALED, 16),
    ("workload.model.module", OWN, "yours"),
    ("workload.model.function", OWN, "make"),
    ("workload.model.arguments", OWN, ("width=2",)),
    ("workload.model.digest", OWN, "0badcaff"),
    ("workload.model.unit", OWN, Unit.TOKENS),
    ("workload.model.tokens_per_example", OWN, 64),
    ("workload.model.has_dataset", DRAWN, False),
    ("workload.data", GOLDEN, Digits()),
    ("workload.data.num_files", READING, 3),
    ("workload.data.num_bytes", READING, 101),
    ("workload.data.checksum", READING, "4567"),
    ("workload.data.form", READING, TOLD),
    *(
        (f"workload.data.form.{name}", READ_FOR_NOTHING, other)
        for name, other in OTHER_FORM.items()
    ),
    ("workload.data.num_files", LOOSE, 3),
    ("workload.data.num_bytes", LOOSE, 101),
    ("workload.data.num_classes", LOOSE, 3),
    ("workload.data.checksum", LOOSE, "4567"),
    ("workload.pipeline.ordered", READING, True),
    ("workload.pipeline.parallel_reads", READING, 2),
    ("workload.pipeline.parallel_maps", READING, 2),
    ("workload.pipeline.prefetch", READING, 0),
    ("workload.pipeline.cache", READING, Cache.MEMORY),
    ("workload.pipeline.shuffle", READING, 0),
    ("workload.pipeline.flips", READING, True),
    ("workload.pipeline.read_size", READ_FOR_NOTHING, 64),
    ("workload.optimizer.learning_rate", GOLDEN, 0.02),
    ("workload.optimizer.momentum", GOLDEN, 0.0),
    ("workload.optimizer.nesterov", GOLDEN, True),
    ("workload.optimizer", GOLDEN, Sgd()),
    ("workload.optimizer.beta_1", OWN, 0.8),
    ("workload.optimizer.beta_2", OWN, 0.99),
    ("workload.optimizer.epsilon", OWN, 1e-8),
    ("workload.optimizer.weight_decay", OWN, 0.01),
    ("workload.batch_per_worker", GOLDEN, 17),
    ("workload.accumulation", GOLDEN, 2),
    ("workload.seed", GOLDEN, 2),
    ("workload.precision", REDUCED, Precision.MIXED_FLOAT16),
    ("workload.dealt_to", replace(REDUCED, num_workers=1), 1),
    ("workload.deterministic", GOLDEN, True),
    ("workload.scaling", GOLDEN, Scaling.STRONG),
    ("workload.emulated", GOLDEN, None),
    ("workload.emulated.forward_s", GOLDEN, 0.021),
    ("workload.emulated.backward_s", GOLDEN, 0.041),
    ("workload.emulated.groups", GOLDEN, 8),
    ("workload.emulated.factors", GOLDEN, (1.0, 1.5)),
    ("workload.emulated.jitter", GOLDEN, JITTER),
    ("workload.emulated.jitter.distribution", JITTERED, Distribution.GAMMA),
    ("workload.emulated.jitter.variation", JITTERED, 0.2),
    ("workload.emulated.jitter.seed", JITTERED, 2),
    ("resources.device", GOLDEN, Device.GPU),
    ("resources.cores_per_worker", GOLDEN, 2),
    ("resources.threads_per_worker", GOLDEN, 2),
    ("measurement.warmup", GOLDEN, FixedWarmup()),
    ("measurement.warmup.least_steps", GOLDEN, 11),
    ("measurement.warmup.least_s", GOLDEN, 6.0),
    ("measurement.warmup.most_steps", GOLDEN, 41),
    ("measurement.warmup.most_s", GOLDEN, 11.0),
    ("measurement.measured_steps", GOLDEN, 101),
    ("measurement.measured_s", GOLDEN, 1.0),
    ("measurement.event_steps", GOLDEN, 1),
]

#: Where files are is no part of what they are, nor what they are called, nor what is said of them.
NO_PART = {
    *("workload.data.path", "workload.data.num_records"),
    *("workload.model.notes", "workload.model.learning", "workload.model.only_whole"),
}


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
    bases = (
        *(GOLDEN, SPREAD, REDUCED, DEALT, READING, SENDING, JITTERED, OWN, WRITING, PUBLISHED),
        *(SCALED, LOOSE, READ_FOR_NOTHING, CHOOSING, SPARSE),
    )
    found = set().union(*(paths(base) for base in bases))
    assert found - {path for path, _, _ in CHANGES} == NO_PART


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
