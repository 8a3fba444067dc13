"""How fast a data set is converted, beside decoding and copying the same files.

Decides which images are made up for it.  What comes of it is told by `analysis.suite.conversion`.
"""

from __future__ import annotations

import io
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from analysis.suite.conversion import CONVERSION, ConversionSpeed, ConversionSpeeds
from experiments.data_sets.convert import convert
from experiments.data_sets.layouts import LAYOUTS
from experiments.data_sets.listing import Report
from experiments.data_sets.threads import Tally, in_threads, usable_cores
from ps_allreduce.errors import UserError
from ps_allreduce.record.files import write_json

#: Width, height and number of images: as in TinyImageNet, and as in ImageNet.
SIZES = ((64, 64, 2000), (500, 375, 200))

ROUNDS = 3

#: A thread takes so many images at once, as in a file of a conversion.
_AT_ONCE = 25

_LAYOUT = LAYOUTS["class-folders"]


def time_conversion(bench: Path) -> None:
    """Measure, and leave the figures in the folder of the bench.

    Raises:
        UserError: the folder cannot be written.
    """
    try:
        bench.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=bench, prefix=".conversion.") as folder:
            speeds = [_speed(Path(folder), *size) for size in SIZES]
    except OSError as error:
        raise UserError(f"cannot write below {bench}: {error.strerror or error}.") from error
    write_json(bench / CONVERSION, ConversionSpeeds(sizes=tuple(speeds)))


def _speed(folder: Path, width: int, height: int, count: int) -> ConversionSpeed:
    source = folder / f"{width}x{height}"
    paths = _images(source, width, height, count)
    copies, out = folder / "copies", folder / "out"

    def copy_all() -> None:
        copies.mkdir()
        _each(paths, lambda path: shutil.copyfile(path, copies / path.name))

    ways: tuple[Callable[[], object], ...] = (
        lambda: convert(_LAYOUT, source, out, _no_bar),
        lambda: _each(paths, _LAYOUT.image),
        copy_all,
    )
    rates: list[list[float]] = [[] for _ in ways]
    for _ in range(ROUNDS):
        for found, way in zip(rates, ways, strict=True):
            begin = time.monotonic()
            way()
            found.append(count / (time.monotonic() - begin))
        shutil.rmtree(copies)
        shutil.rmtree(out)
    converting, decoding, copying = map(tuple, rates)
    return ConversionSpeed(
        width=width,
        height=height,
        num_images=count,
        num_threads=usable_cores(),
        converting=converting,
        decoding=decoding,
        copying=copying,
    )


def _each(paths: Sequence[Path], work: Callable[[Path], object]) -> None:
    def some(part: Sequence[Path]) -> None:
        for path in part:
            work(path)

    parts = [paths[begin : begin + _AT_ONCE] for begin in range(0, len(paths), _AT_ONCE)]
    in_threads(some, parts, Tally(lambda done, total: None, len(paths)))


@contextmanager
def _no_bar(doing: str) -> Iterator[Report]:
    yield lambda done, total: None


def _images(source: Path, width: int, height: int, count: int) -> list[Path]:
    """JPEGs of two classes, with coarse structure and some noise."""
    generator = np.random.default_rng(1)
    contents = []
    for _ in range(20):
        coarse = generator.integers(0, 200, (height // 8, width // 8, 3), np.uint8)
        smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        noise = generator.integers(0, 40, (height, width, 3), np.uint8)
        stream = io.BytesIO()
        Image.fromarray(np.asarray(smooth) // 5 * 4 + noise).save(stream, "JPEG", quality=90)
        contents.append(stream.getvalue())
    paths = [source / str(number % 2) / f"{number}.jpg" for number in range(count)]
    for number, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents[number % len(contents)])
    return paths
