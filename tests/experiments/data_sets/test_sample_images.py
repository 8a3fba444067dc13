"""Images that are made where no data set is at hand: real ones, the same every time."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from experiments.data_sets.sample_images import UNFINISHED, SampleImages, write_samples
from ps_allreduce.errors import UserError
from ps_allreduce.point.inputs.image_files import ImageFiles

FEW = SampleImages(count=6, pixels=24)


def nothing(done: int, total: int) -> None:
    """Nobody looks."""


def test_classes_hold_real_images_that_are_the_same_every_time(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_samples(FEW, tmp_path / name, nothing)
    first, second = (ImageFiles.found_in(tmp_path / name) for name in ("first", "second"))
    assert (first.num_files, first.num_classes) == (6, 2)
    assert first == second
    sizes = set()
    for path in sorted((tmp_path / "first").glob("*/*.jpg")):
        assert (
            path.read_bytes() == (tmp_path / "second" / path.parent.name / path.name).read_bytes()
        )
        with Image.open(path) as image:
            sizes.add((image.format, image.size))
            assert len(image.getcolors(10_000) or range(10_000)) > 50  # a photograph, not a colour
    assert sizes == {("JPEG", (24, 24))}


def test_what_was_half_written_has_another_name_and_is_written_anew(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    folder = tmp_path / "samples"
    with pytest.raises(KeyboardInterrupt):
        write_samples(FEW, folder, interrupt)
    assert not folder.exists()
    write_samples(FEW, folder, nothing)
    assert len(list(folder.glob("*/*.jpg"))) == 6
    assert not folder.with_name(folder.name + UNFINISHED).exists()


def test_images_that_make_no_sense_or_find_no_place_are_refused(tmp_path: Path) -> None:
    for wrong in ({"count": 1}, {"pixels": 4}):
        with pytest.raises(UserError, match="must be at least"):
            SampleImages(**wrong)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UserError, match="cannot write images"):
        write_samples(FEW, tmp_path / "file" / "samples", nothing)
