"""Records are written whole or not at all, never overwritten, and read strictly."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from ps_allreduce.errors import OtherVersionError, RecordFormatError, UserError
from ps_allreduce.point.inputs.data import RecordFiles
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.files import (
    REFUSED,
    RunFiles,
    iter_record_paths,
    load_raw,
    load_record,
    read_run,
    save_record,
    write_atomically,
)
from ps_allreduce.record.records import BEFORE_STATED_NETWORKS, FORMAT_VERSION, Status
from ps_allreduce.record.variables import RunWeights, load_weights, save_weights
from tests.fakes import PROVENANCE, make_experiment, make_host, make_record, make_sample
from tests.goldens import golden

#: A line for each change of a record, and what is said of it: a new one is written there.
DAMAGE = "sentences/records.txt"

FULL = make_record(
    hosts=(make_host("n9", clock_offset_s=-0.25, import_s=3.5), make_host("n10", interface=None)),
    job_id="17",
    samples=(make_sample(cpu_s={"worker:0": 0.5}),),
    weights_digest="abc",
)


def saved(tmp_path: Path, **changes: Any) -> Path:
    """A good record that somebody edited."""
    path = tmp_path / "0-0.json"
    save_record(path, FULL)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return path


def test_a_record_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "down"
    save_record(folder / "0-0.json", FULL)
    assert load_record(folder / "0-0.json") == FULL
    assert (folder / "0-0.json").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in folder.iterdir()] == ["0-0.json"]


def test_a_record_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "0-0.json"
    save_record(path, FULL)
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"0-0.json exists already: records are never overwritten"):
        save_record(path, make_record())
    assert path.read_bytes() == before


def failing(error: BaseException) -> Callable[..., NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise error

    return fail


@pytest.mark.parametrize(
    ("function", "code", "sentence"),
    [
        ("fsync", errno.ENOSPC, "No space left on device"),
        ("replace", errno.EACCES, "Permission denied"),
        ("fsync", errno.EDQUOT, "quota"),
    ],
)
def test_a_disk_that_refuses_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, code: int, sentence: str
) -> None:
    monkeypatch.setattr(os, function, failing(OSError(code, os.strerror(code))))
    with pytest.raises(UserError, match=rf"cannot write .*0-0.json: .*{sentence}"):
        save_record(tmp_path / "0-0.json", FULL)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "raised"),
    [(OSError(errno.ENOSPC, ""), UserError), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_a_write_that_fails_or_is_interrupted_leaves_the_old_content_and_nothing_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    raised: type[BaseException],
) -> None:
    path = tmp_path / "sweep.json"
    write_atomically(path, b"old")
    monkeypatch.setattr(os, "fsync", failing(error))
    with pytest.raises(raised):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [found.name for found in tmp_path.iterdir()] == ["sweep.json"]


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*/runs/x: .*/runs is no folder\."):
        write_atomically(tmp_path / "runs" / "x", b"")


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        (BEFORE_STATED_NETWORKS - 1, r"Start a new RESULTS folder\."),
        (FORMAT_VERSION + 1, "Update the suite"),
    ],
)
def test_a_record_of_another_version_says_what_to_do(
    tmp_path: Path, version: int, advice: str
) -> None:
    path = saved(tmp_path, format_version=version)
    with pytest.raises(
        RecordFormatError,
        match=rf"0-0.json: record of format version {version}, this suite reads .*{advice}",
    ):
        load_record(path)


def test_records_before_networks_were_stated_are_read_but_those_of_emulated_hosts(
    tmp_path: Path,
) -> None:
    path = saved(tmp_path, format_version=BEFORE_STATED_NETWORKS)
    assert load_record(path).experiment == FULL.experiment
    content = json.loads(path.read_text())
    content["experiment"]["network"] = {"num_hosts": 2, "bits_per_s": 1e9}
    path.write_text(json.dumps(content))
    with pytest.raises(OtherVersionError, match="format version 7"):
        load_record(path)


@pytest.mark.parametrize("version", [None, str(FORMAT_VERSION), True, float(FORMAT_VERSION)])
def test_a_version_that_is_no_number_is_told(tmp_path: Path, version: object) -> None:
    path = saved(tmp_path, format_version=version)
    with pytest.raises(RecordFormatError, match=rf"format_version is {version!r}, which is no"):
        load_record(path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("load", [load_record, load_raw])
def test_nobody_waits_for_what_is_no_file(
    tmp_path: Path, make: Callable[[Path], None], load: Callable[[Path], object]
) -> None:
    path = tmp_path / "0-0.json"
    make(path)
    with pytest.raises(RecordFormatError, match="no file but a folder, a pipe or a device"):
        load(path)


def edited(tmp_path: Path, change: str) -> Path:
    """A good record in which somebody took a key out, or put a value in its place."""
    path = tmp_path / "0-0.json"
    save_record(path, FULL)
    content = json.loads(path.read_text())
    keys, _, value = change.removeprefix("without ").partition(" = ")
    *way, last = (int(key) if key.isdecimal() else key for key in keys.split("."))
    part = reduce(getitem, way, content)
    if value:
        part[last] = json.loads(value)
    else:
        del part[last]
    path.write_text(json.dumps(content))
    return path


def test_damage_is_refused_with_its_place(tmp_path: Path) -> None:
    lines = []
    for change in re.findall(r"^(.+) -> ", (golden.FILES / DAMAGE).read_text(), re.MULTILINE):
        path, said = edited(tmp_path, change), "read"
        try:
            load_record(path)
        except RecordFormatError as error:
            said = str(error).replace(f"{tmp_path}/", "")
        path.unlink()
        lines.append(f"{change} -> {said}\n")
    golden.check({DAMAGE: "".join(lines)})


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"{}", b"\xff\xfe", b'"text"'])
def test_what_is_no_record_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "0-0.json").write_bytes(content)
    with pytest.raises(RecordFormatError, match=r"0-0.json: "):
        load_record(tmp_path / "0-0.json")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_record_is_refused(tmp_path: Path, share: float) -> None:
    path = tmp_path / "0-0.json"
    save_record(path, FULL)
    text = path.read_text()
    path.write_text(text[: int(len(text) * share)])
    with pytest.raises(RecordFormatError, match="not a readable record"):
        load_record(path)


def test_a_record_is_read_after_its_images_are_gone(tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    (images / "0.tfrecord").write_bytes(b"1")
    experiment = make_experiment(workload=Workload(data=RecordFiles.found_in(images)))
    save_record(tmp_path / "0-0.json", make_record(experiment=experiment))
    shutil.rmtree(images)
    assert load_record(tmp_path / "0-0.json").experiment == experiment


def test_records_come_in_numeric_order(tmp_path: Path) -> None:
    wanted = [("aaa", 2, 9), ("aaa", 2, 10), ("aaa", 10, 0), ("bbb", 9, 0), ("bbb", 10, 1)]
    for name, repetition, attempt in reversed(wanted):
        write_atomically(RunFiles.of(tmp_path, name, repetition, attempt).record, b"")
    found = [path.relative_to(tmp_path / "runs") for path in iter_record_paths(tmp_path)]
    assert [str(path) for path in found] == [f"{e}/{r}-{a}.json" for e, r, a in wanted]


def test_a_new_folder_and_half_written_neighbours_hold_no_record(tmp_path: Path) -> None:
    assert list(iter_record_paths(tmp_path)) == []
    files = RunFiles.of(tmp_path, "aaa", 0, 0)
    write_atomically(files.log, b"")
    (files.record.parent / ".0-0.json.k2j3").write_text("{")
    assert list(iter_record_paths(tmp_path)) == []


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("0-0.json", {}, ""),
        ("../of-another-point/0-0.json", {}, "0-0.json: the record is of run"),
        ("0-1.json", {}, r"0-1.json: the record is of run"),
        ("copy.json", {}, r"copy.json: the record is of run"),
        ("0-0.json", {"finished_at": "noon"}, "finished_at is not a time"),
    ],
)
def test_what_is_no_record_of_its_place_is_refused_with_the_reason(
    tmp_path: Path, name: str, changes: dict[str, Any], reason: str
) -> None:
    folder = tmp_path / "runs" / FULL.experiment_id
    folder.mkdir(parents=True)
    (folder.parent / "of-another-point").mkdir()
    saved(folder, **changes).rename(folder / name)
    (path,) = iter_record_paths(tmp_path)
    read = read_run(path)
    assert isinstance(read, RecordFormatError) is bool(reason)
    assert re.search(reason, str(read))


def test_what_was_set_aside_is_no_record(tmp_path: Path) -> None:
    write_atomically(tmp_path / "runs" / REFUSED / "0-0.json", b"")
    assert list(iter_record_paths(tmp_path)) == []


def test_the_files_of_a_run_stand_side_by_side(tmp_path: Path) -> None:
    files = RunFiles.of(tmp_path, "0123456789ab", 2, 1)
    folder = tmp_path / "runs" / "0123456789ab"
    assert (files.record, files.raw, files.log) == (
        folder / "2-1.json",
        folder / "2-1.npz",
        folder / "2-1.log",
    )


def test_runs_are_pooled_by_fingerprint_only() -> None:
    one = make_record()
    other = make_record(provenance=replace(PROVENANCE, fingerprint="12345678"))
    assert one.run_id == other.run_id == f"{one.experiment_id}/0-0"
    assert (one.block, other.block) == ("0badcafe", "12345678")


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_a_run_that_is_not_ok_says_why(status: Status) -> None:
    with pytest.raises(ValueError, match="with reason ''"):
        make_record(status=status)
    assert make_record(status=status, reason="why", metrics=None).metrics is None


def test_weights_come_back_in_their_order(tmp_path: Path) -> None:
    final = [np.full((2, number % 3), number, np.float32) for number in range(12)]
    path = tmp_path / "weights.npz"
    save_weights(path, RunWeights(initial=[-each for each in final], final=final))
    loaded = load_weights(path)
    for values, wanted in ((loaded.final, final), (loaded.initial, [-each for each in final])):
        assert len(values) == 12
        assert all(np.array_equal(a, b) for a, b in zip(values, wanted, strict=True))
