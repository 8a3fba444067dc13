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

from experiments.suite.found_causes import Plant
from ps_allreduce.model_files import copy_files
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import OwnDataset
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.models.weights import TensorSet
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.strategies import AllReduce, AnyStrategy, SynchronousServers
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.scratch import scratch_folder

#: The side with shallow ports: where only two workers send to a server, even ports of one packet,
#: which lose 1 % of all, make a step no more than 5 % longer.
INCAST = "ps_sync, 4 workers"

SIDES: Mapping[str, type[AnyStrategy]] = {
    SynchronousServers.kind: SynchronousServers,
    AllReduce.kind: AllReduce,
    INCAST: SynchronousServers,
}

#: Workers of each side, and servers on hosts of their own.
WORKERS = dict.fromkeys(SIDES, 2) | {INCAST: 4}
SERVERS = 2

NETWORK = EmulatedNetwork(num_hosts=max(WORKERS.values()) + SERVERS, bits_per_s=100e6)

#: Gradients travel in the backward pass and for some time after it, so a slower link shows.
COMPUTE = EmulatedCompute(forward_s=0.08, backward_s=0.04)

WARMUP = FixedWarmup(least_steps=5, least_s=0.3)
MEASUREMENT = Measurement(warmup=WARMUP, measured_steps=24)

#: Fewer steps tell no stalls (`analysis.derive.steadiness`).
STALLING = replace(MEASUREMENT, measured_steps=100)

#: Equal tensors, which two servers get in turn: as many bytes each.
COUNT, TENSOR_BYTES = 24, 64_800

SIZES = (0.05, 0.10, 0.20)

#: Programs that burn a core each, for a share of a step.
BURNERS: Mapping[float, int] = {0.05: 5, 0.10: 6, 0.20: 8}

#: Bytes that the ports of a switch buffer, for a share of a step.
PORTS: Mapping[float, int] = {0.05: 160_000, 0.10: 92_000, 0.20: 50_000}

#: Share of packets that every port loses, for a share of a step.  TCP sends most of them again
#: within a round trip, so few do not show: 0.1 % makes a step 1 to 3 % longer.
LOSSES: Mapping[float, float] = {0.05: 0.0035, 0.10: 0.0095, 0.20: 0.015}

#: Causes that come alone: an input that takes longer than a step hides everything else, shallow
#: ports have a side of their own, and stalls need longer windows than other causes.
ALONE = (Plant.SLOW_INPUT, Plant.SHALLOW_PORT, Plant.RANDOM_LOSS)

#: Whether a cause needs a side with servers, or one without.  All-reduce has no hottest server, and
#: loses nothing at a shallow port: one host sends to it, no faster than its link.  Servers leave
#: cores idle for most of a step, and then whoever sleeps goes before whoever burns.
ONLY: Mapping[Plant, bool] = {
    Plant.HOT_SERVER: True,
    Plant.SHALLOW_PORT: True,
    Plant.BUSY_CORES: False,
}

#: Batches that wait for a worker before the first step: slow input shows when they are used up.
FETCHED_BEFOREHAND = 3

#: Of messages: a tensor each keeps links evenly busy.
MESSAGE_BYTES = 100_000

MODULE = "planted"

#: A user's own model of so many floats in every tensor, and examples that come some time apart.
_SOURCE = """\
import keras
import tensorflow as tf

SIZES = {sizes}
PERIOD_US = {period_us}


class Tensors(keras.Layer):
    def build(self, input_shape):
        for number, size in enumerate(SIZES):
            self.add_weight(shape=(size,), name=f"tensor_{{number}}")

    def call(self, inputs):
        return inputs


def build():
    model = keras.Sequential([keras.Input((1,)), Tensors()])
    model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), loss="mse")
    return model


def dataset(shard, num_shards):
    example = (tf.zeros([1]), tf.zeros([1]))
    examples = tf.data.Dataset.from_tensors(example).repeat()
    if not PERIOD_US:
        return examples
    late = tf.raw_ops.SleepDataset(
        input_dataset=tf.data.experimental.to_variant(examples),
        sleep_microseconds=tf.constant(PERIOD_US, tf.int64),
        output_types=[tf.float32, tf.float32],
        output_shapes=[[1], [1]],
    )
    return tf.data.experimental.from_variant(late, examples.element_spec)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundStep:
    """What sound launches of a side take: the base of every share.

    Attributes:
        step_s: mean step.
        travel_s: of it, the time from the first gradient on.
        network_s: in which the busiest link carries the bytes of a step.
    """

    step_s: float
    travel_s: float
    network_s: float


def sound_point(side: str) -> Experiment:
    """The point of a side without any cause."""
    settings = StrategySettings(
        num_ps=SERVERS,
        placement=Policy.ROUND_ROBIN,
        layout=LayoutKind.DEDICATED,
        group_bytes=MESSAGE_BYTES,
        cut_bytes=MESSAGE_BYTES,
    )
    strategy = SIDES[side]
    return Experiment(
        strategy=strategy.of(settings.only(strategy.understands())),
        num_workers=WORKERS[side],
        launcher="emulated",
        spread=Spread(),
        network=NETWORK,
        workload=Workload(
            model=TensorSet(count=COUNT, num_bytes=COUNT * TENSOR_BYTES),
            batch_per_worker=1,
            emulated=COMPUTE,
        ),
        measurement=MEASUREMENT,
    )


def _own_model(
    sound: Workload, data_dir: Path, *, period_s: float = 0.0, hotter: float = 0.0
) -> Workload:
    """The same bytes in a user's own model.

    Args:
        period_s: from one example to the next.
        hotter: by this share every second tensor is larger, and the others smaller.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    floats = [round(TENSOR_BYTES / 4 * (1 + sign * hotter)) for sign in (1, -1)]
    with scratch_folder(data_dir) as folder:
        text = _SOURCE.format(sizes=floats * (COUNT // 2), period_us=round(period_s * 1e6))
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
            late = _own_model(point.workload, data_dir, period_s=step.step_s + extra_s)
            point = replace(point, workload=late, measurement=_after_drained(share))
        elif plant is Plant.SLOW_LINK:
            point = replace(point, network=_slow_link(point, step, extra_s))
        elif plant is Plant.SHALLOW_PORT:
            network = replace(_network(point), port_buffer_bytes=PORTS[share])
            point = replace(point, network=network, measurement=STALLING)
        elif plant is Plant.RANDOM_LOSS:
            network = replace(_network(point), loss=LOSSES[share])
            point = replace(point, network=network, measurement=STALLING)
        elif plant is Plant.HOT_SERVER:
            # Servers get tensors in turn, so one gets all the larger ones.
            hotter = extra_s / step.network_s
            point = replace(point, workload=_own_model(point.workload, data_dir, hotter=hotter))
    return point


def _after_drained(share: float) -> Measurement:
    """The window begins when an input that is slower by this share has no batch left over."""
    steps = WARMUP.least_steps + round(FETCHED_BEFOREHAND / share)
    return replace(MEASUREMENT, warmup=replace(WARMUP, least_steps=steps))


def _slow_link(point: Experiment, step: SoundStep, extra_s: float) -> EmulatedNetwork:
    """The link of the last host that a point uses is slower."""
    network = _network(point)
    assert network.bits_per_s is not None
    rate = network.bits_per_s / (1 + extra_s / step.travel_s)
    return replace(
        network, slow_host=point.num_workers + point.num_ps - 1, slow_bits_per_s=round(rate, -3)
    )


def _network(point: Experiment) -> EmulatedNetwork:
    assert point.network is not None
    return point.network


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
    """What is planted in every launch: on both sides in turn, one cause or in a fifth two."""
    chance, sides = random.Random(seed), [side for side in SIDES if side != INCAST]
    return [_draw(chance, sides[number % len(sides)]) for number in range(launches)]


def _draw(chance: random.Random, side: str) -> Draw:
    served = SIDES[side].uses_servers
    possible = [plant for plant in Plant if ONLY.get(plant, served) is served]
    together = [plant for plant in possible if plant not in ALONE]
    chosen = chance.sample(together, 2) if chance.random() < 0.2 else [chance.choice(possible)]
    if Plant.SHALLOW_PORT in chosen:
        side = INCAST
    return Draw(side=side, sizes={plant: chance.choice(SIZES) for plant in chosen})
