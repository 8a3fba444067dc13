"""The points of the checklist for GPUs.  Pure.

Decides how many workers there are, on which hosts, and which experiments show what has to be shown.
What is made of them is decided in `gpu_checks`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from experiments.studies.scope import Describe, Scale, Scope
from experiments.sweep.sweep import Profile
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.resources import Device
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    NoCommunication,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.strategies.base import StrategySettings
from ps_allreduce.point.wire import Collective
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.hosts import HostFacts

#: A first run on a new kind of GPU may compile for minutes.
PROFILE = Profile(
    name="accept-gpu",
    measurement=Measurement.of_steps(11),
    repetitions=1,
    deadline_s=1200.0,
)

#: Long enough for ten samples.
SECONDS = replace(PROFILE.measurement, measured_s=5.0, measured_steps=20)

#: For workers that do not wait for each other: some steps of all have to fall into one window.
MANY_STEPS = replace(
    PROFILE.measurement,
    warmup=FixedWarmup(least_steps=1, least_s=1.0),
    measured_s=2.0,
    measured_steps=20,
)

#: Images of a step of all workers together, whatever their number.
GLOBAL_BATCH = 16

#: What ResNet50 keeps of an image of 224 pixels until the backward pass, at least.
BYTES_PER_IMAGE = 78e6

#: Above it the largest tensor has more elements than cuDNN counts.
MOST_IMAGES = 2500

IMAGE_BYTES = 224 * 224 * 3 * 4

#: Batches that the synthetic input keeps in the host's memory, and as many on their way.
BATCHES_ON_HOST = 8

ONE_SERVER = StrategySettings(num_ps=1)


def gpu_scope(
    reference: Experiment, hosts: Sequence[HostFacts], cores_per_host: int, describe: Describe
) -> Scope:
    """Two workers on two hosts, or on the two GPUs of one; else one worker.

    Args:
        reference: the point on processors, on the same hosts.
    """
    per_host = 1 if len(hosts) > 1 else min(2, len(hosts[0].gpus))
    spread = reference.spread
    return Scope(
        workloads=(),
        measurement=PROFILE.measurement,
        scale=Scale(
            workers=(min(2, per_host * len(hosts)),),
            cores_per_worker=max(1, min(8, cores_per_host // per_host)),
        ),
        launcher=reference.launcher,
        device=Device.GPU,
        spread=spread and replace(spread, workers_per_host=per_host),
        interface=reference.interface,
        describe=describe,
    )


def _small(
    scope: Scope,
    strategy: type[AnyStrategy],
    workers: int = 1,
    settings: StrategySettings | None = None,
) -> Experiment:
    """The small model in few steps."""
    workload = Workload(batch_per_worker=GLOBAL_BATCH // workers)
    return scope.point(workload, strategy, workers, settings)


def compared(scope: Scope) -> dict[str, Experiment]:
    """Points whose weights must be those of a single worker on processors."""
    (count,) = scope.scale.workers
    points = {
        "single": _small(scope, Single),
        "ps_async, 1 worker": _small(scope, AsynchronousServers, 1, ONE_SERVER),
        f"ps_sync, {count} workers": _small(scope, SynchronousServers, count, ONE_SERVER),
    }
    for collective in (Collective.RING, Collective.NCCL) if count > 1 else (Collective.RING,):
        one_pack = StrategySettings(collective=collective, bytes_per_pack=0)
        name = f"allreduce over {collective.upper()}, {count} workers"
        points[name] = _small(scope, AllReduce, count, one_pack)
    return points


def trained(scope: Scope) -> dict[str, Experiment]:
    """Points that have no weights to be compared with."""
    (count,) = scope.scale.workers
    points = {f"no_communication, {count} workers": _small(scope, NoCommunication, count)}
    if count > 1:
        served = _small(scope, AsynchronousServers, count, ONE_SERVER)
        points[f"ps_async, {count} workers"] = served
    return {name: replace(point, measurement=MANY_STEPS) for name, point in points.items()}


def sampled(scope: Scope) -> Experiment:
    """Some seconds of work that a GPU notices."""
    model = ImageModel(name="ResNet50", image_size=64)
    point = scope.point(Workload(model=model, batch_per_worker=64), Single, 1)
    return replace(point, measurement=SECONDS)


def beyond_memory(scope: Scope, host: HostFacts) -> Experiment | None:
    """A batch that no step of fits on the GPU; None if the host could not even hold it."""
    memory = host.gpus[0].memory_bytes
    if memory is None:
        return None
    images = min(MOST_IMAGES, math.ceil(1.5 * memory / BYTES_PER_IMAGE))
    if images * IMAGE_BYTES * BATCHES_ON_HOST > host.memory_bytes / 2:
        return None
    model = ImageModel(name="ResNet50", image_size=224, num_classes=1000)
    return scope.point(Workload(model=model, batch_per_worker=images), Single, 1)
