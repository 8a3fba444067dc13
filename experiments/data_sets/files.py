"""What is in a folder of a data set, read with sentences for what is wrong.

Decides which files count as images by their names, and that hidden files (those that some systems
leave in archives) are none of the data set's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ps_allreduce.errors import UserError
from ps_allreduce.scratch import open_regular

#: What TensorFlow decodes.
SUFFIXES = (".jpeg", ".jpg", ".png", ".gif", ".bmp")

#: Images that it does not decode.
_FOREIGN = (".webp", ".tif", ".tiff", ".jp2", ".heic", ".avif", ".ppm", ".pgm", ".tga")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """The names in a folder, in order: of folders, of images, and how many others there are."""

    folders: Sequence[str]
    images: Sequence[str]
    others: int


def entries(folder: Path) -> Entries:
    """Look into a folder.

    Raises:
        UserError: it cannot be read, or holds images that TensorFlow does not decode.
    """
    folders, images, others = [], [], 0
    try:
        with os.scandir(folder) as found:
            for entry in found:
                if entry.name.startswith("."):
                    others += 1
                elif entry.is_dir():
                    folders.append(entry.name)
                elif entry.name.lower().endswith(SUFFIXES):
                    images.append(entry.name)
                else:
                    _refuse_foreign(Path(entry.path))
                    others += 1
    except OSError as error:
        raise UserError(f"the folder {folder} cannot be read: {error.strerror}.") from error
    return Entries(folders=sorted(folders), images=sorted(images), others=others)


def _refuse_foreign(path: Path) -> None:
    if path.name.lower().endswith(_FOREIGN):
        raise UserError(
            f"TensorFlow does not decode {path}: save it as PNG or JPEG, or take it away. It "
            f"decodes {', '.join(SUFFIXES)}."
        )


def text_lines(path: Path) -> list[str]:
    """The lines of a text file that are not empty.

    Raises:
        UserError: it cannot be read.
    """
    try:
        with open_regular(path) as stream:
            content = stream.read().decode("utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text: {error}.") from error
    return [line for line in content.splitlines() if line.strip()]
