"""What stands in the way of a folder is told before anything is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from experiments.sweep.folder import check_writable
from ps_allreduce.errors import UserError


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that holds what can stand in the way."""
    (tmp_path / "file").write_text("")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "runs").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dead").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("file/compare", "file is no folder."),
        ("file/deep/compare", "file is no folder."),
        ("pipe/compare", "pipe is no folder."),
        ("sweep", "runs is no folder."),
        ("loop/compare", "Too many levels of symbolic links."),
        ("dead/compare", "dead is a link that leads nowhere."),
        ("x" * 300, "File name too long."),
        ("/".join(["x" * 200] * 30), "File name too long."),
    ],
)
def test_what_a_sweep_could_not_write_is_told(place: Path, name: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        check_writable(place / name)
    assert str(caught.value).startswith("cannot write to ")
    assert str(caught.value).endswith(told)


def test_nothing_is_written_to_find_out(place: Path) -> None:
    check_writable(place / "new" / "compare")
    assert not (place / "new").exists()


def test_a_folder_of_somebody_else_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != place)
    with pytest.raises(UserError, match=f"{place} cannot be written"):
        check_writable(place / "new" / "compare")
