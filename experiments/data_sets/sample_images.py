"""Real images without a data set: crops of the two photographs that scikit-learn brings.

Decides what a folder of samples holds: the layout `class-folders`, a class for each photograph,
JPEGs of equal size.  The same request gives the same bytes.  For trying how images are read;
nothing can be learned from them.

Source of the photographs: sklearn.datasets.load_sample_images, `china.jpg` and `flower.jpg`.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from experiments.data_sets.listing import Report
from ps_allreduce.errors import UserError, at_least, at_most

#: As files of photographs usually have it.
JPEG_QUALITY = 90

#: Crops are this share of a photograph's shorter side at least.
LEAST_SHARE = 0.3

#: Made under this name, and renamed when all are there.
UNFINISHED = ".unfinished"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleImages:
    """So many images of so many pixels.

    Attributes:
        count: of all classes together.
        pixels: of the square images.
        seed: of the crops.
    """

    count: int = 2000
    pixels: int = 64
    seed: int = 1

    def __post_init__(self) -> None:
        at_least(2, count=self.count)
        at_most(10**6, count=self.count)
        at_least(8, pixels=self.pixels)
        at_most(4096, pixels=self.pixels)

    @property
    def name(self) -> str:
        """Of a folder."""
        return f"samples-{self.count}-{self.pixels}px"


def write_samples(samples: SampleImages, folder: Path, report: Report) -> None:
    """Write the images, unless they are there; what was half written is written anew.

    Args:
        folder: that is to hold the classes.

    Raises:
        UserError: the disk refuses.
    """
    if folder.is_dir():
        return
    unfinished = folder.with_name(folder.name + UNFINISHED)
    try:
        if unfinished.is_dir():
            shutil.rmtree(unfinished)
        for number, (name, content) in enumerate(_images(samples)):
            path = unfinished / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            report(number + 1, samples.count)
        unfinished.replace(folder)
    except OSError as error:
        raise UserError(f"cannot write images to {folder}: {error.strerror}.") from error


def _images(samples: SampleImages) -> Iterator[tuple[str, bytes]]:
    """Names below the folder, and contents; classes take turns."""
    # Not for every command: it takes a second to import.
    from sklearn.datasets import load_sample_images

    photographs = load_sample_images()
    pairs = list(zip(photographs.filenames, photographs.images, strict=True))
    generator = np.random.default_rng(samples.seed)
    for number in range(samples.count):
        name, photograph = pairs[number % len(pairs)]
        label = Path(name).stem
        yield f"{label}/{number:06d}.jpg", _crop(photograph, samples.pixels, generator)


def _crop(photograph: npt.NDArray[np.uint8], pixels: int, generator: np.random.Generator) -> bytes:
    """A square of any size from any place [height, width, 3], mirrored or not, as JPEG."""
    height, width, _ = photograph.shape
    side = int(min(height, width) * generator.uniform(LEAST_SHARE, 1.0))
    top, left = generator.integers(0, height - side + 1), generator.integers(0, width - side + 1)
    square = photograph[top : top + side, left : left + side]
    mirrored = square[:, ::-1] if generator.random() < 0.5 else square
    image = Image.fromarray(np.ascontiguousarray(mirrored))
    stream = io.BytesIO()
    image.resize((pixels, pixels), Image.Resampling.BILINEAR).save(
        stream, "JPEG", quality=JPEG_QUALITY
    )
    return stream.getvalue()
