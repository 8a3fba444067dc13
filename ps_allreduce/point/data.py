"""The data that a model is trained with, and its identity.

Decides which data there are and that files are identified by their content: replaced files make
another experiment, moved ones do not.  Reading is the business of `workloads.inputs`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ps_allreduce.errors import UserError
from ps_allreduce.point.architectures import ImageModel, Model, OwnModel
from ps_allreduce.regular_files import open_regular

#: TFRecord files of a folder.
PATTERN = "*.tfrecord"

#: So much of each end of a file enters its checksum: reading all of it could take hours.
SAMPLED_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """Random examples in the shape that the model takes, made on the worker."""

    kind: ClassVar[str] = "synthetic"
    name: ClassVar[str] = kind
    checksum: ClassVar[None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Digits:
    """scikit-learn's 1,797 handwritten digits, as TFRecord files that the suite writes."""

    kind: ClassVar[str] = "digits"
    name: ClassVar[str] = kind
    checksum: ClassVar[None] = None
    num_classes: ClassVar[int] = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFiles:
    """Images in the TFRecord files of a folder.

    Attributes:
        path: of the folder; no part of the identity.
        num_files, num_bytes: of all files.
        checksum: sixteen hexadecimal digits over names, sizes, and both ends of every file.
    """

    kind: ClassVar[str] = "tfrecord"

    path: str = field(compare=False)
    num_files: int
    num_bytes: int
    checksum: str

    @classmethod
    def found_in(cls, folder: Path) -> RecordFiles:
        """The files that are in a folder now.

        Raises:
            UserError: there is none, or one cannot be read.
        """
        if not os.access(folder, os.R_OK | os.X_OK):  # no file would be found in it
            raise UserError(f"the folder {folder} cannot be read: Permission denied.")
        files = sorted(folder.glob(PATTERN))
        if not files:
            raise UserError(
                f"no {PATTERN} file in {folder}: python -m experiments convert-images makes them "
                "from a folder of images."
            )
        try:
            sizes = [path.stat().st_size for path in files]
            checksum = _checksum(files, sizes)
        except OSError as error:
            name = error.filename or folder
            raise UserError(f"{name} cannot be read: {error.strerror or error}.") from error
        return cls(
            path=str(folder.resolve()),
            num_files=len(files),
            num_bytes=sum(sizes),
            checksum=checksum,
        )

    @property
    def name(self) -> str:
        """As users and results call it."""
        return self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnDataset:
    """What the function `dataset` in the module of the user's own model yields."""

    kind: ClassVar[str] = "own_dataset"
    name: ClassVar[str] = "dataset"
    #: The model's digest is of all files that were imported.
    checksum: ClassVar[None] = None


Data = Synthetic | Digits | RecordFiles | OwnDataset


def check_serves(data: Data, model: Model) -> None:
    """See that a model can be trained with the data.

    Raises:
        UserError: it takes no images, or tells fewer classes apart than the data have.
    """
    if isinstance(data, Synthetic):
        return
    if isinstance(data, OwnDataset):
        if isinstance(model, OwnModel) and model.has_dataset:
            return
        raise UserError(
            f"model {model.name} has no function dataset(shard, num_shards) in its module: write "
            "one, or use input synthetic."
        )
    if isinstance(model, OwnModel):
        raise UserError(
            f"model {model.name} is trained with the function dataset(shard, num_shards) of its "
            f"module, or with examples that are made up: use input synthetic, not {data.name}."
        )
    if not isinstance(model, ImageModel):
        raise UserError(
            f"model {model.name} takes no images: use input synthetic, not {data.name}."
        )
    if isinstance(data, Digits) and model.num_classes < data.num_classes:
        raise UserError(
            f"input digits has {data.num_classes} classes, got num_classes {model.num_classes}."
        )


def _checksum(files: Sequence[Path], sizes: Sequence[int]) -> str:
    total = hashlib.sha256()
    for path, size in zip(files, sizes, strict=True):
        total.update(f"{path.name}\0{size}\0".encode())
        with open_regular(path) as stream:
            total.update(stream.read(SAMPLED_BYTES))
            stream.seek(max(0, size - SAMPLED_BYTES))
            total.update(stream.read(SAMPLED_BYTES))
    return total.hexdigest()[:16]
