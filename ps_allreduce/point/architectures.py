"""The networks that can be trained, as far as it takes to check a request.

Building them is the business of `workloads`; this table needs no TensorFlow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ps_allreduce.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Image sizes (pixels, square, three channels) of a network.

    Attributes:
        minimum_image_size: the smallest that the architecture accepts.
        usual_image_size: what it was designed for, the default of the dry run.
    """

    minimum_image_size: int
    usual_image_size: int


SMALL_CNN = "SmallCNN"

MODELS: dict[str, ModelInfo] = {
    SMALL_CNN: ModelInfo(minimum_image_size=16, usual_image_size=32),
    "ResNet50": ModelInfo(minimum_image_size=32, usual_image_size=224),
    "InceptionV3": ModelInfo(minimum_image_size=75, usual_image_size=299),
    "VGG16": ModelInfo(minimum_image_size=32, usual_image_size=224),
    "EfficientNetB0": ModelInfo(minimum_image_size=32, usual_image_size=224),
    "MobileNetV2": ModelInfo(minimum_image_size=32, usual_image_size=224),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSet:
    """No network but equal tensors, to be sent by an emulated accelerator: `Tensors-16-25MB`.

    Attributes:
        count: number of tensors.
        num_bytes: of all together, in float32; a little less where they cannot be divided equally.
    """

    count: int
    num_bytes: int

    @property
    def elements(self) -> int:
        """Size of each tensor."""
        return self.num_bytes // 4 // self.count


def tensor_set(name: str) -> TensorSet | None:
    """Read a name such as `Tensors-160-100MB`; None if it is the name of a network.

    Raises:
        UserError: a tensor would have no element, or too many to be handled.
    """
    found = re.fullmatch(r"Tensors-([0-9]{1,9})-([0-9]{1,9})(KB|MB)", name)
    if found is None:
        return None
    count, amount, unit = found.groups()
    tensors = TensorSet(count=int(count), num_bytes=int(amount) * {"KB": 10**3, "MB": 10**6}[unit])
    if not 1 <= tensors.count <= 10_000 or not 4 * tensors.count <= tensors.num_bytes <= 10**10:
        raise UserError(
            f"model {name}: choose 1 to 10000 tensors, of 4 bytes each or more and 10 GB together "
            "at most."
        )
    return tensors


def model_info(name: str) -> ModelInfo:
    """Look a model up by its exact name.

    Raises:
        UserError: no such model; the message lists those that exist.
    """
    if tensor_set(name) is not None:
        return MODELS[SMALL_CNN]
    if name not in MODELS:
        raise UserError(
            f"unknown model {name!r}; choose one of {', '.join(MODELS)}, or tensors such as "
            "Tensors-16-25MB."
        )
    return MODELS[name]
