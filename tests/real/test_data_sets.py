"""TensorFlow reads what converters write without it."""

from __future__ import annotations

import hashlib
import io
import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from PIL import Image

from experiments.data_sets.convert import convert
from experiments.data_sets.layouts import LAYOUTS
from tests import data_sets
from tests.data_sets import COPIES
from tests.real.points import output_of

pytestmark = pytest.mark.tensorflow


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
