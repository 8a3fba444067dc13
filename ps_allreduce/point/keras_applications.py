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


#: The size that each was designed for, by the smallest one that Keras builds.
_DESIGNED: Mapping[int, Mapping[str, int]] = {
    32: {
        **dict.fromkeys(("ConvNeXtTiny", "ConvNeXtSmall", "ConvNeXtBase"), 224),
        **dict.fromkeys(("ConvNeXtLarge", "ConvNeXtXLarge"), 224),
        **dict.fromkeys(("DenseNet121", "DenseNet169", "DenseNet201"), 224),
        **{"EfficientNetB0": 224, "EfficientNetB1": 240, "EfficientNetB2": 260},
        **{"EfficientNetB3": 300, "EfficientNetB4": 380, "EfficientNetB5": 456},
        **{"EfficientNetB6": 528, "EfficientNetB7": 600},
        **{"EfficientNetV2B0": 224, "EfficientNetV2B1": 240, "EfficientNetV2B2": 260},
        **{"EfficientNetV2B3": 300, "EfficientNetV2S": 384},
        **{"EfficientNetV2M": 480, "EfficientNetV2L": 480},
        **dict.fromkeys(("MobileNet", "MobileNetV2", "MobileNetV3Small", "MobileNetV3Large"), 224),
        **{"NASNetMobile": 224, "NASNetLarge": 331},
        **dict.fromkeys(("ResNet50", "ResNet101", "ResNet152"), 224),
        **dict.fromkeys(("ResNet50V2", "ResNet101V2", "ResNet152V2"), 224),
        **dict.fromkeys(("VGG16", "VGG19"), 224),
    },
    71: {"Xception": 299},
    75: {"InceptionV3": 299, "InceptionResNetV2": 299},
}

KERAS_APPLICATIONS: Mapping[str, Architecture] = {
    name: Architecture(minimum_image_size=minimum, designed_image_size=designed)
    for minimum, sizes in _DESIGNED.items()
    for name, designed in sizes.items()
}
