"""Variables that are known without building a model: of published papers, and of some of Keras'.

A file in `keras_shapes` has a line for each variable of an architecture of `keras.applications`, in
creation order, for images of the designed size and 1000 classes: its name, its shape, and `fixed`
if it is not trained.  A test compares them with Keras.

Names and shapes of three transformers follow from the numbers in the papers.  The order is that in
which a forward pass first uses the variables: Keras' layers create theirs when they are called.
Queries, keys and values have kernels of their own, as in `keras.layers.MultiHeadAttention`.

The order decides where round robin places variables.  keras-hub's GPT-2 creates the norms of a
block behind the kernels that use them: on 8 servers its hottest one holds 2.94 times the mean,
and 4.76 times in the order of this module.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ps_allreduce.point.placement import VariableSpec

Shapes = Mapping[str, tuple[int, ...]]

#: The same in all three models: width, blocks, heads, and the width inside of a block.
_WIDTH, _BLOCKS, _HEADS, _INNER = 768, 12, 12, 3072


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedShapes:
    """What is published of a model.

    Attributes:
        shapes: of all trainable variables by name, in creation order.
        tokens_per_example: the longest sequence that the model takes; None if it takes images.
    """

    shapes: Shapes
    tokens_per_example: int | None = None

    @property
    def variables(self) -> tuple[VariableSpec, ...]:
        """In creation order."""
        return tuple(
            VariableSpec(name=name, shape=shape, dtype="float32", trainable=True)
            for name, shape in self.shapes.items()
        )


def _dense(name: str, kernel: tuple[int, ...], bias: tuple[int, ...]) -> Shapes:
    return {f"{name}.kernel": kernel, f"{name}.bias": bias}


def _norm(name: str) -> Shapes:
    return {f"{name}.gamma": (_WIDTH,), f"{name}.beta": (_WIDTH,)}


def _attention() -> Shapes:
    size = _WIDTH // _HEADS
    inputs = [
        _dense(f"attention.{part}", (_WIDTH, _HEADS, size), (_HEADS, size))
        for part in ("query", "key", "value")
    ]
    return _joined(*inputs, _dense("attention.output", (_HEADS, size, _WIDTH), (_WIDTH,)))


def _feed_forward() -> Shapes:
    return _joined(
        _dense("inner", (_WIDTH, _INNER), (_INNER,)), _dense("outer", (_INNER, _WIDTH), (_WIDTH,))
    )


def _joined(*parts: Shapes) -> Shapes:
    return {name: shape for part in parts for name, shape in part.items()}


def _repeated(*block: Shapes) -> Shapes:
    """The variables of all blocks, one block after the other."""
    return {
        f"block_{number}.{name}": shape
        for number in range(_BLOCKS)
        for name, shape in _joined(*block).items()
    }


#: Norms behind attention and feed-forward layers, or before them.
_NORM_LAST = _repeated(_attention(), _norm("norm_1"), _feed_forward(), _norm("norm_2"))
_NORM_FIRST = _repeated(_norm("norm_1"), _attention(), _norm("norm_2"), _feed_forward())

PUBLISHED: Mapping[str, PublishedShapes] = {
    # Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language
    # Understanding", NAACL 2019; with the pooler, without the heads of pre-training.
    "BERT-base": PublishedShapes(
        tokens_per_example=512,
        shapes=_joined(
            {"tokens": (30_522, _WIDTH), "positions": (512, _WIDTH), "segments": (2, _WIDTH)},
            _norm("norm"),
            _NORM_LAST,
            _dense("pooler", (_WIDTH, _WIDTH), (_WIDTH,)),
        ),
    ),
    # Radford et al., "Language Models are Unsupervised Multitask Learners", OpenAI 2019; the
    # smallest of the four, whose output is tied to the embedding.
    "GPT-2-small": PublishedShapes(
        tokens_per_example=1024,
        shapes=_joined(
            {"tokens": (50_257, _WIDTH), "positions": (1024, _WIDTH)}, _NORM_FIRST, _norm("norm")
        ),
    ),
    # Dosovitskiy et al., "An Image is Worth 16x16 Words: Transformers for Image Recognition at
    # Scale", ICLR 2021; 224 pixels, 1000 classes.
    "ViT-B-16": PublishedShapes(
        shapes=_joined(
            {"class_token": (1, 1, _WIDTH)},
            _dense("patches", (16, 16, 3, _WIDTH), (_WIDTH,)),
            {"positions": (197, _WIDTH)},
            _NORM_FIRST,
            _norm("norm"),
            _dense("head", (_WIDTH, 1000), (1000,)),
        ),
    ),
}


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
