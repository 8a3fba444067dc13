"""What lies in the folders of a data set: names, texts, and images that are stored as they are.

Decides which files count as images by their names, and that hidden files (those that some systems
leave in archives) are none of the data set's; that each JPEG, PNG, GIF and BMP is decoded once
while it is converted, and stored byte for byte; and that what TensorFlow cannot decode is refused
rather than encoded anew, which would change pixels of JPEGs.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, UnidentifiedImageError

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
        content = read_source(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text: {error}.") from error
    return [line for line in content.splitlines() if line.strip()]


#: Those that `tf.io.decode_image` knows.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP")

#: What Pillow raises, depending on which byte of an image is wrong.
UNDECODABLE: tuple[type[Exception], ...]
UNDECODABLE = (OSError, EOFError, ValueError, SyntaxError, TypeError, IndexError, KeyError)
UNDECODABLE += (OverflowError, struct.error, zlib.error, Image.DecompressionBombError)

#: 24 bits a pixel, and no compression: the one BMP that TensorFlow decodes as it looks
#: (tensorflow/core/kernels/image/decode_image_op.cc takes 8 bits for shades of grey).
_PLAIN_BMP = struct.pack("<HI", 24, 0)


class EncodedImages:
    """What all layouts of encoded images share.

    Args:
        size: pixels of square images, if the data set says so.
    """

    def __init__(self, size: int | None = None) -> None:
        self._size = size

    def image(self, path: Path) -> bytes:
        """The file, once it has been decoded without fault.

        Raises:
            UserError: it cannot be decoded, or is of another size.
        """
        content = read_source(path)
        try:
            with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
                image.load()
                if image.format == "BMP" and content[28:34] != _PLAIN_BMP:
                    raise ValueError("TensorFlow decodes BMP with 24 bits a pixel only")
                if self._size is not None and image.size != (self._size, self._size):
                    raise ValueError(f"{image.size} pixels, not {self._size} x {self._size}")
        except UNDECODABLE as error:
            raise damaged(path, error, "JPEG, PNG, GIF or BMP") from error
        return content

    def image_bytes(self, path: Path) -> int:
        """The size of the file.

        Raises:
            UserError: there is no such file.
        """
        try:
            return path.stat().st_size
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}.") from error


def read_source(path: Path) -> bytes:
    """All bytes of a file of the data set.

    Raises:
        UserError: it cannot be read.
    """
    try:
        with open_regular(path) as stream:
            return stream.read()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error


def damaged(path: Path, error: Exception, wanted: str) -> UserError:
    """That a file is no image of the wanted kind, and what to do."""
    # Pillow names the stream that it was given, which tells nobody anything.
    reason = "unknown format" if isinstance(error, UnidentifiedImageError) else error
    return UserError(
        f"{path} is no {wanted} that can be decoded ({reason}). Put a good copy in its place and "
        "give the same command again: what is finished is kept."
    )
