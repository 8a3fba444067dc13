"""A converted data set: what its examples are, which files hold them, and how they become batches.

Decides the form of `data_set.json`, which a converter leaves beside the TFRecord files of a split
(training, validation, test).  Folders without it hold encoded images with three channels, a class
each.  `experiments.data_sets` writes it, `point.inputs.data` reads it.  Decides also what users can
set of reading any files; making the pipeline is the business of `workloads`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ps_allreduce.declared import setting
from ps_allreduce.errors import RecordFormatError, UserError, at_least, at_most
from ps_allreduce.serialization import Columns, changed_parts, column, from_json, parse_json

MANIFEST = "data_set.json"


class Target(StrEnum):
    """What is learned of an example.

    `class`: one of so many classes.  `labels`: any of so many labels, several at once.  `value`: a
    number, such as an age.
    """

    CLASS = "class"
    LABELS = "labels"
    VALUE = "value"


class Encoding(StrEnum):
    """How the feature `image` of a record holds an image.

    `encoded`: a JPEG, PNG, BMP or GIF, of any size.  `uint16`: little-endian numbers of 16 bits in
    the order height, width, channel, of the stated size.
    """

    ENCODED = "encoded"
    UINT16 = "uint16"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleForm:
    """What every example of a data set is.

    A record is a `tf.train.Example` with `image` (bytes) and `label` (int64: a class, the numbers
    of all labels, or a whole-numbered value).

    Attributes:
        encoding: of the images.
        channels: of an image.
        image_size: pixels of the square images; None where they differ.
        target: what is learned.
        num_outputs: classes or labels; 1 for a value.
        highest: pixels are divided by it; those of `uint16` may lie above.
    """

    encoding: Encoding = Encoding.ENCODED
    channels: int = 3
    image_size: int | None = None
    target: Target = Target.CLASS
    num_outputs: int
    highest: float = 255.0

    def __post_init__(self) -> None:
        at_least(1, channels=self.channels, num_outputs=self.num_outputs)
        if self.image_size is not None:
            at_least(1, image_size=self.image_size)
        if self.encoding is Encoding.ENCODED and self.channels not in (1, 3, 4):
            raise UserError(f"encoded images have 1, 3 or 4 channels, got {self.channels}.")
        if self.encoding is Encoding.UINT16 and self.image_size is None:
            raise UserError("images of 16-bit numbers need an image_size: they do not tell it.")
        if self.target is Target.VALUE and self.num_outputs != 1:
            raise UserError(f"a value is one output, got num_outputs {self.num_outputs}.")
        if not (math.isfinite(self.highest) and self.highest > 0):
            raise UserError(f"highest must be above 0, got {self.highest}.")

    def images(self, size: int, num_outputs: int) -> dict[str, Any]:
        """What makes `exchange.reading.Images`, for a model of such an input and output."""
        return {
            "encoding": self.encoding.value,
            "channels": self.channels,
            "stored_size": self.image_size,
            "size": size,
            "highest": self.highest,
            "target": self.target.value,
            "num_outputs": num_outputs,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOfRecords:
    """One TFRecord file: its name, its records, its size, and its SHA-256 in hexadecimal digits."""

    name: str
    records: int
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What `data_set.json` says of the files beside it.

    Attributes:
        version: of this form.
        data_set: which one: `tiny-imagenet`, `class-folders`, `imdb-wiki`, `bigearthnet`.
        split: `training`, `validation` or `test`.
        form: of every example.
        files: by name.
        left_out: examples of the source that were not converted, by the reason.
        names: of classes or labels, by number; empty for a value.
    """

    version: int = 1
    data_set: str
    split: str
    form: ExampleForm
    files: tuple[FileOfRecords, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    @property
    def num_records(self) -> int:
        """Of all files."""
        return sum(each.records for each in self.files)


def read_manifest(folder: Path) -> Manifest | None:
    """What a folder says of its files; None where it says nothing.

    Raises:
        UserError: it cannot be read, or makes no sense.
    """
    path = folder / MANIFEST
    try:
        return from_json(Manifest, parse_json(path.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecordFormatError) as error:
        raise UserError(f"{path} makes no sense ({error}): convert the data again.") from error


class Cache(StrEnum):
    """Where decoded images are kept after the first epoch."""

    NONE = "none"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(Columns):
    """How every worker reads its share of input files (decision 0019).

    Attributes:
        ordered: the same examples in the same step for every number of workers, one file after the
            other; else each worker reads its own files as fast as they come.
        parallel_reads: files that are read at once; None leaves it to tf.data.
        parallel_maps: images that are decoded at once; None leaves it to tf.data.
        prefetch: batches that are ready before they are asked for; 0 for none.
        cache: where decoded images are kept after the first epoch.
        shuffle: examples among which the next one is drawn; 0 shuffles nothing.
        flips: half of the images, at random, are mirrored left to right.
        read_size: pixels of the images that are read for a model that takes none itself; None for
            those of the data.
    """

    ordered: bool = setting(
        "For input files: the same examples in the same step for every number of workers.",
        False,
        option="--ordered-input",
        metadata=column("ordered_input"),
    )
    parallel_reads: int | None = setting(
        "Input files that are read at once.", instead="tf.data decides"
    )
    parallel_maps: int | None = setting(
        "Images that are decoded at once.", instead="tf.data decides"
    )
    prefetch: int = setting("For input files: batches made beforehand.", 2)
    cache: Cache = setting("Where images are kept once decoded.", Cache.NONE)
    shuffle: int = setting(
        "For input files: examples from which the next one is drawn; 0: none are shuffled.", 2048
    )
    flips: bool = setting("Mirror half of the images of input files.", False)
    read_size: int | None = field(default=None, metadata=column(None))

    def __post_init__(self) -> None:
        for name in ("parallel_reads", "parallel_maps", "read_size"):
            if (value := getattr(self, name)) is not None:
                at_least(1, **{name: value})
                at_most(1e4, **{name: value})
        at_least(0, prefetch=self.prefetch, shuffle=self.shuffle)
        at_most(1e4, prefetch=self.prefetch)
        at_most(1e9, shuffle=self.shuffle)

    def reading(self) -> dict[str, Any]:
        """What makes `exchange.reading.Settings`."""
        names = ("ordered", "parallel_reads", "parallel_maps", "prefetch", "shuffle", "flips")
        named = {name: getattr(self, name) for name in names}
        return {**named, "cache": self.cache is Cache.MEMORY}

    def title_parts(self) -> list[str]:
        """What is not at its default, as `prefetch 0`, or `ordered` where it is so or not."""
        return changed_parts(self)
