"""One fully specified measurement point.

Decides what a point consists of, which combinations make sense, and its identity.  How the point is
run is the launchers' business; in which order, that of `experiments`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from enum import StrEnum

from ps_allreduce.errors import UserError
from ps_allreduce.models import SMALL_CNN, model_info
from ps_allreduce.network import EmulatedNetwork
from ps_allreduce.placement import DEFAULT_SPLIT_BYTES, Policy
from ps_allreduce.serialization import to_json
from ps_allreduce.spread import LayoutKind, Spread
from ps_allreduce.strategies import TRAITS, Strategy, StrategyTraits

SYNTHETIC = "synthetic"
DIGITS = "digits"


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


def _at_least(minimum: float, **values: float) -> None:
    for name, value in values.items():
        if not value >= minimum:  # "not a number" is below everything
            raise UserError(f"{name} must be at least {minimum:g}, got {value:g}.")


def _at_most(maximum: float, **values: float) -> None:
    for name, value in values.items():
        if value > maximum:
            raise UserError(f"{name} must be at most {maximum:g}, got {value:g}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedCompute:
    """An accelerator that takes a stated time and no processor.

    Attributes:
        forward_s: time from the parameters' arrival to the loss, per batch.
        backward_s: time from the loss to the last gradient, per batch.
        groups: the gradients become available in so many groups, in backward order.  More than 16
            cost processor time of their own.
    """

    forward_s: float
    backward_s: float
    groups: int = 16

    def __post_init__(self) -> None:
        _at_least(0.001, forward_s=self.forward_s, backward_s=self.backward_s)
        _at_most(3600, forward_s=self.forward_s, backward_s=self.backward_s)
        if not 1 <= self.groups <= 16:
            raise UserError(f"gradient groups must be 1 to 16, got {self.groups}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What every worker trains: the same for all strategies of a comparison.

    Attributes:
        image_size: pixels of a square image with three channels.
        accumulation: batches per synchronisation.
        input: `synthetic`, `digits`, or the path of a folder of TFRecord files.  That the folder
            exists is checked where it is used: records are read after it is gone.
        learning_rate, momentum: of stochastic gradient descent, constant.
        seed: of the initial weights, the synthetic images and the shuffling.
        emulated: replaces the real forward and backward pass.
    """

    model: str = SMALL_CNN
    image_size: int = 32
    num_classes: int = 10
    batch_per_worker: int = 16
    accumulation: int = 1
    input: str = SYNTHETIC
    learning_rate: float = 0.01
    momentum: float = 0.9
    seed: int = 1
    emulated: EmulatedCompute | None = None

    def __post_init__(self) -> None:
        minimum = model_info(self.model).minimum_image_size
        if self.image_size < minimum:
            raise UserError(
                f"image_size {self.image_size} is below the minimum of {self.model}: "
                f"use {minimum} or more."
            )
        _at_least(1, batch_per_worker=self.batch_per_worker, accumulation=self.accumulation)
        _at_least(2, num_classes=self.num_classes)
        _at_most(1e6, num_classes=self.num_classes, batch_per_worker=self.batch_per_worker)
        _at_most(1e4, image_size=self.image_size, accumulation=self.accumulation)
        if self.input == DIGITS and self.num_classes < 10:
            raise UserError(f"input digits has 10 classes, got num_classes {self.num_classes}.")

    @property
    def compute(self) -> str:
        """`real` or `emulated`, as records state it."""
        return "real" if self.emulated is None else "emulated"


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
        _at_least(1, measured_steps=self.measured_steps, repetitions=self.repetitions)
        _at_least(1, warmup_steps=self.warmup_steps)
        _at_least(0, warmup_s=self.warmup_s, measured_s=self.measured_s)
        _at_least(0, event_steps=self.event_steps)
        _at_least(1, deadline_s=self.deadline_s)


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
        _at_least(1, cores_per_worker=self.cores_per_worker)
        _at_least(1, threads_per_worker=self.threads_per_worker)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A point of a sweep: everything that decides what is measured.

    Attributes:
        num_ps, placement, split_bytes, layout: of parameter servers; 0 and None without them.
        split_bytes: variables above it are cut by the `partitioned` policy, None otherwise.
        collective, bytes_per_pack: of all-reduce, None without it; 0 bytes is one single pack.
        spread: tasks per host, None where all tasks share one host.
        network: what the launcher `emulated` shapes, None for networks as they are.
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
    workload: Workload = field(default_factory=Workload)
    resources: Resources = field(default_factory=Resources)
    profile: Profile

    def __post_init__(self) -> None:
        _at_least(1, num_workers=self.num_workers)
        _at_least(0, num_ps=self.num_ps)
        _at_most(65535, num_workers=self.num_workers, num_ps=self.num_ps)
        bound = self.traits.max_workers
        if bound is not None and self.num_workers > bound:
            raise UserError(
                f"strategy {self.strategy} runs on {bound} worker, got num_workers "
                f"{self.num_workers}."
            )
        self._check_servers()
        self._check_collective()

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
            _at_least(1, split_bytes=self.split_bytes)

    def _check_collective(self) -> None:
        given = (self.collective, self.bytes_per_pack)
        if self.traits.uses_collective and None in given:
            raise UserError(
                f"strategy {self.strategy} needs a collective ({', '.join(Collective)}) and "
                "bytes_per_pack (0 for one pack)."
            )
        if not self.traits.uses_collective and given != (None, None):
            raise UserError(
                f"strategy {self.strategy} uses no collective: leave collective and "
                "bytes_per_pack out."
            )
        if self.collective is Collective.NCCL and self.resources.device is not Device.GPU:
            raise UserError("collective nccl needs workers on GPUs; on CPUs use ring or auto.")
        if self.bytes_per_pack is not None:
            _at_least(0, bytes_per_pack=self.bytes_per_pack)

    @property
    def traits(self) -> StrategyTraits:
        """What sets this point's strategy apart."""
        return TRAITS[self.strategy]

    @property
    def transport(self) -> str | None:
        """What carries the gradients; None where nothing is carried."""
        if self.traits.uses_collective and self.collective is not None:
            return TRANSPORT_OF[self.collective]
        return GRPC if self.traits.uses_servers else None

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
        parts = [str(self.strategy), self.workload.model, f"{self.num_workers} workers"]
        if self.traits.uses_servers:
            parts += [f"{self.num_ps} ps", str(self.placement)]
        if self.bytes_per_pack:
            parts.append(f"{self.bytes_per_pack / 1e6:g} MB packs")
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
