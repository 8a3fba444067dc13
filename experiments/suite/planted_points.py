"""What is trained where causes are planted, and how each cause is planted.

Decides the network, the model and its emulated accelerator, and how much of a cause makes a step
longer by a stated share.  Steps are long and hosts' cores are mostly idle, so a launch tells a few
per cent.  Which causes are planted where is drawn in `planted_causes`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.suite.planted_causes import Plant
from ps_allreduce.model_files import copy_files
from ps_allreduce.point.architectures import OwnModel, TensorSet
from ps_allreduce.point.data import OwnDataset
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.spread import LayoutKind, Spread
from ps_allreduce.point.strategies import AllReduce, AnyStrategy, SynchronousServers
from ps_allreduce.point.strategies.base import StrategySettings
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.scratch import scratch_folder

#: Two workers, and two servers on hosts of their own.
NETWORK = EmulatedNetwork(num_hosts=4, bits_per_s=200e6)
WORKERS, SERVERS = 2, 2

#: Gradients travel in the backward pass and for some time after it, so a slower link shows.
COMPUTE = EmulatedCompute(forward_s=0.04, backward_s=0.02)

MEASUREMENT = Measurement(warmup=FixedWarmup(least_steps=5, least_s=0.3), measured_steps=16)

#: Three equal kernels of a model, each cut into two pieces: balanced on two servers.
KERNEL = 360
KERNEL_BYTES = 4 * KERNEL**2

#: Equal tensors of as many bytes, which two servers get in turn: an odd one is one too many.
TENSORS: Mapping[float, int] = {0.05: 9, 0.10: 5, 0.20: 3}

#: Programs that burn a core each, for a share of a step.
BURNERS: Mapping[float, int] = {0.05: 6, 0.10: 9, 0.20: 12}

#: Of messages: many small ones keep links evenly busy.
MESSAGE_BYTES = 65_000

SIZES = tuple(TENSORS)

SIDES: Mapping[str, type[AnyStrategy]] = {
    each.kind: each for each in (SynchronousServers, AllReduce)
}

MODULE = "planted"

#: A user's own model of the same kernels, whose examples come so many seconds apart.
_SOURCE = """\
import keras
import tensorflow as tf


def build():
    layers = [keras.layers.Dense({size}, use_bias=False) for _ in range(3)]
    model = keras.Sequential([keras.Input(({size},)), *layers])
    model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), loss="mse")
    return model


def dataset(shard, num_shards):
    example = (tf.zeros([{size}]), tf.zeros([{size}]))
    examples = tf.data.Dataset.from_tensors(example).repeat()
    late = tf.raw_ops.SleepDataset(
        input_dataset=tf.data.experimental.to_variant(examples),
        sleep_microseconds=tf.constant({period_us}, tf.int64),
        output_types=[tf.float32, tf.float32],
        output_shapes=[[{size}], [{size}]],
    )
    return tf.data.experimental.from_variant(late, examples.element_spec)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundStep:
    """What sound launches of a side take: the base of every share.

    Attributes:
        step_s: mean step.
        travel_s: of it, the time from the first gradient on.
    """

    step_s: float
    travel_s: float


def sound_point(side: str) -> Experiment:
    """The point of a side without any cause."""
    settings = StrategySettings(
        num_ps=SERVERS,
        placement=Policy.PARTITIONED,
        split_bytes=KERNEL_BYTES // 2,
        layout=LayoutKind.DEDICATED,
        group_bytes=MESSAGE_BYTES,
        cut_bytes=MESSAGE_BYTES,
    )
    strategy = SIDES[side]
    return Experiment(
        strategy=strategy.of(settings.only(strategy.understands)),
        num_workers=WORKERS,
        launcher="emulated",
        spread=Spread(),
        network=NETWORK,
        workload=Workload(
            model=TensorSet(count=3, num_bytes=3 * KERNEL_BYTES),
            batch_per_worker=1,
            emulated=COMPUTE,
        ),
        measurement=MEASUREMENT,
    )


def _slow_input(sound: Workload, period_s: float, data_dir: Path) -> Workload:
    """The same tensors, and a dataset of a user's own whose examples are a step and more apart."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with scratch_folder(data_dir) as folder:
        text = _SOURCE.format(period_us=round(period_s * 1e6), size=KERNEL)
        (folder / f"{MODULE}.py").write_text(text, encoding="utf-8")
        digest = copy_files(folder, [f"{MODULE}.py"], data_dir)
    model = OwnModel(
        name=f"{MODULE}.py:build", module=MODULE, function="build", digest=digest, has_dataset=True
    )
    return replace(sound, model=model, data=OwnDataset())


def planted_point(
    sound: Experiment, sizes: Mapping[Plant, float], step: SoundStep, data_dir: Path
) -> Experiment:
    """A point with causes that make its step longer by about these shares.

    Busy cores are no part of a point: see `burners`.
    """
    point = sound
    for plant, share in sizes.items():
        extra_s = share * step.step_s
        if plant is Plant.SLOW_WORKER:
            # What the backward pass takes longer hides gradients that travel.
            factor = round(1 + extra_s / COMPUTE.forward_s, 3)
            emulated = replace(COMPUTE, factors=(1.0, factor))
            point = replace(point, workload=replace(point.workload, emulated=emulated))
        elif plant is Plant.SLOW_INPUT:
            period_s = step.step_s + extra_s
            point = replace(point, workload=_slow_input(point.workload, period_s, data_dir))
        elif plant is Plant.SLOW_LINK:
            point = replace(point, network=_slow_link(point, step, extra_s))
        elif plant is Plant.HOT_SERVER:
            point = _hot_server(point, TENSORS[share])
    return point


def _slow_link(point: Experiment, step: SoundStep, extra_s: float) -> EmulatedNetwork:
    """The link of the last host that a point uses is slower."""
    assert NETWORK.bits_per_s is not None
    rate = NETWORK.bits_per_s / (1 + extra_s / step.travel_s)
    return replace(NETWORK, slow_host=WORKERS + point.num_ps - 1, slow_bits_per_s=round(rate, -3))


def _hot_server(point: Experiment, count: int) -> Experiment:
    """The same bytes in whole tensors, placed as TensorFlow places them."""
    servers = point.strategy.servers
    assert servers is not None
    servers = replace(servers, placement=Policy.ROUND_ROBIN, split_bytes=None)
    model = TensorSet(count=count, num_bytes=3 * KERNEL_BYTES)
    return replace(
        point,
        strategy=replace(point.strategy, servers=servers),
        workload=replace(point.workload, model=model),
    )


def burners(sizes: Mapping[Plant, float]) -> int:
    """Programs that burn a core beside a launch."""
    share = sizes.get(Plant.BUSY_CORES)
    return 0 if share is None else BURNERS[share]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What is planted in a launch."""

    side: str
    sizes: Mapping[Plant, float]


def draws(seed: int, launches: int) -> list[Draw]:
    """What is planted in every launch: on both sides in turn, one cause or in a quarter two.

    Slow input comes alone: an input that takes longer than a step hides everything else.
    """
    chance = random.Random(seed)
    return [_draw(chance, list(SIDES)[number % len(SIDES)]) for number in range(launches)]


def _draw(chance: random.Random, side: str) -> Draw:
    possible = [p for p in Plant if p is not Plant.HOT_SERVER or SIDES[side].uses_servers]
    together = [p for p in possible if p is not Plant.SLOW_INPUT]
    chosen = chance.sample(together, 2) if chance.random() < 0.25 else [chance.choice(possible)]
    return Draw(side=side, sizes={plant: chance.choice(SIZES) for plant in chosen})
