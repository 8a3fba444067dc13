"""What is trained where nobody states it.

Decides sizes that a laptop can train: the architecture counts here, not the size of the images.
"""

from __future__ import annotations

from experiments.sweep.profiles import STANDARD, Profile
from ps_allreduce.point.architectures import (
    SMALL_CNN,
    ImageModel,
    architecture_named,
    tensor_set,
)
from ps_allreduce.point.data import Digits
from ps_allreduce.point.workload import EmulatedCompute, Workload

#: Pixels of images, where the models allow it.
IMAGE_SIZE = 64
IMAGE_SIZES = {SMALL_CNN: 32, "VGG16": 32}

BATCH = 8
BATCHES = {SMALL_CNN: 32}


def default_models(profile: Profile) -> tuple[str, ...]:
    """The models that a study trains where none is stated."""
    return (SMALL_CNN, "ResNet50", "VGG16") if profile.name == STANDARD else (SMALL_CNN,)


def default_workload(model: str, emulated: EmulatedCompute | None = None) -> Workload:
    """What is trained of a model, by its name.

    Args:
        emulated: an accelerator, without which plain tensors are no workload.

    Raises:
        UserError: there is no such model, or it needs an emulated accelerator.
    """
    tensors = tensor_set(model)
    if tensors is not None:
        return Workload(model=tensors, batch_per_worker=1, emulated=emulated)
    minimum = architecture_named(model).minimum_image_size
    size = IMAGE_SIZES.get(model, max(minimum, IMAGE_SIZE))
    return Workload(
        model=ImageModel(name=model, image_size=size),
        data=Digits(),
        batch_per_worker=BATCHES.get(model, BATCH),
        emulated=emulated,
    )
