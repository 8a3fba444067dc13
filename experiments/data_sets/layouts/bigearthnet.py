"""The layout `bigearthnet`: BigEarthNet-S2, patches of Sentinel-2 images with CORINE labels.

Decides how bands of three resolutions become one image, and how patches are divided.  Sources:
Sumbul, Charfuelan, Demir, Markl, "BigEarthNet: a large-scale benchmark archive for remote sensing
image understanding", IGARSS 2019; names of labels: `label_indices.json` of the authors'
bigearthnet-models.  A reflectance of 1 is 10,000 (Sentinel-2 User Handbook, quantification value of
Level 2A); brighter pixels occur, and are stored as they are.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from experiments.data_sets.encoded_images import UNDECODABLE, damaged, entries, read_source
from experiments.data_sets.listing import (
    TEST,
    TRAINING,
    VALIDATION,
    Example,
    Listing,
    Report,
    by_split,
    divided,
)
from experiments.data_sets.threads import Tally, in_threads
from ps_allreduce.errors import UserError
from ps_allreduce.point.inputs.data_set import Encoding, ExampleForm, Target
from ps_allreduce.serialization import parse_json

#: Pixels of a patch of 1.2 km at 10 m.
SIZE = 120

#: Pixels of each band, in the order of the channels.
BANDS = {
    "B01": 20,
    "B02": 120,
    "B03": 120,
    "B04": 120,
    "B05": 60,
    "B06": 60,
    "B07": 60,
    "B08": 120,
    "B8A": 60,
    "B09": 20,
    "B11": 60,
    "B12": 60,
}

REFLECTANCE_ONE = 10_000.0

#: The archive has no splits; the authors' shares.
SHARES = {TRAINING: 0.6, VALIDATION: 0.2, TEST: 0.2}

_LABELS = "_labels_metadata.json"

#: Patches that a thread looks at before it takes others.
_CHUNK = 256

_HIGHEST = np.iinfo(np.uint16).max


class BigEarthNet:
    """`<patch>/<patch>_B01.tif` and eleven more bands, and `<patch>/<patch>_labels_metadata.json`.

    An image has twelve channels of 120x120 numbers of 16 bits: bands of 20 m and 60 m are enlarged
    (Pillow's bicubic), rounded and clipped.
    """

    name = "bigearthnet"

    def recognises(self, source: Path) -> bool:
        """Whether there is a patch with labels."""
        return any(source.glob(f"*/*{_LABELS}"))

    def list_examples(self, source: Path, report: Report) -> Listing:
        """All patches, with their labels.

        Raises:
            UserError: a patch lacks a band or labels, or has a label that is unknown.
        """
        names = label_names()
        patches = entries(source).folders
        if not patches:
            raise UserError(f"{source} holds no patch: one folder each, with its twelve bands.")
        numbers = {name: number for number, name in enumerate(names)}
        tally = Tally(report, len(patches))

        def look(chunk: Sequence[str]) -> list[Example]:
            found = []
            for patch in chunk:
                found.append(Example(path=patch, labels=_labels(source / patch, numbers)))
                tally.add()
            return found

        chunks = [patches[begin : begin + _CHUNK] for begin in range(0, len(patches), _CHUNK)]
        examples = [each for found in in_threads(look, chunks, tally) for each in found]
        split_of = divided(patches, SHARES)
        form = ExampleForm(
            encoding=Encoding.UINT16,
            channels=len(BANDS),
            image_size=SIZE,
            target=Target.LABELS,
            num_outputs=len(names),
            highest=REFLECTANCE_ONE,
        )
        splits = by_split(examples, lambda example: split_of[example.path])
        return Listing(form=form, splits=splits, names=names)

    def image(self, path: Path) -> bytes:
        """Little-endian numbers in the order height, width, channel.

        Raises:
            UserError: a band cannot be decoded, or has another size or kind of numbers.
        """
        bands = [_band(path / f"{path.name}_{band}.tif", pixels) for band, pixels in BANDS.items()]
        return np.stack(bands, axis=-1).astype("<u2", copy=False).tobytes()

    def image_bytes(self, path: Path) -> int:
        """The same for all."""
        return SIZE * SIZE * len(BANDS) * 2


def label_names() -> tuple[str, ...]:
    """The 43 CORINE labels of level 3 that the archive has, in CORINE's order."""
    path = Path(__file__).with_name("bigearthnet_labels.txt")
    return tuple(path.read_text(encoding="ascii").splitlines())


def _labels(folder: Path, numbers: dict[str, int]) -> tuple[int, ...]:
    """The numbers of a patch's labels, once all its files are there."""
    path = folder / f"{folder.name}{_LABELS}"
    wanted = {path.name, *(f"{folder.name}_{band}.tif" for band in BANDS)}
    try:
        missing = wanted - set(os.listdir(folder))
    except OSError as error:
        raise UserError(f"the folder {folder} cannot be read: {error.strerror}.") from error
    if missing:
        raise UserError(f"{folder / min(missing)} is missing: unpack the patch again.")
    try:
        content = parse_json(read_source(path))
    except ValueError as error:
        raise UserError(f"{path} is no JSON ({error}): unpack the patch again.") from error
    labels = content.get("labels") if isinstance(content, dict) else None
    if not isinstance(labels, list) or not labels:
        raise UserError(f"{path} holds no list of labels: unpack the patch again.")
    if unknown := [each for each in labels if not isinstance(each, str) or each not in numbers]:
        raise UserError(
            f"{path} holds the label {unknown[0]!r}, which is none of the {len(numbers)} of "
            "BigEarthNet-S2: is this another version of the archive?"
        )
    return tuple(sorted({numbers[each] for each in labels}))


def _band(path: Path, pixels: int) -> npt.NDArray[np.uint16]:
    """A band, enlarged to the size of the finest."""
    try:
        with Image.open(io.BytesIO(read_source(path)), formats=("TIFF",)) as image:
            if image.size != (pixels, pixels) or not image.mode.startswith("I;16"):
                raise ValueError(
                    f"{image.size[0]} x {image.size[1]} of mode {image.mode}, not {pixels} x "
                    f"{pixels} numbers of 16 bits"
                )
            values = np.asarray(image)
    except UNDECODABLE as error:
        raise damaged(path, error, "GeoTIFF") from error
    if pixels == SIZE:
        return np.asarray(values, np.uint16)
    real = Image.fromarray(values.astype(np.float32))
    enlarged = np.asarray(real.resize((SIZE, SIZE), Image.Resampling.BICUBIC))
    clipped: npt.NDArray[np.uint16] = np.clip(np.rint(enlarged), 0, _HIGHEST).astype(np.uint16)
    return clipped
