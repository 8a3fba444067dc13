"""The models that can be trained, as far as it takes to check a request.

Building them is the business of `workloads`; this module needs no TensorFlow.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from ps_allreduce.errors import UserError, at_least, at_most
from ps_allreduce.model_files import models_in
from ps_allreduce.point.data_set import Target
from ps_allreduce.point.keras_applications import KERAS_APPLICATIONS, Architecture
from ps_allreduce.point.known_shapes import KNOWN, known_variables
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.published_shapes import PUBLISHED
from ps_allreduce.serialization import LATER


class Unit(StrEnum):
    """What the examples of a model are; those of text are sequences of tokens."""

    IMAGES = "images"
    TOKENS = "tokens"
    ROWS = "rows"

    @property
    def counted(self) -> str:
        """What throughput counts: whole examples, also of text."""
        return "examples" if self is Unit.TOKENS else self.value


SMALL_CNN, SMALL_VIT = "SmallCNN", "SmallViT"
SMALL_GPT, SMALL_GPT_UNTIED = "SmallGPT", "SmallGPT-untied"

#: Everything that takes images.
ARCHITECTURES: dict[str, Architecture] = {
    SMALL_CNN: Architecture(minimum_image_size=16, designed_image_size=32),
    SMALL_VIT: Architecture(minimum_image_size=16, designed_image_size=32),
    **KERAS_APPLICATIONS,
}

#: Everything that takes text and is trained.
TEXT_MODELS = (SMALL_GPT, SMALL_GPT_UNTIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageModel:
    """An architecture that tells something of square images; sizes are in pixels.

    A class or labels are told as logits; the losses are cross-entropies.  A value is told as a
    hundredth of itself, by the mean squared error: so an age is about as large as an output is at
    first, and gradients have the sizes that they have for classes.

    Attributes:
        num_classes: outputs: classes, labels, or 1 for a value.
        channels: of an image.
        target: what is learned.
    """

    kind: ClassVar[str] = "image_model"
    unit: ClassVar[Unit] = Unit.IMAGES
    tokens_per_example: ClassVar[None] = None
    computes: ClassVar[bool] = True

    name: str = SMALL_CNN
    image_size: int = 32
    num_classes: int = 10
    channels: int = field(default=3, metadata=LATER)
    target: Target = field(default=Target.CLASS, metadata=LATER)

    def __post_init__(self) -> None:
        if self.name not in ARCHITECTURES:
            raise _unknown(self.name)
        minimum = self.sizes.minimum_image_size
        if self.image_size < minimum:
            raise UserError(
                f"image_size {self.image_size} is below the minimum of {self.name}: "
                f"use {minimum} or more."
            )
        at_most(1e4, image_size=self.image_size)
        at_least(2 if self.target is Target.CLASS else 1, num_classes=self.num_classes)
        at_most(1 if self.target is Target.VALUE else 1e6, num_classes=self.num_classes)
        at_least(1, channels=self.channels)
        at_most(1e4, channels=self.channels)

    @property
    def sizes(self) -> Architecture:
        """The image sizes that the architecture takes."""
        return ARCHITECTURES[self.name]

    @property
    def example_shape(self) -> tuple[int, ...]:
        """Of one float32 input."""
        return (self.image_size, self.image_size, self.channels)

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return {
            "model": self.name,
            "image_size": self.image_size,
            "num_classes": self.num_classes,
            "channels": self.channels,
            "target": self.target.value,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModel:
    """A language model that tells the next token at every place of a sequence."""

    kind: ClassVar[str] = "text_model"
    unit: ClassVar[Unit] = Unit.TOKENS
    computes: ClassVar[bool] = True

    name: str = SMALL_GPT
    vocabulary: int = 8192
    sequence_length: int = 128

    def __post_init__(self) -> None:
        if self.name not in TEXT_MODELS:
            raise _unknown(self.name)
        at_least(2, vocabulary=self.vocabulary)
        at_most(1e6, vocabulary=self.vocabulary)
        at_least(1, sequence_length=self.sequence_length)
        at_most(1e5, sequence_length=self.sequence_length)

    @property
    def tokens_per_example(self) -> int:
        """An example is one sequence."""
        return self.sequence_length

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return {"model": self.name, "vocabulary": self.vocabulary}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """No computation but the variables of a published model, to be sent as those of `TensorSet`."""

    kind: ClassVar[str] = "published_shapes"
    computes: ClassVar[bool] = False

    name: str

    def __post_init__(self) -> None:
        if self.name not in PUBLISHED:
            raise _unknown(self.name)

    @property
    def unit(self) -> Unit:
        """What its examples would be."""
        return Unit.IMAGES if self.tokens_per_example is None else Unit.TOKENS

    @property
    def tokens_per_example(self) -> int | None:
        """Of the longest sequence; None of images."""
        return PUBLISHED[self.name].tokens_per_example

    @property
    def variables(self) -> tuple[VariableSpec, ...]:
        """All of them, in creation order."""
        return PUBLISHED[self.name].variables

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return {"model": self.name}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSet:
    """No computation but equal tensors, to be sent by an emulated accelerator: `Tensors-16-25MB`.

    Attributes:
        count: number of tensors.
        num_bytes: of all together, in float32; a little less where they cannot be divided equally.
    """

    kind: ClassVar[str] = "tensors"
    unit: ClassVar[Unit] = Unit.ROWS
    tokens_per_example: ClassVar[None] = None
    computes: ClassVar[bool] = False

    count: int
    num_bytes: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= 10_000 or not 4 * self.count <= self.num_bytes <= 10**10:
            raise UserError(
                f"model {self.name}: choose 1 to 10000 tensors, of 4 bytes each or more and 10 GB "
                "together at most."
            )

    @property
    def name(self) -> str:
        """As users write it, in whole megabytes where that is exact."""
        unit, size = ("KB", 10**3) if self.num_bytes % 10**6 else ("MB", 10**6)
        return f"Tensors-{self.count}-{self.num_bytes // size}{unit}"

    @property
    def elements(self) -> int:
        """Size of each tensor."""
        return self.num_bytes // 4 // self.count

    @property
    def variables(self) -> tuple[VariableSpec, ...]:
        """All tensors."""
        return tuple(
            VariableSpec(
                name=f"tensor_{number}", shape=(self.elements,), dtype="float32", trainable=True
            )
            for number in range(self.count)
        )

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return {"model": self.name}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnModel:
    """A model that the user's own code builds, or that a `.keras` file holds.

    Building it is the business of `workloads.own_model`.

    Attributes:
        name: as the user wrote it: `mine.py:build`, `package.module:build`, `saved.keras`.
        module: its name below the folder of the files; of a saved model, the file's.
        function: that returns the compiled model; empty for a saved model.
        arguments: `name=value` each, in the order of their names.
        digest: of the names and contents of all files.
        unit: what the model's examples are.
        tokens_per_example: of text; None for everything else.
        has_dataset: the module has a function `dataset(shard, num_shards)`.
        notes: what is not done as the model asks for: phrases without capital and full stop.
    """

    kind: ClassVar[str] = "own_model"
    computes: ClassVar[bool] = True

    name: str = field(compare=False)
    module: str
    function: str
    arguments: tuple[str, ...] = ()
    digest: str
    unit: Unit = Unit.ROWS
    tokens_per_example: int | None = None
    has_dataset: bool = False
    notes: tuple[str, ...] = field(default=(), compare=False)

    def folder(self, data_dir: Path) -> Path:
        """Where the copies of its files lie on a host."""
        return models_in(data_dir) / self.digest

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return {
            "model": self.name,
            "model_digest": self.digest,
            "model_arguments": ", ".join(self.arguments) or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledModel:
    """No computation but a model's variables, each so many times smaller: `InceptionV3/32`.

    Their proportions stay, so slow links and few hosts show what fast links and many hosts would.
    """

    kind: ClassVar[str] = "scaled_model"
    computes: ClassVar[bool] = False

    base: str
    divisor: int

    def __post_init__(self) -> None:
        if self.base not in KNOWN:
            raise UserError(
                f"model {self.name}: the variables of {self.base or 'no name'} are not known "
                f"beforehand; choose one of {', '.join(KNOWN)}."
            )
        at_least(1, divisor=self.divisor)
        at_most(1e6, divisor=self.divisor)

    @property
    def name(self) -> str:
        """As users write it."""
        return f"{self.base}/{self.divisor}"

    @property
    def unit(self) -> Unit:
        """What examples of the model are."""
        return Unit.IMAGES if self.tokens_per_example is None else Unit.TOKENS

    @property
    def tokens_per_example(self) -> int | None:
        """Those of the model."""
        published = PUBLISHED.get(self.base)
        return None if published is None else published.tokens_per_example

    @property
    def variables(self) -> tuple[VariableSpec, ...]:
        """All of them in creation order; each is flat, and keeps an element at least."""
        return tuple(
            replace(spec, shape=(max(1, math.prod(spec.shape) // self.divisor),))
            for spec in known_variables(self.base)
        )

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return {"model": self.name}


#: What is sent without being computed; its variables are known without TensorFlow.
Weights = PublishedModel | TensorSet | ScaledModel

Model = ImageModel | TextModel | OwnModel | Weights


def tensor_set(name: str) -> TensorSet | None:
    """Read a name such as `Tensors-160-100MB`; None if it is the name of an architecture.

    Raises:
        UserError: a tensor would have no element, or there are too many to be handled.
    """
    found = re.fullmatch(r"Tensors-([0-9]{1,9})-([0-9]{1,9})(KB|MB)", name)
    if found is None:
        return None
    count, amount, unit = found.groups()
    return TensorSet(count=int(count), num_bytes=int(amount) * {"KB": 10**3, "MB": 10**6}[unit])


def scaled_model(name: str) -> ScaledModel | None:
    """Read a name such as `InceptionV3/32`; None if it is none of this form.

    Raises:
        UserError: the variables of the model are not known, or it cannot be divided so.
    """
    found = re.fullmatch(r"([^/]*)/([0-9]{1,9})", name)
    return None if found is None else ScaledModel(base=found[1], divisor=int(found[2]))


def shipped_model(name: str) -> ImageModel | TextModel | Weights:
    """A model by its exact name; images have the size that it was designed for.

    Raises:
        UserError: there is none of that name, or these tensors make no sense.
    """
    if scaled := scaled_model(name):
        return scaled
    if name in ARCHITECTURES:
        return ImageModel(name=name, image_size=ARCHITECTURES[name].designed_image_size)
    if name in TEXT_MODELS:
        return TextModel(name=name)
    if name in PUBLISHED:
        return PublishedModel(name=name)
    tensors = tensor_set(name)
    if tensors is None:
        raise _unknown(name)
    return tensors


def _unknown(name: str) -> UserError:
    return UserError(
        f"unknown model {name!r}: choose for instance {SMALL_CNN}, {SMALL_GPT}, ResNet50, "
        "Tensors-16-25MB or your own mine.py:build; python -m experiments models lists all."
    )
