"""Models that are trained: the suite's own, of images and of text, and those that users bring.

Decides which there are, and which sizes they take, as far as it takes to check a request.  Names
and sizes of `keras.applications` (Keras 3.15) are in a table, because checking needs no TensorFlow;
a test holds it against Keras itself.  `workloads` builds the models.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from ps_allreduce.errors import UserError, at_least, at_most
from ps_allreduce.model_files import models_in
from ps_allreduce.point.inputs.data_set import Target
from ps_allreduce.point.measurement import Learning
from ps_allreduce.serialization import LATER, Columns, column

SMALL_CNN, SMALL_VIT = "SmallCNN", "SmallViT"
SMALL_GPT, SMALL_GPT_UNTIED = "SmallGPT", "SmallGPT-untied"


class Unit(StrEnum):
    """What the examples of a model are; those of text are sequences of tokens."""

    IMAGES = "images"
    TOKENS = "tokens"
    ROWS = "rows"

    @property
    def counted(self) -> str:
        """What throughput counts: whole examples, also of text."""
        return "examples" if self is Unit.TOKENS else self.value


def unknown_model(name: str, names: Iterable[str] = ()) -> UserError:
    """What is said of a name that no model has, with the nearest of some names."""
    spelled = {each.casefold(): each for each in names}
    near = get_close_matches(name.casefold(), spelled, n=1)
    choice = (
        f"did you mean {spelled[near[0]]}? Your own is mine.py:build"
        if near
        else f"choose for instance {SMALL_CNN}, {SMALL_GPT}, ResNet50, Tensors-16-25MB or your own "
        "mine.py:build"
    )
    return UserError(f"unknown model {name!r}: {choice}; python -m experiments models lists all.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Image sizes in pixels: the smallest one, and what the dry run takes unless told otherwise."""

    minimum_image_size: int
    designed_image_size: int


def _keras_applications() -> dict[str, Architecture]:
    """By name: the smallest size that Keras builds, and the one that each was designed for."""
    text = (Path(__file__).resolve().parent / "keras_applications.csv").read_text(encoding="utf-8")
    return {
        row["name"]: Architecture(
            minimum_image_size=int(row["minimum_image_size"]),
            designed_image_size=int(row["designed_image_size"]),
        )
        for row in csv.DictReader(text.splitlines())
    }


KERAS_APPLICATIONS: Mapping[str, Architecture] = _keras_applications()

#: Everything that takes images.
ARCHITECTURES: dict[str, Architecture] = {
    SMALL_CNN: Architecture(minimum_image_size=16, designed_image_size=32),
    SMALL_VIT: Architecture(minimum_image_size=16, designed_image_size=32),
    **KERAS_APPLICATIONS,
}

#: Everything that takes text and is trained.
TEXT_MODELS = (SMALL_GPT, SMALL_GPT_UNTIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageModel(Columns):
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

    name: str = field(default=SMALL_CNN, metadata=column(None))
    image_size: int = 32
    num_classes: int = 10
    channels: int = field(default=3, metadata=LATER)
    target: Target = field(default=Target.CLASS, metadata=LATER)

    def __post_init__(self) -> None:
        if self.name not in ARCHITECTURES:
            raise unknown_model(self.name)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModel(Columns):
    """A language model that tells the next token at every place of a sequence."""

    kind: ClassVar[str] = "text_model"
    unit: ClassVar[Unit] = Unit.TOKENS
    computes: ClassVar[bool] = True

    name: str = field(default=SMALL_GPT, metadata=column(None))
    vocabulary: int = 8192
    sequence_length: int = field(default=128, metadata=column(None))

    def __post_init__(self) -> None:
        if self.name not in TEXT_MODELS:
            raise unknown_model(self.name)
        at_least(2, vocabulary=self.vocabulary)
        at_most(1e6, vocabulary=self.vocabulary)
        at_least(1, sequence_length=self.sequence_length)
        at_most(1e5, sequence_length=self.sequence_length)

    @property
    def tokens_per_example(self) -> int:
        """An example is one sequence."""
        return self.sequence_length


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
        learning: when it has learned enough, as the module states it beside examples that are held
            out; None where it states nothing.
        notes: what is not done as the model asks for: phrases without capital and full stop.
        only_whole: why rows of its tables cannot be exchanged alone, a phrase; empty if they can.
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
    learning: Learning | None = field(default=None, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    only_whole: str = field(default="", compare=False)

    def folder(self, data_dir: Path) -> Path:
        """Where the copies of its files lie on a host."""
        return models_in(data_dir) / self.digest

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return {
            "model_digest": self.digest,
            "model_arguments": ", ".join(self.arguments) or None,
        }
