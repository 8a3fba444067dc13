"""The names in `keras.applications` (Keras 3.15), and the image sizes that they take.

A table, because checking a request needs no TensorFlow; a test holds it against Keras itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Image sizes in pixels: the smallest one, and what the dry run takes unless told otherwise."""

    minimum_image_size: int
    designed_image_size: int


#: The size that each was designed for.
_DESIGNED: Mapping[str, int] = {
    "ConvNeXtBase": 224,
    "ConvNeXtLarge": 224,
    "ConvNeXtSmall": 224,
    "ConvNeXtTiny": 224,
    "ConvNeXtXLarge": 224,
    "DenseNet121": 224,
    "DenseNet169": 224,
    "DenseNet201": 224,
    "EfficientNetB0": 224,
    "EfficientNetB1": 240,
    "EfficientNetB2": 260,
    "EfficientNetB3": 300,
    "EfficientNetB4": 380,
    "EfficientNetB5": 456,
    "EfficientNetB6": 528,
    "EfficientNetB7": 600,
    "EfficientNetV2B0": 224,
    "EfficientNetV2B1": 240,
    "EfficientNetV2B2": 260,
    "EfficientNetV2B3": 300,
    "EfficientNetV2L": 480,
    "EfficientNetV2M": 480,
    "EfficientNetV2S": 384,
    "InceptionResNetV2": 299,
    "InceptionV3": 299,
    "MobileNet": 224,
    "MobileNetV2": 224,
    "MobileNetV3Large": 224,
    "MobileNetV3Small": 224,
    "NASNetLarge": 331,
    "NASNetMobile": 224,
    "ResNet101": 224,
    "ResNet101V2": 224,
    "ResNet152": 224,
    "ResNet152V2": 224,
    "ResNet50": 224,
    "ResNet50V2": 224,
    "VGG16": 224,
    "VGG19": 224,
    "Xception": 299,
}

#: The smallest size that Keras builds, where it is not `_SMALLEST`.
_LARGER = {"InceptionResNetV2": 75, "InceptionV3": 75, "Xception": 71}
_SMALLEST = 32

KERAS_APPLICATIONS: Mapping[str, Architecture] = {
    name: Architecture(
        minimum_image_size=_LARGER.get(name, _SMALLEST), designed_image_size=designed
    )
    for name, designed in _DESIGNED.items()
}
