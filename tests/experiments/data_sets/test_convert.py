"""A conversion is the same every time, goes on after anything, and verifies what it wrote."""

from __future__ import annotations

import errno
import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.data_sets.convert import Converted, convert
from experiments.data_sets.layouts import LAYOUTS
from experiments.data_sets.listing import Report, plan
from experiments.data_sets.tfrecords import encoded_example, framed, read_framed
from ps_allreduce.errors import UserError
from ps_allreduce.point.inputs.data_set import MANIFEST, read_manifest
from tests import data_sets
from tests.data_sets import COPIES

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def no_bar(doing: str) -> Iterator[Report]:
    yield lambda done, total: None


def converted(layout: str, source: Path, out: Path) -> Converted:
    return convert(LAYOUTS[layout], source, out, no_bar)


def contents(out: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.parent != out
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_splits_are_described_and_the_same_every_time(layout: str, tmp_path: Path) -> None:
    source = COPIES[layout](tmp_path / "source")
    made = converted(layout, source, tmp_path / "a")
    shutil.copytree(source, tmp_path / "moved")
    converted(layout, tmp_path / "moved", tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    for manifest in made.manifests:
        folder = tmp_path / "a" / manifest.split
        assert read_manifest(folder) == manifest
        names = {path.name for path in folder.iterdir()}
        assert names == {MANIFEST, *(each.name for each in manifest.files)}
    again = converted(layout, source, tmp_path / "a")
    assert (again.written, again.manifests) == (0, made.manifests)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return data_sets.class_folders(tmp_path / "source", splits={"train": 30, "val": 10})


def test_a_damaged_image_is_named_and_the_rest_is_kept(source: Path, tmp_path: Path) -> None:
    converted("class-folders", source, tmp_path / "whole")
    path = source / "val" / "n01440764" / "n01440764_3.JPEG"
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(UserError, match=rf"{path.name} is no JPEG.*what is finished is kept"):
        converted("class-folders", source, tmp_path / "out")
    assert not list(tmp_path.glob("out/training")) + list(tmp_path.glob("out/**/.part*"))
    num_kept = len(list(tmp_path.glob("out/*/part-*.tfrecord")))
    path.write_bytes(good)
    made = converted("class-folders", source, tmp_path / "out")
    assert made.written == sum(len(each.files) for each in made.manifests) - num_kept
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_full_disk_leaves_no_half_file(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(1000))

    def refuse_the_fourth(descriptor: int) -> None:
        if next(calls) >= 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", refuse_the_fourth)
        with pytest.raises(UserError, match="No space left on device"):
            converted("class-folders", source, tmp_path / "out")
    assert not list(tmp_path.glob("out/*/.part*"))
    converted("class-folders", source, tmp_path / "out")
    converted("class-folders", source, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_disk_that_is_too_small_is_told_beforehand(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(UserError, match=r"needs about 0\.0 GB more and its disk has 0\.0 GB left"):
        converted("class-folders", source, tmp_path / "out")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_whenever_it_is_ended_the_same_command_goes_on(number: int, tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    photograph = data_sets.jpeg(1, 500, 375)
    for place in range(800):
        path = source / f"class {place % 2}" / f"{place}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(photograph)
    words = [sys.executable, "-m", "experiments", "convert", "class-folders", str(source), str(out)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as begun:
        while len(list(out.glob("*/part-*"))) < 3:
            assert begun.poll() is None, begun.communicate()
            time.sleep(0.005)
        begun.send_signal(number)
        said = begun.communicate(timeout=30)[1].decode()
    assert begun.returncode == (130 if number == signal.SIGINT else -number), said
    assert not (out / "training").exists()
    kept = {each.name: each.stat().st_mtime_ns for each in out.glob("*/part-*.tfrecord")}
    assert len(kept) < 16
    written = converted("class-folders", source, out).written
    # A file that was finished when the journal was not yet written is written again.
    assert 16 - len(kept) <= written <= 16 - 1
    converted("class-folders", source, tmp_path / "whole")
    assert contents(out) == contents(tmp_path / "whole")


def test_a_file_that_has_changed_is_written_again(source: Path, tmp_path: Path) -> None:
    converted("class-folders", source, tmp_path / "out")
    whole = contents(tmp_path / "out")
    path = min((tmp_path / "out" / "training").glob("part-*"))
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"part-00000\.tfrecord is not what was written"):
        converted("class-folders", source, tmp_path / "out")
    assert converted("class-folders", source, tmp_path / "out").written == 1
    path.unlink()
    assert converted("class-folders", source, tmp_path / "out").written == 1
    assert contents(tmp_path / "out") == whole


def test_another_source_or_layout_is_refused(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    converted("class-folders", source, out)
    other = data_sets.class_folders(tmp_path / "other", splits={"train": 5})
    with pytest.raises(UserError, match=r"a conversion of 80 examples of .*\(10; names"):
        converted("class-folders", other, out)
    with pytest.raises(UserError, match="of the layout class-folders, and not bigearthnet"):
        converted("bigearthnet", data_sets.bigearthnet(tmp_path / "patches", 2), out)
    (out / "conversion.json").write_text("{}")
    with pytest.raises(UserError, match=r"conversion\.json cannot be read"):
        converted("class-folders", source, out)
    (out / "conversion.json").unlink()
    with pytest.raises(UserError, match=r"holds training and no conversion\.json"):
        converted("class-folders", source, out)


def test_a_loop_of_links_is_no_place(source: Path, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(UserError, match="loop is no folder"):
        converted("class-folders", loop, tmp_path / "out")
    with pytest.raises(UserError, match=r"cannot write to .*loop: Too many levels"):
        converted("class-folders", source, loop)


@pytest.mark.parametrize("layout", ["bigearthnet", "tiny-imagenet"])
def test_the_layout_that_fits_is_named(layout: str, tmp_path: Path) -> None:
    source = COPIES[layout](tmp_path / "source")
    with pytest.raises(UserError, match=f"looks like {layout}: convert it as that"):
        converted("class-folders", source, tmp_path / "out")


def test_one_conversion_at_a_time(source: Path, tmp_path: Path) -> None:
    def interfere(done: int, total: int) -> None:
        if done == total > 70:
            with pytest.raises(UserError, match="another conversion writes into"):
                converted("class-folders", source, tmp_path / "out")
            met.append(done)

    @contextmanager
    def bars(doing: str) -> Iterator[Report]:
        yield interfere

    met: list[int] = []
    convert(LAYOUTS["class-folders"], source, tmp_path / "out", bars)
    assert met


def test_files_hold_a_thousand_records_or_a_few(tmp_path: Path) -> None:
    source = data_sets.class_folders(tmp_path / "source", splits={"train": 24, "val": 1})
    listing = LAYOUTS["class-folders"].list_examples(source, lambda *_: None)
    sizes = [(each.split, len(each.examples)) for each in plan(listing)]
    assert sizes == [("training", 8)] * 6 + [("validation", 2)]


@given(st.lists(st.binary(max_size=3000), max_size=4))
def test_what_is_framed_is_read_back(records: list[bytes]) -> None:
    content = b"".join(map(framed, records))
    assert [each[12:-4] for each in read_framed(io.BytesIO(content))] == records
    for end in range(1, min(40, len(content))):
        with pytest.raises(ValueError, match="inside a record"):
            list(read_framed(io.BytesIO(content[:-end] if records else b"x")))
        break


def test_an_example_has_the_fields_that_protocol_buffers_state() -> None:
    made = encoded_example(b"ab", (1, 300, -1))
    image = b"\x0a\x0f" + b"\x0a\x05image" + b"\x12\x06\x0a\x04\x0a\x02ab"
    packed = b"\x01" + b"\xac\x02" + b"\xff" * 9 + b"\x01"
    label = b"\x0a\x1a" + b"\x0a\x05label" + b"\x12\x11\x1a\x0f\x0a\x0d" + packed
    assert made == b"\x0a" + bytes([len(image + label)]) + image + label
