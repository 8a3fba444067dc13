"""The networks that can be trained, as far as it takes to check a request.

Building them is the business of `workloads`; this table needs no TensorFlow.
"""

from __future__ import annotations

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


def model_info(name: str) -> ModelInfo:
    """Look a model up by its exact name.

    Raises:
        UserError: no such model; the message lists those that exist.
    """
    if name not in MODELS:
        raise UserError(f"unknown model {name!r}; choose one of {', '.join(MODELS)}.")
    return MODELS[name]
