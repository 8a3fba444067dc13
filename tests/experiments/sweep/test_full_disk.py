"""A disk that is full in the middle of a sweep: nothing is half written, nothing is lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from experiments.sweep import folder
from ps_allreduce.errors import UserError
from tests.experiments.sweeps import ONE, attempts, go
from tests.fakes import FakeLauncher

pytestmark = pytest.mark.usefixtures("machine")


def full_disk(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_disk_for_timings(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(path: Path, *_: object) -> NoReturn:
        path.write_bytes(b"half of it")
        full_disk()

    monkeypatch.setattr(folder, "save_raw", half)


def full_disk_for_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_file = os.replace

    def unless_record(source: str, target: Path) -> None:
        if str(target).endswith(".json"):
            full_disk()
        replace_file(source, target)

    monkeypatch.setattr(os, "replace", unless_record)


def full_disk_for_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", full_disk)


@pytest.mark.parametrize(
    "fill", [full_disk_for_timings, full_disk_for_the_record, full_disk_for_the_log]
)
def test_a_disk_that_is_full_leaves_nothing_half_written_and_stops_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fill: Callable[[pytest.MonkeyPatch], None]
) -> None:
    launcher = FakeLauncher(on_launch=lambda _: fill(monkeypatch))
    with pytest.raises(UserError, match=r"cannot write .*: No space left on device\."):
        go(launcher, tmp_path)
    monkeypatch.undo()
    assert len(launcher.launched) == 1
    assert [path for path in (tmp_path / "runs").rglob("*") if path.is_file()] == []


def test_a_disk_that_is_full_before_a_run_stops_the_sweep_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = FakeLauncher()
    go(launcher, tmp_path, ONE)
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(UserError, match=r"cannot write .*: No space left on device\."):
        go(launcher, tmp_path)
    assert len(launcher.launched) == 2


def test_a_sweep_goes_on_when_there_is_space_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        launcher = FakeLauncher(on_launch=lambda _: full_disk_for_timings(full))
        with pytest.raises(UserError):
            go(launcher, tmp_path, ONE)
    assert len(go(FakeLauncher(), tmp_path, ONE).made) == 2
    assert attempts(tmp_path) == [(0, 0, "interrupted"), (0, 1, "ok"), (1, 0, "ok")]
