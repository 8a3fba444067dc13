"""How thorough a sweep is: `quick` to look, `standard` to publish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ps_allreduce.errors import UserError
from ps_allreduce.point.architectures import SMALL_CNN
from ps_allreduce.point.experiment import Profile
from ps_allreduce.point.workload import DIGITS, Workload

PROFILES: Mapping[str, Profile] = {
    "quick": Profile(name="quick", repetitions=3, deadline_s=60.0),
    "standard": Profile(
        name="standard", measured_s=20.0, event_steps=3, repetitions=5, deadline_s=900.0
    ),
}

#: What a laptop can train: the architecture counts here, not the size of the images.
WORKLOADS: Mapping[str, Workload] = {
    SMALL_CNN: Workload(input=DIGITS, batch_per_worker=32),
    "ResNet50": Workload(model="ResNet50", image_size=64, batch_per_worker=8, input=DIGITS),
    "VGG16": Workload(model="VGG16", image_size=32, batch_per_worker=8, input=DIGITS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How far the axes of a sweep reach on a machine or cluster.

    Attributes:
        workers: numbers of workers, ascending.
        cores_per_worker: the same for every point, so that efficiency has one base.
    """

    workers: tuple[int, ...]
    cores_per_worker: int


def profile_named(name: str) -> Profile:
    """Look a profile up.

    Raises:
        UserError: there is none of that name.
    """
    if name not in PROFILES:
        raise UserError(f"unknown profile {name!r}; choose one of {', '.join(PROFILES)}.")
    return PROFILES[name]


def models_of(profile: Profile) -> tuple[str, ...]:
    """The models that a comparison trains by default."""
    return tuple(WORKLOADS) if profile.name == "standard" else (SMALL_CNN,)


def scale_of_hosts(most: int, cores_per_worker: int) -> Scale:
    """Workers doubled from one to as many as a cluster holds."""
    workers = [1]
    while workers[-1] * 2 <= most:
        workers.append(workers[-1] * 2)
    return Scale(workers=tuple(workers), cores_per_worker=cores_per_worker)


def scale_for(num_cores: int, profile: Profile) -> Scale:
    """1 and 2 workers; in thorough profiles doubled for as long as each keeps two cores.

    Raises:
        UserError: a comparison needs two cores.
    """
    if num_cores < 2:
        raise UserError(
            "this machine offers 1 core, but a comparison needs 2 workers with a core each."
        )
    workers = [1, 2]
    while profile.name == "standard" and workers[-1] * 4 <= num_cores and workers[-1] < 8:
        workers.append(workers[-1] * 2)
    return Scale(workers=tuple(workers), cores_per_worker=num_cores // workers[-1])
