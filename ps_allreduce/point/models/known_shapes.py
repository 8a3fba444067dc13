"""Variables that are known without building a model: of published papers, and of some of Keras'.

Decides which models these are.  A file in `keras_shapes` has a line for each variable of an
architecture of `keras.applications`, in creation order, for images of the designed size and 1000
classes: its name, its shape, and `fixed` if it is not trained.  A test compares them with Keras.
"""

from __future__ import annotations

import functools
from pathlib import Path

from ps_allreduce.point.models.published_shapes import PUBLISHED
from ps_allreduce.point.placement import VariableSpec

_FOLDER = Path(__file__).resolve().parent / "keras_shapes"

KERAS_SHAPES = ("EfficientNetB0", "InceptionV3", "MobileNetV2", "ResNet50", "VGG16")

#: All of them.
KNOWN = (*KERAS_SHAPES, *PUBLISHED)


@functools.cache
def known_variables(name: str) -> tuple[VariableSpec, ...]:
    """All variables of one of these models, in creation order, as float32."""
    if name in PUBLISHED:
        return PUBLISHED[name].variables
    lines = (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return tuple(map(_spec, lines))


def _spec(line: str) -> VariableSpec:
    name, shape, *fixed = line.split(" ")
    return VariableSpec(
        name=name,
        shape=tuple(map(int, shape.split("x"))),
        dtype="float32",
        trainable=not fixed,
    )
