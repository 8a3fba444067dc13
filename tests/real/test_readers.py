"""All readers of files keep one contract, and TensorFlow reads what converters write without it."""

from __future__ import annotations

import hashlib
import io
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from experiments.data_sets.convert import convert
from experiments.data_sets.layouts import LAYOUTS
from tests import data_sets
from tests.data_sets import COPIES
from tests.real.points import output_of

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def provoked(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `provoked_readers` prints."""
    return json.loads(output_of("provoked_readers", str(tmp_path_factory.mktemp("read"))).stdout)


#: Channels, format and shape of targets of each reader's batches of 6.
FORMS = {
    "encoded records": (3, "int64", [6]),
    "raw records": (5, "float32", [6, 4]),
    "values": (3, "float32", [6, 1]),
    "loose images": (3, "int64", [6]),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_reader_gives_endless_batches_in_its_form(name: str, provoked: Any) -> None:
    channels, dtype, targets = FORMS[name]
    told = provoked["outcomes"][name]
    assert told["shape"] == [6, 6, 6, channels]
    assert (told["dtypes"], told["targets"]) == (["float32", dtype], targets)
    assert told["in range"]
    assert told["batches"] == [20, 20, 20, 20]


@pytest.mark.parametrize("name", FORMS)
def test_ordered_batches_repeat_and_are_dealt_in_turn(name: str, provoked: Any) -> None:
    assert provoked["outcomes"][name]["repeats"]
    assert provoked["outcomes"][name]["dealt"]


def test_targets_are_what_labels_say(provoked: Any) -> None:
    assert provoked["targets"]["encoded records"] == [0, 1, 2, 0, 1, 2]
    assert provoked["targets"]["raw records"][:2] == [[0, 0, 0, 0], [0, 1, 0, 1]]
    assert provoked["targets"]["values"][0] == pytest.approx([0.2])


def test_the_shares_of_all_workers_are_everything_once(provoked: Any) -> None:
    assert provoked["tried"] >= 30
    assert provoked["own files"]


def test_a_damaged_image_is_named(provoked: Any) -> None:
    assert "exif.jpg is damaged: " in provoked["damage"]


def _unusual_images(folder: Path) -> None:
    """All that is stored as it is although it is no JPEG of three channels."""
    unusual = (("CMYK", "JPEG"), ("L", "JPEG"), ("P", "PNG"), ("I;16", "PNG"), ("P", "GIF"))
    for mode, kind in (*unusual, ("RGB", "BMP"), ("1", "PNG"), ("RGBA", "PNG")):
        stream = io.BytesIO()
        Image.new(mode, (30, 20)).save(stream, kind)
        (folder / f"{mode.replace(';', '')}-{kind}.{kind.lower()}").write_bytes(stream.getvalue())
    (folder / "disguised.JPEG").write_bytes((folder / "P-PNG.png").read_bytes())


def test_every_record_is_read_as_it_was_meant(tmp_path: Path) -> None:
    wanted = {}
    for name, layout in LAYOUTS.items():
        source = COPIES[name](tmp_path / name)
        if name == "class-folders":
            _unusual_images(source / "train" / "n01440764")
            (source / "train" / "n01440764" / "large.JPEG").write_bytes(data_sets.jpeg(1, 700, 500))
        out = tmp_path / "out" / name
        convert(layout, source, out, lambda _: nullcontext(lambda *_: None))
        for split, examples in layout.list_examples(source, lambda *_: None).splits.items():
            wanted[str(out / split)] = sorted(
                [hashlib.sha256(layout.image(source / each.path)).hexdigest(), [*each.labels]]
                for each in examples
            )
    found = json.loads(output_of("read_by_tensorflow", *wanted).stdout)
    assert {folder: sorted(records) for folder, records in found.items()} == wanted
