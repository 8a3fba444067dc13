"""Loose image files in a folder for each class, and their identity.

Decides which files are found and how classes are numbered.  Reading them is the business of
`workloads`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ps_allreduce.errors import UserError
from ps_allreduce.point.inputs.data_set import ExampleForm
from ps_allreduce.serialization import LATER

#: Endings of the files that count, in small letters.
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif")

#: Begins the name of such an input, as users write it.
PREFIX = "images:"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundImage:
    """An image below a folder: `name` is `<class>/<file>`, `label` the number of its class."""

    name: str
    label: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFiles:
    """Images as files, in a folder for each class.

    Attributes:
        path: of the folder that holds the classes; no part of the identity.
        num_files, num_bytes: of all images.
        num_classes: folders that hold images.
        checksum: sixteen hexadecimal digits over names and sizes: nobody reads a million files to
            tell them from others.
        place: where the files are, in a study that compares places; None elsewhere, because files
            that were moved are the same data.
    """

    kind: ClassVar[str] = "image_files"
    title: ClassVar[str] = "loose images"

    path: str = field(compare=False)
    num_files: int
    num_bytes: int
    num_classes: int
    checksum: str
    place: str | None = field(default=None, metadata=LATER)

    @classmethod
    def found_in(cls, folder: Path) -> ImageFiles:
        """The images that are below a folder now.

        Raises:
            UserError: there are fewer than two classes, or a folder cannot be read.
        """
        return cls.of(folder, images_below(folder))

    @classmethod
    def of(cls, folder: Path, images: Sequence[FoundImage]) -> ImageFiles:
        """Images that were found below a folder."""
        total = hashlib.sha256()
        for image in images:
            total.update(os.fsencode(f"{image.name}\0{image.num_bytes}\0"))
        return cls(
            path=str(folder.resolve()),
            num_files=len(images),
            num_bytes=sum(image.num_bytes for image in images),
            num_classes=images[-1].label + 1,
            checksum=total.hexdigest()[:16],
        )

    @property
    def name(self) -> str:
        """As users and results call it."""
        return PREFIX + self.path

    def listed_in(self, data_dir: Path) -> Path:
        """Where the list of the images is on a host."""
        return data_dir / self.kind / f"{self.checksum}.txt"

    @property
    def form(self) -> ExampleForm:
        """What every example is."""
        return ExampleForm(num_outputs=self.num_classes)


def images_below(folder: Path) -> list[FoundImage]:
    """The images of all classes, which are numbered in the order of their names.

    Raises:
        UserError: there are fewer than two classes, a name has a line break, or a folder cannot be
            read.
    """
    try:
        classes = [(each, found) for each in _folders(folder) if (found := list(_images(each)))]
    except OSError as error:
        name = error.filename or folder
        raise UserError(f"{name} cannot be read: {error.strerror or error}.") from error
    if len(classes) < 2:
        raise UserError(
            f"{folder} needs at least two folders, one per class, with images "
            f"({', '.join(IMAGE_SUFFIXES)}); found {len(classes)}."
        )
    images = [
        FoundImage(name=f"{Path(place).name}/{name}", label=label, num_bytes=size)
        for label, (place, found) in enumerate(classes)
        for name, size in found
    ]
    _check_names(folder, images)
    return images


def _folders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(each.path for each in entries if each.is_dir())


def _images(folder: str) -> Iterator[tuple[str, int]]:
    """Names and sizes, by name."""
    with os.scandir(folder) as entries:
        found = [
            (each.name, each.stat().st_size)
            for each in entries
            if each.name.lower().endswith(IMAGE_SUFFIXES) and each.is_file()
        ]
    yield from sorted(found)


def _check_names(folder: Path, images: Sequence[FoundImage]) -> None:
    for image in images:
        if "\n" in image.name or "\r" in image.name:
            raise UserError(
                f"the name {image.name!r} in {folder} has a line break, and their list has a line "
                "for each file: rename it."
            )
