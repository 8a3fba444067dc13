"""Models that the suite brings and trains: of images, and of text.

Decides which ones there are, and which sizes they take.  `workloads` builds them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ps_allreduce.errors import UserError, at_least, at_most
from ps_allreduce.point.inputs.data_set import Target
from ps_allreduce.point.models.keras_applications import KERAS_APPLICATIONS, Architecture
from ps_allreduce.point.models.names import (
    SMALL_CNN,
    SMALL_GPT,
    SMALL_GPT_UNTIED,
    SMALL_VIT,
    Unit,
    unknown_model,
)
from ps_allreduce.serialization import LATER

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
            raise unknown_model(self.name)
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
