"""The data that a model is trained with, and its identity.

Decides which data there are and that files are identified by their content: replaced files make
another experiment, moved ones do not.  Reading is the business of `workloads.inputs`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ps_allreduce.errors import UserError
from ps_allreduce.point.inputs.data_set import (
    MANIFEST,
    ExampleForm,
    Manifest,
    Target,
    read_manifest,
)
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.models import Model
from ps_allreduce.point.models.trained import ImageModel, OwnModel, Unit
from ps_allreduce.point.models.weights import Weights
from ps_allreduce.scratch import open_regular
from ps_allreduce.serialization import LATER

#: TFRecord files of a folder.
PATTERN = "*.tfrecord"

#: So much of each end of a file enters its checksum: reading all of it could take hours.
SAMPLED_BYTES = 65_536

#: Of folders that say nothing: encoded images with a class each, of which nobody knows how many.
UNSTATED = ExampleForm(num_outputs=1)

#: What an example tells, in words.
_TOLD = {
    Target.CLASS: "one class of every image",
    Target.LABELS: "any labels of every image",
    Target.VALUE: "a value of every image",
}


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
    form: ClassVar[ExampleForm] = ExampleForm(num_outputs=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFiles:
    """Images in the TFRecord files of a folder.

    Attributes:
        path: of the folder; no part of the identity.
        num_files, num_bytes: of all files.
        checksum: sixteen hexadecimal digits over names, sizes, and both ends of every file.
        form: of every example, as `data_set.json` beside the files states it.
        num_records: of all files, as it states them too; no part of the identity.
        place: where the files are, in a study that compares places; None elsewhere, because files
            that were moved are the same data.
    """

    kind: ClassVar[str] = "tfrecord"
    title: ClassVar[str] = "TFRecord files"

    path: str = field(compare=False)
    num_files: int
    num_bytes: int
    checksum: str
    form: ExampleForm = field(default=UNSTATED, metadata=LATER)
    num_records: int | None = field(default=None, compare=False)
    place: str | None = field(default=None, metadata=LATER)

    @classmethod
    def found_in(cls, folder: Path) -> RecordFiles:
        """The files that are in a folder now.

        Raises:
            UserError: there is none, one cannot be read, or they are not those of `data_set.json`.
        """
        if not os.access(folder, os.R_OK | os.X_OK):  # no file would be found in it
            raise UserError(f"the folder {folder} cannot be read: Permission denied.")
        files = sorted(folder.glob(PATTERN))
        if not files:
            raise UserError(
                f"no {PATTERN} file in {folder}{_elsewhere(folder)}: python -m experiments convert "
                "makes them from a data set."
            )
        try:
            sizes = [path.stat().st_size for path in files]
            checksum = _checksum(files, sizes)
        except OSError as error:
            name = error.filename or folder
            raise UserError(f"{name} cannot be read: {error.strerror or error}.") from error
        manifest = read_manifest(folder)
        if manifest is not None:
            named = {path.name: size for path, size in zip(files, sizes, strict=True)}
            _check_files(folder, manifest, named)
        return cls(
            path=str(folder.resolve()),
            num_files=len(files),
            num_bytes=sum(sizes),
            checksum=checksum,
            form=UNSTATED if manifest is None else manifest.form,
            num_records=None if manifest is None else manifest.num_records,
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


#: What a pipeline with settings reads.
InputFiles = RecordFiles | ImageFiles

Data = Synthetic | Digits | InputFiles | OwnDataset


def check_serves(data: Data, model: Model) -> None:
    """See that a model can be trained with the data.

    Raises:
        UserError: it takes no images, others than these, or tells something else of them.
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
    if isinstance(model, ImageModel):
        _check_form(data, model)
    elif not _reads_for_nothing(data, model):
        raise UserError(
            f"model {model.name} takes no images: use input synthetic, not {data.name}."
        )


def _reads_for_nothing(data: Data, model: Model) -> bool:
    """Weights alone look at no image; files can be read for them as for the model itself."""
    is_of_text = model.unit is Unit.TOKENS
    return isinstance(model, Weights) and isinstance(data, InputFiles) and not is_of_text


def _check_form(data: Digits | InputFiles, model: ImageModel) -> None:
    form = data.form
    if form.target is not model.target:
        raise UserError(
            f"input {data.name} tells {_TOLD[form.target]}, and model {model.name} is to learn "
            f"{_TOLD[model.target]}: use other data."
        )
    if form.channels != model.channels:
        raise UserError(
            f"input {data.name} has images of {form.channels} channels, and model {model.name} "
            f"takes {model.channels}: use other data."
        )
    if model.num_classes < form.num_outputs:
        counted = "labels" if form.target is Target.LABELS else "classes"
        raise UserError(
            f"input {data.name} has {form.num_outputs} {counted}, got num_classes "
            f"{model.num_classes}."
        )


def _elsewhere(folder: Path) -> str:
    """Folders below this one that hold such files, for a message."""
    found = sorted({path.parent.name for path in folder.glob(f"*/{PATTERN}")})
    return f", but in its folders {', '.join(found)}" if found else ""


def _check_files(folder: Path, manifest: Manifest, sizes: Mapping[str, int]) -> None:
    """See that a folder has the files that it says it has."""
    stated = {each.name: each.num_bytes for each in manifest.files}
    for name in sorted(stated.keys() | sizes.keys()):
        if stated.get(name) != sizes.get(name):
            raise UserError(
                f"{folder} has {_bytes_text(name, sizes)}, and its {MANIFEST} tells of "
                f"{_bytes_text(name, stated)}: convert the data again."
            )


def _bytes_text(name: str, sizes: Mapping[str, int]) -> str:
    return f"{name} with {sizes[name]} bytes" if name in sizes else f"no {name}"


def _checksum(files: Sequence[Path], sizes: Sequence[int]) -> str:
    total = hashlib.sha256()
    for path, size in zip(files, sizes, strict=True):
        total.update(f"{path.name}\0{size}\0".encode())
        with open_regular(path) as stream:
            total.update(stream.read(SAMPLED_BYTES))
            stream.seek(max(0, size - SAMPLED_BYTES))
            total.update(stream.read(SAMPLED_BYTES))
    return total.hexdigest()[:16]
