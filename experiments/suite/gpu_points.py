"""The points of the checklist for GPUs.  Pure.

Decides how many workers there are, on which hosts, and which experiments show what has to be shown.
What is made of them is decided in `gpu_checks`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from launchers import LOCAL
from ps_allreduce.point.experiment import (
    Collective,
    Device,
    Experiment,
    Profile,
    Resources,
    server_settings,
)
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.spread import Spread
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.hosts import HostFacts

#: A first run on a new kind of GPU may compile for minutes.
DEADLINE_S = 1200.0

STEPS = Profile(
    name="accept-gpu",
    warmup_steps=1,
    warmup_s=0.0,
    measured_steps=6,
    repetitions=1,
    deadline_s=DEADLINE_S,
)

#: Long enough for ten samples.
SECONDS = replace(STEPS, measured_s=5.0, measured_steps=20)

#: For workers that do not wait for each other: some steps of all have to fall into one window.
MANY_STEPS = replace(STEPS, warmup_s=1.0, measured_s=2.0, measured_steps=20)

#: Images of a step of all workers together, whatever their number.
GLOBAL_BATCH = 16

#: What ResNet50 keeps of an image of 224 pixels until the backward pass, at least.
BYTES_PER_IMAGE = 78e6

#: Above it the largest tensor has more elements than cuDNN counts.
MOST_IMAGES = 2500

IMAGE_BYTES = 224 * 224 * 3 * 4

#: Batches that the synthetic input keeps in the host's memory, and as many on their way.
BATCHES_ON_HOST = 8


SERVED: dict[str, Any] = server_settings(1, Policy.ROUND_ROBIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where the checklist is run.

    Attributes:
        num_workers: 2 where there are two GPUs, else 1.
    """

    launcher: str
    interface: str | None
    hosts: Sequence[HostFacts]
    num_workers: int
    workers_per_host: int
    cores_per_worker: int

    @classmethod
    def of(
        cls, launcher: str, interface: str | None, hosts: Sequence[HostFacts], cores_per_host: int
    ) -> Ground:
        """Two workers on two hosts, or on the two GPUs of one; else one worker."""
        per_host = 1 if len(hosts) > 1 else min(2, len(hosts[0].gpus))
        return cls(
            launcher=launcher,
            interface=interface,
            hosts=hosts,
            num_workers=min(2, per_host * len(hosts)),
            workers_per_host=per_host,
            cores_per_worker=max(1, min(8, cores_per_host // per_host)),
        )

    def point(
        self,
        strategy: Strategy,
        num_workers: int = 1,
        *,
        device: Device = Device.GPU,
        workload: Workload | None = None,
        profile: Profile = STEPS,
        **settings: Any,
    ) -> Experiment:
        """An experiment on these hosts, usually of the small network in few steps."""
        small = Workload(batch_per_worker=GLOBAL_BATCH // num_workers)
        cores = self.cores_per_worker
        return Experiment(
            strategy=strategy,
            num_workers=num_workers,
            launcher=self.launcher,
            spread=None
            if self.launcher == LOCAL
            else Spread(workers_per_host=self.workers_per_host),
            interface=self.interface,
            workload=workload or small,
            resources=Resources(
                device=device, cores_per_worker=cores, threads_per_worker=max(1, cores - 1)
            ),
            profile=profile,
            **settings,
        )

    def synchronous(self) -> Experiment:
        """All workers, with a server."""
        return self.point(Strategy.PS_SYNC, self.num_workers, **SERVED)

    def compared(self) -> dict[str, Experiment]:
        """Points whose weights must be those of a single worker on processors."""
        ring = self.reduced(Collective.RING)
        return {
            "single": self.point(Strategy.SINGLE),
            "ps_async, 1 worker": self.point(Strategy.PS_ASYNC, **SERVED),
            f"ps_sync, {self.num_workers} workers": self.synchronous(),
            f"allreduce over RING, {self.num_workers} workers": ring,
        }

    def reduced(self, collective: Collective) -> Experiment:
        """All workers, with all-reduce."""
        return self.point(
            Strategy.ALLREDUCE, self.num_workers, collective=collective, bytes_per_pack=0
        )

    def trained(self) -> dict[str, Experiment]:
        """Points that have no weights to be compared with."""
        count = self.num_workers
        free = self.point(Strategy.NO_COMMUNICATION, count, profile=MANY_STEPS)
        served = self.point(Strategy.PS_ASYNC, count, profile=MANY_STEPS, **SERVED)
        points = {f"no_communication, {count} workers": free}
        return points | ({f"ps_async, {count} workers": served} if count > 1 else {})

    def sampled(self) -> Experiment:
        """Some seconds of work that a GPU notices."""
        workload = Workload(model="ResNet50", image_size=64, batch_per_worker=64)
        return self.point(Strategy.SINGLE, workload=workload, profile=SECONDS)

    def beyond_memory(self) -> Experiment | None:
        """A batch that no step of fits on the GPU; None if the host could not even hold it."""
        host = self.hosts[0]
        memory = host.gpus[0].memory_bytes
        if memory is None:
            return None
        images = min(MOST_IMAGES, math.ceil(1.5 * memory / BYTES_PER_IMAGE))
        if images * IMAGE_BYTES * BATCHES_ON_HOST > host.memory_bytes / 2:
            return None
        workload = Workload(
            model="ResNet50", image_size=224, num_classes=1000, batch_per_worker=images
        )
        return self.point(Strategy.SINGLE, workload=workload)
