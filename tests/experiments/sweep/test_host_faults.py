"""A fault of the host, as a full disk, is no fault of the run: nothing is lost or half written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import NoReturn

import pytest

from experiments.sweep import folder
from experiments.sweep.session import ALL_FAULTS
from launchers.run.conclude import LaunchedRun
from ps_allreduce.errors import HostFault, LaunchError, UserError
from ps_allreduce.point.inputs.data import Digits, RecordFiles
from ps_allreduce.point.strategies import Single
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import Status
from ps_allreduce.scratch import scratch_prefix
from tests.experiments.sweeps import ONE, attempts, go, records
from tests.fakes import FakeLauncher, bad_run, make_experiment, ok_run

IMAGES = RecordFiles(path="images", num_files=1, num_bytes=1, checksum="0")

pytestmark = pytest.mark.usefixtures("machine")


def fault(text: str = "the fork server is lost") -> LaunchedRun:
    return LaunchedRun(status=Status.INTERRUPTED, reason=text, host_fault=text)


def test_a_run_is_made_again_at_once_after_a_fault_of_the_host(tmp_path: Path) -> None:
    pauses: list[float] = []
    script = [fault(), fault("another"), ok_run(), fault(), ok_run()]
    result = go(FakeLauncher(script), tmp_path, ONE, pause=pauses.append)
    told = [(0, 0, "interrupted"), (0, 1, "interrupted"), (0, 2, "ok")]
    assert attempts(tmp_path) == [*told, (1, 0, "interrupted"), (1, 1, "ok")]
    assert pauses == [1.0, 5.0, 1.0]
    assert [record.reason for record in records(tmp_path)][:2] == [
        "the fork server is lost",
        "another",
    ]
    assert (len(result.made), result.stop) == (5, None)


def test_input_that_the_suite_made_is_made_again_after_a_fault(tmp_path: Path) -> None:
    made, kept = (make_experiment(Single, workload=Workload(data=d)) for d in (Digits(), IMAGES))
    launcher = FakeLauncher([fault("the input is gone"), ok_run()])
    go(launcher, tmp_path / "made", replace(ONE, points=(made,)))
    assert launcher.prepared == [made.workload] * 2
    launcher = FakeLauncher([fault(), ok_run()])
    go(launcher, tmp_path / "kept", replace(ONE, points=(kept,)))
    assert launcher.prepared == [kept.workload] * 2  # looked at before and after the lock
    assert attempts(tmp_path / "made")[:2] == [(0, 0, "interrupted"), (0, 1, "ok")]


def test_input_that_cannot_be_made_now_is_a_fault_as_well(tmp_path: Path) -> None:
    point = make_experiment(Single, workload=Workload(data=Digits()))

    def refuse(*_: object) -> NoReturn:
        raise HostFault("the fork server is lost")

    with pytest.MonkeyPatch.context() as patch:
        launcher = FakeLauncher(
            [fault()], on_launch=lambda _: patch.setattr(FakeLauncher, "prepare", refuse)
        )
        with pytest.raises(LaunchError, match="the fork server is lost"):
            go(launcher, tmp_path, replace(ONE, points=(point,)))
    assert [status for _, _, status in attempts(tmp_path)] == ["interrupted"] * 3


def test_faults_of_the_host_are_no_tries(tmp_path: Path) -> None:
    failed = bad_run(Status.FAILED)
    go(FakeLauncher([fault(), failed, ok_run(), fault(), fault(), ok_run()]), tmp_path, ONE)
    tried = [status for repetition, _, status in attempts(tmp_path) if repetition == 0]
    assert tried == ["interrupted", "failed", "interrupted", "interrupted", "ok"]


@pytest.mark.parametrize(
    ("script", "launches"),
    [
        pytest.param([fault()] * 9, 3, id="the same"),
        pytest.param(
            [fault(f"/tmp/{scratch_prefix()}{number}/x: no room") for number in range(99)],
            3,
            id="the same in other folders",
        ),
        pytest.param([fault("a"), *[fault("b"), fault("c")] * 9], 6, id="in turn"),
        pytest.param([fault(str(number)) for number in range(99)], ALL_FAULTS, id="ever new"),
    ],
)
def test_a_fault_that_does_not_pass_ends_the_sweep_and_the_same_command_goes_on(
    tmp_path: Path, script: list[LaunchedRun], launches: int
) -> None:
    launcher = FakeLauncher(list(script))
    with pytest.raises(LaunchError, match=r"no run can be made here: .* the same command makes"):
        go(launcher, tmp_path, ONE)
    assert len(launcher.launched) == len(records(tmp_path)) == launches
    assert not (tmp_path / "in_flight.json").exists()
    assert len(go(FakeLauncher(), tmp_path, ONE).made) == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ENOENT])
def test_what_the_system_refuses_to_the_launcher_is_a_fault_of_the_host(
    tmp_path: Path, number: int
) -> None:
    names = count()

    def refuse(_: object) -> NoReturn:
        raise OSError(number, os.strerror(number), f"/scratch/{next(names)}")

    with pytest.raises(LaunchError, match=os.strerror(number)):
        go(FakeLauncher(on_launch=refuse), tmp_path, ONE)
    assert [status for _, _, status in attempts(tmp_path)] == ["interrupted"] * 3


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
