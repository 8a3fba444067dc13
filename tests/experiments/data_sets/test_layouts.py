"""What every layout promises, on a small copy of each; and what is peculiar to one."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from experiments.data_sets.layouts import LAYOUTS
from experiments.data_sets.layouts.bigearthnet import BANDS as CHANNELS
from experiments.data_sets.layouts.bigearthnet import label_names
from experiments.data_sets.layouts.imdb_wiki import age_of
from experiments.data_sets.listing import Listing
from ps_allreduce.errors import UserError
from ps_allreduce.point.inputs.data_set import Target
from tests import data_sets
from tests.data_sets import COPIES


def listed(layout: str, source: Path) -> Listing:
    return LAYOUTS[layout].list_examples(source, lambda done, total: None)


def test_there_is_a_copy_of_every_layout() -> None:
    assert set(COPIES) == set(LAYOUTS)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_examples_have_images_and_labels_of_the_stated_form(layout: str, tmp_path: Path) -> None:
    source = COPIES[layout](tmp_path / "source")
    told: list[tuple[int, int]] = []
    found = LAYOUTS[layout].list_examples(source, lambda *each: told.append(each))
    assert told[-1][0] == told[-1][1]
    assert found == listed(layout, source)
    paths = [example.path for examples in found.splits.values() for example in examples]
    assert len(set(paths)) == len(paths)
    for example in (example for examples in found.splits.values() for example in examples):
        content = LAYOUTS[layout].image(source / example.path)
        assert len(content) == LAYOUTS[layout].image_bytes(source / example.path)
        assert example.labels
        if found.form.target is not Target.VALUE:
            assert set(example.labels) <= set(range(found.form.num_outputs))
            assert len(found.names) == found.form.num_outputs


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_but_its_own_data_set_is_recognised(layout: str, tmp_path: Path) -> None:
    source = COPIES[layout](tmp_path / "source")
    assert {name for name in LAYOUTS if LAYOUTS[name].recognises(source)} == {layout} - {
        "class-folders"
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_empty_folder_is_refused(layout: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=str(tmp_path)):
        listed(layout, tmp_path)


def test_classes_are_numbered_over_all_splits(tmp_path: Path) -> None:
    data_sets.class_folders(tmp_path, ("b", "c"), {"train": 2})
    data_sets.class_folders(tmp_path, ("a",), {"val": 1})
    Path(tmp_path, "test").mkdir()
    Path(tmp_path, "test", "x.JPEG").write_bytes(data_sets.jpeg(1))
    Path(tmp_path, "train", "b", "README").touch()
    found = listed("class-folders", tmp_path)
    assert found.names == ("a", "b", "c")
    assert [each.labels for each in found.splits["training"]] == [(1,), (1,), (2,), (2,)]
    assert [each.path for each in found.splits["validation"]] == ["val/a/a_0.JPEG"]
    assert sum(found.left_out.values()) == 2


def test_classes_need_no_splits(tmp_path: Path) -> None:
    found = listed("class-folders", data_sets.class_folders(tmp_path, splits={"": 4}))
    assert {split: len(members) for split, members in found.splits.items()} == {"training": 8}


def test_tiny_imagenet_is_labelled_by_its_annotations(tmp_path: Path) -> None:
    found = listed("tiny-imagenet", data_sets.tiny_imagenet(tmp_path))
    assert found.names[0] == "n01443537 goldfish, Carassius auratus"
    assert [each.labels for each in found.splits["validation"]] == [(0,)] * 4 + [(1,)] * 4
    assert found.left_out == {"test images that have no label": 3}


@pytest.mark.parametrize(
    ("born", "year", "age"),
    [
        # MATLAB: datenum(1981, 5, 5) is 723671, datenum(1981, 7, 2) 723729.
        (723671, 2009, 28),
        (723729, 2009, 27),
        (693726, 1968, 69),  # Fred Astaire, the first of imdb.mat
        (float("nan"), 2009, -1),
        (723671, 60_000, -1),
    ],
)
def test_ages_are_those_of_the_page(born: float, year: int, age: int) -> None:
    assert age_of(np.array([born]), np.array([year])).tolist() == [age]


def test_of_faces_only_those_with_an_age_are_taken(tmp_path: Path) -> None:
    found = listed("imdb-wiki", data_sets.imdb_wiki(tmp_path, persons=42))
    assert list(found.left_out.values()) == [1, 1]
    assert {split: len(members) for split, members in found.splits.items()} == {
        "training": 32,
        "validation": 4,
        "test": 4,
    }


def test_photographs_of_a_person_are_in_one_split(tmp_path: Path) -> None:
    paths = [f"00/nm{number % 20:07d}_rm{number}_1950-1-1_2010.jpg" for number in range(60)]
    cells = np.empty((1, 60), dtype=object)
    cells[0, :] = paths
    data_sets.imdb_wiki(tmp_path, persons=60, full_path=cells)
    for path in paths:
        Path(tmp_path, path).write_bytes(data_sets.jpeg(0))
    splits = listed("imdb-wiki", tmp_path).splits.values()
    persons = [{each.path.split("_")[0] for each in members} for members in splits]
    assert sum(map(len, persons)) == len(set.union(*persons))


@pytest.mark.parametrize("compression", [None, "tiff_lzw", "tiff_adobe_deflate"])
def test_bands_become_channels_of_one_size(compression: str | None, tmp_path: Path) -> None:
    source = data_sets.bigearthnet(tmp_path, patches=1, compression=compression)
    found = listed("bigearthnet", source)
    (example,) = found.splits["training"]
    assert [found.names[each] for each in example.labels] == ["Pastures", "Mixed forest"]
    image = np.frombuffer(LAYOUTS["bigearthnet"].image(source / example.path), "<u2")
    image = image.reshape(120, 120, 12)
    for channel, band in enumerate(CHANNELS):
        with Image.open(source / example.path / f"{example.path}_{band}.tif") as tiff:
            pixels = np.asarray(tiff)
            assert 34735 in tiff.tag_v2  # type: ignore[attr-defined]
        if len(pixels) == 120:
            assert np.array_equal(image[:, :, channel], pixels)
        else:
            assert abs(float(image[:, :, channel].mean()) - float(pixels.mean())) < 300


def test_enlarged_bands_are_clipped_at_both_ends(tmp_path: Path) -> None:
    source = data_sets.bigearthnet(tmp_path, patches=1)
    (patch,) = source.iterdir()
    edge = np.zeros((20, 20), np.uint16)
    edge[:, 10:] = 65535
    (patch / f"{patch.name}_B01.tif").write_bytes(data_sets.geotiff(edge))
    image = np.frombuffer(LAYOUTS["bigearthnet"].image(patch), "<u2").reshape(120, 120, 12)
    row = image[60, :, 0].astype(int)
    assert (row[0], row[-1]) == (0, 65535)
    assert np.all(np.diff(row[45:75]) >= -1000)


def test_the_labels_of_bigearthnet_are_known() -> None:
    assert len(set(label_names())) == 43
    assert "Glaciers and perpetual snow" not in label_names()


def _patch(source: Path) -> Path:
    return min(source.iterdir())


def _labels(source: Path, labels: object) -> None:
    path = next(_patch(source).glob("*.json"))
    path.write_text(json.dumps({"labels": labels}))


#: What is wrong, by what tells the user; found before any image is decoded.
WRONG_SOURCES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "is in no folder of a class": (
        "class-folders",
        lambda source: Path(source, "val", "x.JPEG").write_bytes(b""),
    ),
    "holds no image": ("class-folders", lambda source: Path(source, "val", "n3").mkdir()),
    "TensorFlow does not decode": (
        "class-folders",
        lambda source: Path(source, "train", "n01440764", "a.webp").touch(),
    ),
    r"val_8\.JPEG has no annotation": (
        "tiny-imagenet",
        lambda source: Path(source, "val/images/val_8.JPEG").touch(),
    ),
    r"val_0\.JPEG is missing, but stands in": (
        "tiny-imagenet",
        lambda source: Path(source, "val/images/val_0.JPEG").unlink(),
    ),
    "line 1, names no known class": (
        "tiny-imagenet",
        lambda source: Path(source, "val/val_annotations.txt").write_text("a.JPEG\tn0\t1\n"),
    ),
    "no WordNet number": (
        "tiny-imagenet",
        lambda source: Path(source, "wnids.txt").write_text("goldfish\nn01629819\n"),
    ),
    r"words\.txt does not tell": (
        "tiny-imagenet",
        lambda source: Path(source, "words.txt").write_text("n01629819\ta\n"),
    ),
    "is no class that wnids.txt names": (
        "tiny-imagenet",
        lambda source: Path(source, "train/n00000001").mkdir(),
    ),
    "lacks the field face_score": (
        "imdb-wiki",
        lambda source: data_sets.imdb_wiki(source, face_score=None),
    ),
    "equally many entries": (
        "imdb-wiki",
        lambda source: data_sets.imdb_wiki(source, dob=np.ones((1, 3))),
    ),
    "does not hold the struct wiki": (
        "imdb-wiki",
        lambda source: savemat(source / "wiki.mat", {"other": 1}),
    ),
    "of a MATLAB 5 file": (
        "imdb-wiki",
        lambda source: Path(source, "wiki.mat").write_bytes(b"no such thing" * 50),
    ),
    "it holds 2 of them": ("imdb-wiki", lambda source: Path(source, "imdb.mat").touch()),
    r"1005_\S+ is missing, but stands in the metadata": (
        "imdb-wiki",
        lambda source: next(source.glob("*/1005_*")).unlink(),
    ),
    r"_B8A\.tif is missing": (
        "bigearthnet",
        lambda source: next(_patch(source).glob("*_B8A.tif")).unlink(),
    ),
    "holds the label 'Moon'": ("bigearthnet", lambda source: _labels(source, ["Moon"])),
    "holds no list of labels": ("bigearthnet", lambda source: _labels(source, [])),
}


@pytest.mark.parametrize("sentence", WRONG_SOURCES)
def test_a_wrong_source_is_refused_at_the_first_look(sentence: str, tmp_path: Path) -> None:
    layout, spoil = WRONG_SOURCES[sentence]
    source = COPIES[layout](tmp_path / "source")
    spoil(source)
    with pytest.raises(UserError, match=sentence):
        listed(layout, source)


def _saved(mode: str, kind: str, size: tuple[int, int] = (64, 64)) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, size).save(stream, kind)
    return stream.getvalue()


#: What is no image that can be taken, by what tells the user.
BAD_IMAGES = {
    "truncated": ("class-folders", data_sets.jpeg(3, 200, 200)[:-900]),
    "unknown format": ("class-folders", b"no image"),
    "24 bits a pixel only": ("class-folders", _saved("P", "BMP")),
    r"\(unknown format\)": ("class-folders", _saved("RGB", "WEBP")),
    r"\(32, 64\) pixels, not 64 x 64": ("tiny-imagenet", _saved("RGB", "PNG", (32, 64))),
    r"60 x 60 of mode I;16, not 20 x 20": (
        "bigearthnet",
        data_sets.geotiff(np.zeros((60, 60), np.uint16)),
    ),
    r"20 x 20 of mode L, not 20 x 20": ("bigearthnet", _saved("L", "TIFF", (20, 20))),
}


@pytest.mark.parametrize("sentence", BAD_IMAGES)
def test_a_bad_image_is_named(sentence: str, tmp_path: Path) -> None:
    layout, content = BAD_IMAGES[sentence]
    source = COPIES[layout](tmp_path / "source")
    example = next(iter(listed(layout, source).splits.values()))[0]
    path = source / example.path
    bad = path if path.is_file() else path / f"{path.name}_B01.tif"
    bad.write_bytes(content)
    with pytest.raises(UserError, match=f"{bad.name} is no .*{sentence}"):
        LAYOUTS[layout].image(path)


@pytest.mark.parametrize(("mode", "kind"), [("CMYK", "JPEG"), ("L", "PNG"), ("RGB", "BMP")])
def test_content_counts_and_not_the_suffix(mode: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.JPEG"
    path.write_bytes(_saved(mode, kind))
    assert LAYOUTS["class-folders"].image(path) == path.read_bytes()


def test_a_pipe_is_no_image(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(UserError, match=r"a\.png cannot be read: a\.png is no file but"):
        LAYOUTS["class-folders"].image(tmp_path / "a.png")


def test_a_folder_may_be_a_link(tmp_path: Path) -> None:
    source = data_sets.class_folders(tmp_path / "source")
    shutil.move(source / "train" / "n01440764", tmp_path / "elsewhere")
    (source / "train" / "n01440764").symlink_to(tmp_path / "elsewhere")
    assert len(listed("class-folders", source).splits["training"]) == 24
