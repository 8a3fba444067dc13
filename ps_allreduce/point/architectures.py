"""The models that can be trained, as far as it takes to check a request.

Building them is the business of `workloads`; this module needs no TensorFlow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from ps_allreduce.errors import UserError, at_least, at_most


class Unit(StrEnum):
    """What the examples of a model are, and what throughput counts."""

    IMAGES = "images"
    TOKENS = "tokens"
    ROWS = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Image sizes in pixels: the smallest one, and what the dry run takes unless told otherwise."""

    minimum_image_size: int
    designed_image_size: int


SMALL_CNN = "SmallCNN"

ARCHITECTURES: dict[str, Architecture] = {
    SMALL_CNN: Architecture(minimum_image_size=16, designed_image_size=32),
    "ResNet50": Architecture(minimum_image_size=32, designed_image_size=224),
    "InceptionV3": Architecture(minimum_image_size=75, designed_image_size=299),
    "VGG16": Architecture(minimum_image_size=32, designed_image_size=224),
    "EfficientNetB0": Architecture(minimum_image_size=32, designed_image_size=224),
    "MobileNetV2": Architecture(minimum_image_size=32, designed_image_size=224),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageModel:
    """An architecture that classifies square images with three channels; sizes are in pixels."""

    kind: ClassVar[str] = "image_model"
    unit: ClassVar[Unit] = Unit.IMAGES
    computes: ClassVar[bool] = True

    name: str = SMALL_CNN
    image_size: int = 32
    num_classes: int = 10

    def __post_init__(self) -> None:
        minimum = architecture_named(self.name).minimum_image_size
        if self.image_size < minimum:
            raise UserError(
                f"image_size {self.image_size} is below the minimum of {self.name}: "
                f"use {minimum} or more."
            )
        at_most(1e4, image_size=self.image_size)
        at_least(2, num_classes=self.num_classes)
        at_most(1e6, num_classes=self.num_classes)

    @property
    def example_shape(self) -> tuple[int, ...]:
        """Of one float32 input."""
        return (self.image_size, self.image_size, 3)

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return {
            "model": self.name,
            "image_size": self.image_size,
            "num_classes": self.num_classes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSet:
    """No computation but equal tensors, to be sent by an emulated accelerator: `Tensors-16-25MB`.

    Attributes:
        count: number of tensors.
        num_bytes: of all together, in float32; a little less where they cannot be divided equally.
    """

    kind: ClassVar[str] = "tensors"
    unit: ClassVar[Unit] = Unit.ROWS
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
        notes: what is not done as the model asks for, a sentence each.
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
        return data_dir / "models" / self.digest

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return {
            "model": self.name,
            "model_digest": self.digest,
            "tokens_per_example": self.tokens_per_example,
        }


Model = ImageModel | TensorSet | OwnModel


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


def architecture_named(name: str) -> Architecture:
    """Look an architecture up by its exact name.

    Raises:
        UserError: there is none of that name; the message lists those that exist.
    """
    if name not in ARCHITECTURES:
        raise UserError(
            f"unknown model {name!r}; choose one of {', '.join(ARCHITECTURES)}, or tensors such as "
            "Tensors-16-25MB."
        )
    return ARCHITECTURES[name]
