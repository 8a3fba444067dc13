"""What a study covers where nobody states it.  Pure.

Decides which numbers of workers are tried and how many cores each has, which models are trained,
and sizes that a laptop can train: the architecture counts here, not the size of the images.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from experiments.sweep.sweep import STANDARD, Profile, powers_of_two
from launchers.protocol import Capacity
from ps_allreduce.errors import UserError
from ps_allreduce.point.architectures import (
    SMALL_CNN,
    SMALL_VIT,
    ImageModel,
    OwnModel,
    TextModel,
    shipped_model,
)
from ps_allreduce.point.data import Digits, OwnDataset, Synthetic
from ps_allreduce.point.optimizers import Momentum, Optimizer
from ps_allreduce.point.spread import Spread
from ps_allreduce.point.workload import EmulatedCompute, Precision, Workload

#: On one machine more would only share its memory.
MOST_ON_ONE_HOST = 8

#: Pixels of images, where the models allow it.
IMAGE_SIZE = 64
IMAGE_SIZES = {SMALL_CNN: 32, SMALL_VIT: 32, "VGG16": 32}

BATCH = 8
BATCHES = {SMALL_CNN: 32, SMALL_VIT: 16}

#: Sequences: each holds many tokens.
TEXT_BATCH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTraining:
    """The user's own model, and what its own code says of its training."""

    model: OwnModel
    optimizer: Optimizer = field(default_factory=Momentum)
    precision: Precision = Precision.FLOAT32

    def workload(self, emulated: EmulatedCompute | None) -> Workload:
        """What is trained of it; an emulated accelerator computes in no precision."""
        return Workload(
            model=self.model,
            data=OwnDataset() if self.model.has_dataset else Synthetic(),
            optimizer=self.optimizer,
            precision=Precision.FLOAT32 if emulated else self.precision,
            emulated=emulated,
        )


def default_workers(
    profile: Profile, spread: Spread | None, capacity: Capacity, *, brief: bool = False
) -> tuple[int, ...]:
    """Numbers of workers where none are stated.

    On hosts they are doubled from one to as many as fit; on one machine there are 1 and 2, and in
    the profile `standard` they are doubled for as long as each keeps two cores.

    Args:
        spread: None on one machine.
        brief: of the numbers on hosts only one and the most.

    Raises:
        UserError: the machine has one core, and a comparison needs two.
    """
    if spread is not None:
        doubled = powers_of_two(capacity.num_hosts * spread.workers_per_host)
        return tuple(sorted({doubled[0], doubled[-1]})) if brief else doubled
    cores = capacity.cores_per_host
    if cores < 2:
        raise UserError(
            "this machine offers 1 core, but a comparison needs 2 workers with a core each."
        )
    thorough = profile.name == STANDARD
    return powers_of_two(max(2, min(MOST_ON_ONE_HOST, cores // 2)) if thorough else 2)


def default_cores(workers: tuple[int, ...], spread: Spread | None, capacity: Capacity) -> int:
    """Cores of every worker, so that as many workers as ever share a host do not share cores."""
    together = max(workers) if spread is None else spread.workers_per_host
    return max(1, capacity.cores_per_host // together)


def default_models(profile: Profile) -> tuple[str, ...]:
    """The models that a study trains where none is stated."""
    return (SMALL_CNN, "ResNet50", "VGG16") if profile.name == STANDARD else (SMALL_CNN,)


def default_workload(model: str | OwnTraining, emulated: EmulatedCompute | None = None) -> Workload:
    """What is trained of a model, by its name, or of the user's own.

    Args:
        emulated: an accelerator, without which weights alone are no workload.

    Raises:
        UserError: there is no such model, or it needs an emulated accelerator.
    """
    if isinstance(model, OwnTraining):
        return model.workload(emulated)
    shipped = shipped_model(model)
    if isinstance(shipped, TextModel):
        return Workload(model=shipped, batch_per_worker=TEXT_BATCH, emulated=emulated)
    if not isinstance(shipped, ImageModel):
        return Workload(model=shipped, batch_per_worker=1, emulated=emulated)
    size = IMAGE_SIZES.get(model, max(shipped.sizes.minimum_image_size, IMAGE_SIZE))
    return Workload(
        model=replace(shipped, image_size=size),
        data=Digits(),
        batch_per_worker=BATCHES.get(model, BATCH),
        emulated=emulated,
    )
