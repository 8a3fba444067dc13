"""One fully specified measurement point.

Decides what a point consists of, which combinations make sense, and its identity.  How the point is
run is the launchers' business; in which order, that of `experiments`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from enum import StrEnum

from ps_allreduce.errors import UserError, at_least, at_most
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import DEFAULT_SPLIT_BYTES, Policy
from ps_allreduce.point.spread import LayoutKind, Spread, workers_together
from ps_allreduce.point.strategies import TRAITS, Strategy, StrategyTraits
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.point.workload import Precision, Workload
from ps_allreduce.serialization import to_json


class Collective(StrEnum):
    """Implementations of the all-reduce collective."""

    RING = "ring"
    NCCL = "nccl"
    AUTO = "auto"


#: TensorFlow moves tensors between tasks by gRPC unless a collective brings its own way.
GRPC = "grpc"

#: AUTO takes NCCL where every worker has a GPU: which one is unknown beforehand.
TRANSPORT_OF = {Collective.RING: GRPC, Collective.NCCL: "nccl", Collective.AUTO: "auto"}


class Device(StrEnum):
    """Where workers compute."""

    CPU = "cpu"
    GPU = "gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How long a run warms up and measures.

    Attributes:
        warmup_steps, warmup_s: both must be reached by every worker.
        measured_steps, measured_s: at least, per worker.
        event_steps: steps after the measured window that are traced tensor by tensor.
        repetitions: launches of every point.
        deadline_s: a run that takes longer has timed out.
    """

    name: str
    warmup_steps: int = 10
    warmup_s: float = 5.0
    measured_steps: int = 100
    measured_s: float = 0.0
    event_steps: int = 0
    repetitions: int = 3
    deadline_s: float = 120.0

    def __post_init__(self) -> None:
        at_least(1, measured_steps=self.measured_steps, repetitions=self.repetitions)
        at_least(1, warmup_steps=self.warmup_steps)
        at_least(0, warmup_s=self.warmup_s, measured_s=self.measured_s)
        at_least(0, event_steps=self.event_steps)
        at_least(1, deadline_s=self.deadline_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a worker computes on.

    Attributes:
        cores_per_worker: cores that a worker is pinned to; servers share them if colocated.
        threads_per_worker: TensorFlow's intra-operation threads.
    """

    device: Device = Device.CPU
    cores_per_worker: int = 1
    threads_per_worker: int = 1

    def __post_init__(self) -> None:
        at_least(1, cores_per_worker=self.cores_per_worker)
        at_least(1, threads_per_worker=self.threads_per_worker)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A point of a sweep: everything that decides what is measured.

    Attributes:
        num_ps, placement, split_bytes, layout: of parameter servers; 0 and None without them.
        split_bytes: variables above it are cut by the `partitioned` policy, None otherwise.
        collective: of all-reduce, None without it.
        bytes_per_pack: TensorFlow packs and orders what it reduces; 0 is one single pack.  None
            sends buckets as `wire` says, which RING alone can.
        spread: tasks per host, None where all tasks share one host.
        network: what the launcher `emulated` shapes, None for networks as they are.
        wire: how gradients travel; the default where nothing is sent.
        staleness: of strategies that deal steps: no worker begins a step before every other one has
            ended all but so many of its steps; None is no bound.  0 would be synchronous.
        steps_per_dispatch: of strategies that deal steps: a worker makes so many in one go.
        interface: the network whose addresses the tasks use, a name or a subnet; None leaves the
            choice to the launcher.
    """

    strategy: Strategy
    num_workers: int = 1
    num_ps: int = 0
    placement: Policy | None = None
    split_bytes: int | None = None
    layout: LayoutKind | None = None
    collective: Collective | None = None
    bytes_per_pack: int | None = None
    launcher: str = "local"
    spread: Spread | None = None
    network: EmulatedNetwork | None = None
    interface: str | None = None
    wire: Wire = field(default_factory=Wire)
    staleness: int | None = None
    steps_per_dispatch: int = 1
    workload: Workload = field(default_factory=Workload)
    resources: Resources = field(default_factory=Resources)
    profile: Profile

    def __post_init__(self) -> None:
        at_least(1, num_workers=self.num_workers)
        at_least(0, num_ps=self.num_ps)
        at_most(65535, num_workers=self.num_workers, num_ps=self.num_ps)
        bound = self.traits.max_workers
        if bound is not None and self.num_workers > bound:
            raise UserError(
                f"strategy {self.strategy} runs on {bound} worker, got num_workers "
                f"{self.num_workers}."
            )
        self._check_servers()
        self._check_collective()
        self._check_device()
        self._check_dealing()
        if not self.traits.communicates and self.wire != Wire():
            raise UserError(
                f"strategy {self.strategy} sends nothing: leave the settings of the wire out."
            )
        self._check_aggregation()

    def _check_servers(self) -> None:
        parts = (self.placement, self.layout)
        if self.traits.uses_servers and (self.num_ps < 1 or None in parts):
            raise UserError(
                f"strategy {self.strategy} needs num_ps of 1 or more, a placement "
                f"({', '.join(Policy)}) and a layout ({', '.join(LayoutKind)})."
            )
        if not self.traits.uses_servers and (self.num_ps or parts != (None, None)):
            raise UserError(
                f"strategy {self.strategy} has no parameter servers: leave num_ps, placement and "
                "layout out."
            )
        if (self.split_bytes is not None) != (self.placement is Policy.PARTITIONED):
            raise UserError("split_bytes belongs to the placement partitioned, and only to it.")
        if self.split_bytes is not None:
            at_least(1, split_bytes=self.split_bytes)

    def _check_dealing(self) -> None:
        at_least(1, steps_per_dispatch=self.steps_per_dispatch)
        at_most(16, steps_per_dispatch=self.steps_per_dispatch)
        if not self.traits.deals_steps and (self.staleness, self.steps_per_dispatch) != (None, 1):
            raise UserError(
                f"strategy {self.strategy} waits for all workers: leave staleness and "
                "steps_per_dispatch out."
            )
        if self.staleness is None:
            return
        if self.staleness == 0:
            raise UserError("staleness 0 is synchronous: use strategy ps_sync.")
        at_least(1, staleness=self.staleness)
        if self.staleness < self.steps_per_dispatch:
            raise UserError(
                f"staleness {self.staleness} leaves no room for steps_per_dispatch "
                f"{self.steps_per_dispatch}: no worker could ever begin; the bound must be as "
                f"large at least, and {2 * self.steps_per_dispatch - 1} for workers to overlap."
            )

    def _check_aggregation(self) -> None:
        if not self.wire.host_aggregation:
            return
        if not self.traits.aggregates:
            raise UserError(
                f"strategy {self.strategy} has nothing to add up on a host before it sends: leave "
                "host_aggregation out, or use strategy ps_sync."
            )
        together = workers_together(self.num_workers, self.spread)
        if self.num_workers % together:
            raise UserError(
                "host_aggregation needs equally many workers on every host: num_workers "
                f"{self.num_workers} is no multiple of workers_per_host {together}."
            )

    def _check_collective(self) -> None:
        if self.traits.uses_collective and self.collective is None:
            raise UserError(
                f"strategy {self.strategy} needs a collective ({', '.join(Collective)})."
            )
        if not self.traits.uses_collective and (self.collective, self.bytes_per_pack) != (
            None,
            None,
        ):
            raise UserError(
                f"strategy {self.strategy} uses no collective: leave collective and "
                "bytes_per_pack out."
            )
        self._check_packs()

    def _check_packs(self) -> None:
        if self.bytes_per_pack is None:
            if self.collective in (Collective.NCCL, Collective.AUTO):
                raise UserError(
                    f"collective {self.collective} is used in TensorFlow's packs: state "
                    "bytes_per_pack (0 for one pack)."
                )
            return
        at_least(0, bytes_per_pack=self.bytes_per_pack)
        if self.wire != Wire():
            raise UserError(
                f"in packs (bytes_per_pack, or collective {Collective.NCCL} or {Collective.AUTO}) "
                "TensorFlow decides what is sent: leave the settings of the wire out."
            )

    def _check_device(self) -> None:
        if self.collective is Collective.NCCL and self.resources.device is not Device.GPU:
            raise UserError("collective nccl needs workers on GPUs; on CPUs use ring or auto.")

    @property
    def traits(self) -> StrategyTraits:
        """What sets this point's strategy apart."""
        return TRAITS[self.strategy]

    @property
    def transport(self) -> str | None:
        """What carries the gradients, and as what if not float32; None where nothing is carried."""
        if not self.traits.communicates:
            return None
        carrier = TRANSPORT_OF[self.collective] if self.collective else GRPC
        if self.wire.gradients is WireType.FLOAT32:
            return carrier
        return f"{carrier} in {self.wire.gradients}"

    @property
    def global_batch(self) -> int:
        """Images per step of all workers together."""
        return self.num_workers * self.images_per_worker_step

    @property
    def images_per_worker_step(self) -> int:
        """Images that one worker handles between two synchronisations."""
        return self.workload.batch_per_worker * self.workload.accumulation

    @property
    def experiment_id(self) -> str:
        """Twelve hexadecimal digits that identify the content of this point."""
        text = json.dumps(to_json(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def title(self) -> str:
        """A short line for progress bars and messages."""
        workers = f"{self.num_workers} worker{'s' * (self.num_workers > 1)}"
        parts = [str(self.strategy), self.workload.model, workers]
        if self.traits.uses_servers:
            parts += [f"{self.num_ps} ps", str(self.placement)]
        if self.bytes_per_pack is not None:
            packs = f"{self.bytes_per_pack / 1e6:g} MB packs"
            parts.append(packs if self.bytes_per_pack else "one pack")
        parts += [f"{name} {value}" for name, value in self.wire.changed.items()]
        if self.staleness is not None:
            parts.append(f"staleness {self.staleness}")
        if self.steps_per_dispatch > 1:
            parts.append(f"steps_per_dispatch {self.steps_per_dispatch}")
        if self.workload.accumulation > 1:
            parts.append(f"accumulation {self.workload.accumulation}")
        if self.workload.precision is not Precision.FLOAT32:
            parts.append(str(self.workload.precision))
        return ", ".join(parts)


def server_settings(
    num_ps: int,
    placement: Policy,
    layout: LayoutKind = LayoutKind.COLOCATED,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
) -> dict[str, object]:
    """Keyword arguments of an `Experiment` with parameter servers."""
    cut = split_bytes if placement is Policy.PARTITIONED else None
    return {"num_ps": num_ps, "placement": placement, "layout": layout, "split_bytes": cut}
