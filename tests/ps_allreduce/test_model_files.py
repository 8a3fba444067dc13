"""Copies of a user's files are there with all of them or not at all, and named by their content."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce import model_files
from ps_allreduce.errors import UserError
from ps_allreduce.model_files import (
    MANIFEST,
    copy_files,
    digest_of,
    give_name,
    is_inside,
    is_whole,
    models_in,
    names_in,
)

FILES = {"mine.py": b"import helper", "helper/__init__.py": b"", "helper/a.py": b"\0" * 3_000_000}


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "root", FILES)


def copies_of(root: Path, tmp_path: Path, names: list[str] | None = None) -> Path:
    digest = copy_files(root, list(FILES) if names is None else names, tmp_path / "data")
    return tmp_path / "data" / "models" / digest


def test_copies_are_what_was_listed_and_nothing_else(root: Path, tmp_path: Path) -> None:
    (root / "unused.py").write_text("x")
    folder = copies_of(root, tmp_path)
    assert {n: (folder / n).read_bytes() for n in names_in(folder)} == FILES
    assert not (folder / "unused.py").exists()
    assert is_whole(folder, folder.name)
    assert os.listdir(models_in(tmp_path / "data")) == [folder.name]


def test_the_order_of_names_and_the_place_of_the_files_do_not_matter(
    root: Path, tmp_path: Path
) -> None:
    other = write(tmp_path / "elsewhere", FILES)
    assert copies_of(root, tmp_path) == copies_of(other, tmp_path, [*reversed(FILES)])


@given(
    st.dictionaries(st.text("ab", min_size=1, max_size=3), st.binary(max_size=4), max_size=4),
    st.dictionaries(st.text("ab", min_size=1, max_size=3), st.binary(max_size=4), max_size=4),
)
def test_other_names_or_contents_have_another_digest(
    tmp_path_factory: pytest.TempPathFactory, one: dict[str, bytes], two: dict[str, bytes]
) -> None:
    folders = [write(tmp_path_factory.mktemp("files"), each) for each in (one, two)]
    digests = [digest_of(f, list(each)) for f, each in zip(folders, (one, two), strict=True)]
    assert (digests[0] == digests[1]) == (one == two)


@pytest.mark.parametrize("name", ["mine.py", "a/b.py", "a b.py", "..x/...py", "-", "\u00e4.py"])
def test_a_name_below_a_folder_is_allowed(name: str) -> None:
    assert is_inside(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "/a", "//a", "../a", "a/../b", "a/..", "a//b", "./a", "a/", "a/.", "a\0b"],
)
def test_a_name_that_leads_elsewhere_is_refused(root: Path, tmp_path: Path, name: str) -> None:
    assert not is_inside(name)
    with pytest.raises(UserError, match="does not lie below"):
        copies_of(root, tmp_path, [name])
    assert not (tmp_path / "data").exists()


def test_copies_are_made_once_and_files_beside_them_stay(root: Path, tmp_path: Path) -> None:
    folder = copies_of(root, tmp_path)
    write(folder, {"__pycache__/mine.pyc": b"compiled", "downloaded": b"by the user's code"})
    assert copies_of(root, tmp_path) == folder
    assert (folder / "downloaded").exists()


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_damaged_copies_are_made_anew(root: Path, tmp_path: Path, name: str) -> None:
    folder = copies_of(root, tmp_path)
    for damage in (lambda path: path.write_bytes(b"other"), Path.unlink):
        damage(folder / name)
        assert not is_whole(folder, folder.name)
        assert copies_of(root, tmp_path) == folder
        assert is_whole(folder, folder.name)
    assert os.listdir(folder.parent) == [folder.name]


def test_a_file_in_the_place_of_the_folder_gives_way(root: Path, tmp_path: Path) -> None:
    folder = copies_of(root, tmp_path)
    folder.rename(tmp_path / "moved")
    folder.write_text("not a folder")
    assert is_whole(copies_of(root, tmp_path), folder.name)


def test_a_changed_file_makes_other_copies(root: Path, tmp_path: Path) -> None:
    before = copies_of(root, tmp_path)
    (root / "mine.py").write_bytes(b"import helpex")
    after = copies_of(root, tmp_path)
    assert before != after
    assert is_whole(before, before.name)
    assert is_whole(after, after.name)


def test_a_file_that_changes_meanwhile_has_the_digest_of_its_copy(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces_of = model_files.pieces_of

    def change(path: Path) -> Iterator[bytes]:
        yield from pieces_of(path)
        if path == root / "mine.py":
            path.write_bytes(b"changed after it was read")

    monkeypatch.setattr(model_files, "pieces_of", change)
    folder = copies_of(root, tmp_path)
    assert (folder / "mine.py").read_bytes() == FILES["mine.py"]
    assert is_whole(folder, folder.name)


def test_an_interrupted_copy_leaves_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(path: Path) -> Iterator[bytes]:
        yield b"a piece"
        raise KeyboardInterrupt

    monkeypatch.setattr(model_files, "pieces_of", interrupt)
    with pytest.raises(KeyboardInterrupt):
        copies_of(root, tmp_path)
    assert os.listdir(models_in(tmp_path / "data")) == []


def test_whoever_is_first_to_give_the_name_wins(root: Path, tmp_path: Path) -> None:
    folder = copies_of(root, tmp_path)
    second = write(tmp_path / "data" / "second", {"mine.py": b"late"})
    give_name(second, folder)
    assert is_whole(folder, folder.name)
    assert second.exists()


def test_too_much_to_send_is_refused(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "MOST_BYTES", 2_000_000)
    with pytest.raises(UserError, match=r"more than 0.002 GB together, the last one helper/a\.py"):
        copies_of(root, tmp_path)
    assert os.listdir(models_in(tmp_path / "data")) == []


def test_a_pipe_or_nothing_in_the_place_of_a_file_is_refused(root: Path, tmp_path: Path) -> None:
    os.mkfifo(root / "pipe.py")
    with pytest.raises(UserError, match=r"pipe\.py cannot be read: .* is no file but a folder"):
        copies_of(root, tmp_path, ["pipe.py"])
    with pytest.raises(UserError, match=r"gone\.py cannot be read: No such file"):
        copies_of(root, tmp_path, ["gone.py"])


def test_a_place_that_cannot_be_written_is_one_sentence(root: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    with pytest.raises(UserError, match=r"cannot copy the model to .*/models: Not a directory"):
        copies_of(root, tmp_path)
