"""Print the models of `keras.applications`, and at which size some of them are refused and built.

`python -m tests.real.provoked_applications`; one process, because an import takes seconds.
"""

from __future__ import annotations

import json
import sys

import keras

from ps_allreduce.point.models.trained import ARCHITECTURES, ImageModel
from ps_allreduce.workloads.keras_models import make_image_model

#: Quick to build.
BUILT = ("DenseNet121", "MobileNetV3Small", "NASNetMobile", "Xception")


def refused(name: str, size: int) -> bool:
    """Keras does not build it for such images."""
    try:
        getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3))
    except ValueError:
        return True
    return False


def outcome(name: str) -> dict[str, object]:
    """Whether a pixel less than the minimum is refused, and how many classes are told apart."""
    smallest = ARCHITECTURES[name].minimum_image_size
    model = make_image_model(ImageModel(name=name, image_size=smallest, num_classes=7))
    return {"refused": refused(name, smallest - 1), "outputs": model.output_shape[-1]}


if __name__ == "__main__":
    names = [name for name, kind in vars(keras.applications).items() if callable(kind)]
    told = {"names": names, "built": {name: outcome(name) for name in BUILT}}
    sys.stdout.write(json.dumps(told) + "\n")
