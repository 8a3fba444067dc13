"""Small faithful copies of the layouts of public data sets, made on the spot.

Images are real JPEGs, the metadata of imdb-wiki are a struct that MATLAB would read, and the bands
of bigearthnet are GeoTIFFs of 16 bits with the tags that place them on the earth.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, TiffImagePlugin
from scipy.io import savemat

#: Classes of TinyImageNet and their words.
WNIDS = {"n01443537": "goldfish, Carassius auratus", "n01629819": "European fire salamander"}

#: Pixels of the bands of Sentinel-2 patches.
BANDS = {
    **dict.fromkeys(("B02", "B03", "B04", "B08"), 120),
    **dict.fromkeys(("B05", "B06", "B07", "B8A", "B11", "B12"), 60),
    **dict.fromkeys(("B01", "B09"), 20),
}

#: The tags of a GeoTIFF: size of a pixel in metres, a tie point, and keys (UTM zone 29 north).
_GEO_TAGS = {33550: (10.0, 10.0, 0.0), 33922: (0.0, 0.0, 0.0, 500_000.0, 4_200_000.0, 0.0)}
_GEO_KEYS = (1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32629)


def jpeg(seed: int, width: int = 64, height: int = 64) -> bytes:
    """A JPEG with some structure, of the size that such a photograph has."""
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 256, (max(2, height // 8), max(2, width // 8), 3), np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    noise = generator.integers(0, 24, (height, width, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray((np.asarray(smooth) // 2 + noise).astype(np.uint8)).save(stream, "JPEG")
    return stream.getvalue()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def class_folders(
    source: Path,
    classes: Iterable[str] = ("n01440764", "n01443537"),
    splits: Mapping[str, int] | None = None,
    pixels: tuple[int, int] = (50, 38),
) -> Path:
    """ImageNet's layout.

    Args:
        splits: images of each class, by the folder of their split; `{"": 5}` has no splits.
        pixels: width and height.
    """
    seed = 0
    for split, count in ({"train": 12, "val": 3} if splits is None else splits).items():
        for name in classes:
            for number in range(count):
                path = source / split / name / f"{name}_{number}.JPEG"
                _write(path, jpeg(seed, *pixels))
                seed += 1
    return source


def tiny_imagenet(source: Path, training: int = 10, validation: int = 4) -> Path:
    """TinyImageNet-200 with two classes; counts are of each class."""
    source.mkdir(parents=True, exist_ok=True)
    (source / "wnids.txt").write_text("".join(f"{each}\n" for each in reversed(WNIDS)))
    words = WNIDS | {"n00001740": "entity"}
    (source / "words.txt").write_text("".join(f"{key}\t{word}\n" for key, word in words.items()))
    annotations = []
    for place, wnid in enumerate(WNIDS):
        for number in range(training):
            name = f"{wnid}_{number}"
            _write(source / "train" / wnid / "images" / f"{name}.JPEG", jpeg(100 * place + number))
        (source / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t1\t2\t3\n")
        for number in range(validation):
            name = f"val_{place * validation + number}.JPEG"
            _write(source / "val" / "images" / name, jpeg(1000 + 100 * place + number))
            annotations.append(f"{name}\t{wnid}\t0\t32\t44\t62\n")
    (source / "val" / "val_annotations.txt").write_text("".join(annotations))
    for number in range(3):
        _write(source / "test" / "images" / f"test_{number}.JPEG", jpeg(2000 + number))
    return source


def _cells(texts: Iterable[str]) -> npt.NDArray[np.object_]:
    """A cell array of MATLAB with one row."""
    values = list(texts)
    cells = np.empty((1, len(values)), dtype=object)
    cells[0, :] = values
    return cells


#: Days from MATLAB's to Python's first day.
_MATLAB_DAYS = 366


def imdb_wiki(source: Path, persons: int = 30, **changed: Any) -> Path:
    """wiki_crop: a photograph of each person, one without a face and one from before its birth.

    Args:
        changed: fields of the struct as they should be; None leaves one out.
    """
    births = 723_000 + 300 * np.arange(persons) + _MATLAB_DAYS
    taken = np.full(persons, 2014)
    scores = np.linspace(1.0, 5.0, persons)
    scores[0], taken[1] = -np.inf, 1900
    paths = [f"{number % 100:02d}/{1000 + number}_1981-05-05_2014.jpg" for number in range(persons)]
    for number, path in enumerate(paths):
        _write(source / path, jpeg(number, 40 + number, 50))
    fields = {
        "dob": births[None].astype(np.int32),
        "photo_taken": taken[None].astype(np.uint16),
        "full_path": _cells(paths),
        "gender": np.ones((1, persons)),
        "name": _cells(f"Person {number}" for number in range(persons)),
        "face_location": _cells("" for _ in range(persons)),
        "face_score": scores[None],
        "second_face_score": np.full((1, persons), np.nan),
    }
    kept = {name: value for name, value in (fields | changed).items() if value is not None}
    savemat(source / "wiki.mat", {"wiki": kept})
    return source


def geotiff(pixels: npt.NDArray[np.uint16], compression: str | None = None) -> bytes:
    """A GeoTIFF of one band; the compression is called as in Pillow."""
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    for tag, values in _GEO_TAGS.items():
        tags.tagtype[tag] = 12  # numbers of 64 bits
        tags[tag] = values
    tags.tagtype[34735] = 3  # whole numbers of 16 bits
    tags[34735] = _GEO_KEYS
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "TIFF", tiffinfo=tags, compression=compression)
    return stream.getvalue()


def bigearthnet(source: Path, patches: int = 10, compression: str | None = None) -> Path:
    """BigEarthNet-S2: patches with their bands and labels."""
    choices = (["Pastures", "Mixed forest"], ["Sea and ocean"], ["Airports", "Pastures"])
    for number in range(patches):
        name = f"S2A_MSIL2A_20170613T101031_{number}_45"
        for place, (band, size) in enumerate(BANDS.items()):
            generator = np.random.default_rng([number, place])
            pixels = generator.integers(0, 12_000, (size, size)).astype(np.uint16)
            _write(source / name / f"{name}_{band}.tif", geotiff(pixels, compression))
        metadata = {
            "labels": choices[number % len(choices)],
            "coordinates": {"ulx": 300_000, "uly": 5_100_000, "lrx": 301_200, "lry": 5_098_800},
            "projection": "PROJCS[...]",
            "tile_source": "S2A_MSIL1C_20170613T101031_N0205_R022_T33UUP_20170613T101608.SAFE",
            "acquisition_date": "2017-06-13 10:10:31",
        }
        (source / name / f"{name}_labels_metadata.json").write_text(json.dumps(metadata))
    return source


#: A small copy of each layout, by its name.
COPIES: Mapping[str, Callable[[Path], Path]] = {
    "class-folders": class_folders,
    "tiny-imagenet": tiny_imagenet,
    "imdb-wiki": imdb_wiki,
    "bigearthnet": bigearthnet,
}
