"""The folder of a sweep: one sweep at a time, no record overwritten, no run lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from experiments.sweep.folder import (
    NOTE,
    NOTE_GRACE_S,
    InFlight,
    check_writable,
    keep,
    locked,
    noted,
    recover,
)
from ps_allreduce.errors import UserError
from ps_allreduce.record.files import RunFiles, load_record, save_record
from ps_allreduce.record.provenance import running_system
from ps_allreduce.record.records import Status
from tests.experiments.sweeps import (
    ONE,
    PROFILE,
    FakeScheduler,
    Killed,
    Listener,
    attempts,
    go,
    kill,
    leave,
    records,
)
from tests.fakes import (
    METRICS,
    PROVENANCE,
    FakeLauncher,
    fitted,
    make_experiment,
    make_record,
    ok_run,
)

pytestmark = pytest.mark.usefixtures("machine")

NO_PROCESS = 2**22 + 1

EXPERIMENT = make_experiment()


#: A run that a process of this host was making when it was killed.
KILLED = InFlight(
    sweep="compare",
    profile="quick",
    deadline_s=PROFILE.deadline_s,
    experiment=EXPERIMENT,
    repetition=2,
    attempt=1,
    started_at="2026-01-01T00:00:00.000+00:00",
    provenance=PROVENANCE,
    host=socket.gethostname(),
    pid=NO_PROCESS,
)


def leave_note(sweep_dir: Path, age_s: float = 0.0, **changes: Any) -> Path:
    """Leave a note as whoever is killed leaves it."""
    with pytest.raises(Killed), noted(sweep_dir, replace(KILLED, **changes)):
        raise Killed
    moment = time.time() - age_s
    os.utime(sweep_dir / NOTE, (moment, moment))
    return sweep_dir / NOTE


def no_scheduler(_: str) -> None:
    return None


def test_a_note_lies_in_the_folder_until_the_run_is_recorded(tmp_path: Path) -> None:
    with noted(tmp_path, KILLED):
        assert json.loads((tmp_path / NOTE).read_text())["pid"] == NO_PROCESS
    assert not (tmp_path / NOTE).exists()
    assert recover(tmp_path, no_scheduler) is None
    assert leave_note(tmp_path).exists()


def test_a_run_whose_maker_is_dead_becomes_a_record(tmp_path: Path) -> None:
    path = leave_note(tmp_path)
    record = recover(tmp_path, no_scheduler)
    assert record is not None
    assert (record.status, record.reason) == (Status.INTERRUPTED, "the suite ended during this run")
    assert (record.repetition, record.attempt, record.experiment) == (2, 1, EXPERIMENT)
    assert record.profile == "quick"
    assert (record.started_at, record.block) == ("2026-01-01T00:00:00.000+00:00", "0badcafe")
    assert load_record(files_of(tmp_path).record) == record
    assert not path.exists()
    assert recover(tmp_path, no_scheduler) is None


def test_a_run_whose_figures_contradict_each_other_is_invalid(tmp_path: Path) -> None:
    metrics = fitted(METRICS, EXPERIMENT)
    assert metrics is not None
    good = KILLED.record(ok_run(metrics=metrics))
    assert good.status is Status.OK
    bad = KILLED.record(ok_run(metrics=replace(metrics, examples_per_sec=1e9)))
    assert bad.status is Status.INVALID
    assert "metrics.examples_per_sec is 1e+09" in bad.reason
    path = files_of(tmp_path).record
    save_record(path, bad)
    assert load_record(path) == bad


def files_of(sweep_dir: Path) -> RunFiles:
    return RunFiles.of(sweep_dir, EXPERIMENT.experiment_id, 2, 1)


def test_the_scheduler_tells_why(tmp_path: Path) -> None:
    leave_note(tmp_path, job_id="17")
    scheduler = FakeScheduler(ending=lambda job_id: f"job {job_id} reached its time limit")
    record = recover(tmp_path, lambda _: scheduler)
    assert record is not None
    assert record.reason == "the suite ended during this run: job 17 reached its time limit"
    assert record.job_id == "17"


@pytest.mark.parametrize("pid", [1, os.getppid()])
def test_a_run_whose_maker_lives_is_left_to_it(tmp_path: Path, pid: int) -> None:
    path = leave_note(tmp_path, pid=pid, job_id="17", age_s=1e6)
    with pytest.raises(
        UserError, match=rf"process {pid} on .* seems to be making a run in"
    ) as told:
        recover(tmp_path, lambda _: FakeScheduler())
    assert f"wait for it, choose another RESULTS, or remove {path}." in str(told.value)
    assert path.exists()
    assert records(tmp_path) == []


def test_a_note_of_this_very_process_is_an_old_one(tmp_path: Path) -> None:
    leave_note(tmp_path, pid=os.getpid())
    assert recover(tmp_path, no_scheduler) is not None


@pytest.mark.parametrize(
    ("job_id", "job_is_over", "age_s", "over"),
    [
        pytest.param("17", True, 0.0, True, id="the job has ended"),
        pytest.param("17", False, 0.0, False, id="the job goes on"),
        pytest.param("17", False, 1e6, True, id="no run takes so long"),
        pytest.param(None, True, 0.0, False, id="not known for long"),
        pytest.param(None, True, PROFILE.deadline_s + NOTE_GRACE_S - 30, False, id="in time"),
        pytest.param(None, True, PROFILE.deadline_s + NOTE_GRACE_S + 30, True, id="too long"),
    ],
)
def test_a_maker_on_another_host_is_given_the_time_of_its_run(
    tmp_path: Path, job_id: str | None, job_is_over: bool, age_s: float, over: bool
) -> None:
    leave_note(tmp_path, age_s, host="another-host", pid=os.getppid(), job_id=job_id)
    scheduler = FakeScheduler(states={} if job_is_over else {"17": ["running"]})
    if over:
        assert recover(tmp_path, lambda _: scheduler) is not None
    else:
        with pytest.raises(UserError, match="on another-host seems to be making a run"):
            recover(tmp_path, lambda _: scheduler)


def test_a_run_that_was_recorded_after_all_stays_as_it_is(tmp_path: Path) -> None:
    kept = leave(tmp_path, experiment=EXPERIMENT, repetition=2, attempt=1)
    path = leave_note(tmp_path)
    assert recover(tmp_path, no_scheduler) is None  # nothing is told of it, either
    assert load_record(files_of(tmp_path).record) == kept
    assert not path.exists()


def other_version(text: str) -> str:
    content = json.loads(text)
    content["experiment"]["colour"] = "red"
    return json.dumps(content)


def no_longer_valid(text: str) -> str:
    content = json.loads(text)
    content["experiment"]["workload"]["model"]["name"] = "LeNet"
    return json.dumps(content)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda text: "", id="empty"),
        pytest.param(lambda text: text[:100], id="cut short"),
        pytest.param(lambda text: "[]", id="something else"),
        pytest.param(other_version, id="another version"),
        pytest.param(no_longer_valid, id="a point that makes no sense now"),
    ],
)
def test_a_note_that_cannot_be_read_is_nothing_to_go_by(
    tmp_path: Path, damage: Callable[[str], str]
) -> None:
    path = leave_note(tmp_path)
    path.write_text(damage(path.read_text()))
    assert recover(tmp_path, no_scheduler) is None
    assert not path.exists()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_in_the_place_of_a_note_is_renamed(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / NOTE)
    (tmp_path / f"{NOTE}.refused-1").touch()
    assert {record.status for record in go(FakeLauncher(), tmp_path, ONE).made} == {Status.OK}
    assert not (tmp_path / NOTE).exists()
    assert (tmp_path / f"{NOTE}.refused-2").exists()


@pytest.mark.parametrize("replace_it", [Path.touch, lambda _: None])
def test_a_folder_that_is_replaced_while_a_run_is_made_is_one_sentence(
    tmp_path: Path, replace_it: Callable[[Path], None]
) -> None:
    sweep_dir = tmp_path / "results"

    def remove(_: object) -> None:
        shutil.rmtree(sweep_dir)
        replace_it(sweep_dir)

    launcher = FakeLauncher(on_launch=remove)
    with pytest.raises(UserError, match=r"cannot write|was removed or replaced while"):
        go(launcher, sweep_dir, ONE)
    assert len(launcher.launched) == 1


def test_a_sweep_that_was_killed_records_its_run_and_goes_on(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        go(FakeLauncher(on_launch=kill, job_id="17"), tmp_path, ONE)
    assert attempts(tmp_path) == []
    listener = Listener()
    go(FakeLauncher(), tmp_path, ONE, listener)  # the lock was dropped
    assert attempts(tmp_path) == [(0, 0, "interrupted"), (0, 1, "ok"), (1, 0, "ok")]
    assert listener.heard[0] == f"recovered {ONE.points[0].experiment_id}/0-0"
    assert records(tmp_path)[0].job_id == "17"
    assert not (tmp_path / NOTE).exists()


def no_locks(*_: object) -> NoReturn:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def test_without_locks_the_note_alone_keeps_a_second_sweep_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_note(tmp_path, pid=1)
    launcher = FakeLauncher()
    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", no_locks)
        with pytest.raises(UserError, match="seems to be making a run"):
            go(launcher, tmp_path, ONE)
        assert launcher.launched == []
        assert len(go(launcher, tmp_path / "elsewhere", ONE).made) == 2
    # With the lock, no other process here makes the run, whoever has the number by now.
    go(launcher, tmp_path, ONE)
    assert (2, 1, "interrupted") in attempts(tmp_path)
    leave_note(tmp_path, host="a-container", machine=running_system(), attempt=2)
    go(launcher, tmp_path, ONE)
    assert (2, 2, "interrupted") in attempts(tmp_path)


def test_a_record_that_is_there_keeps_its_log_and_timings(tmp_path: Path) -> None:
    record = make_record()
    keep(record, ok_run(log="the first one's"), tmp_path)
    files = RunFiles.of(tmp_path, record.experiment_id, 0, 0)
    before = [path.read_bytes() for path in (files.record, files.raw, files.log)]
    with pytest.raises(UserError, match="never overwritten"):
        keep(record, ok_run(log="another's"), tmp_path)
    assert [path.read_bytes() for path in (files.record, files.raw, files.log)] == before


def test_a_second_command_in_the_folder_is_refused_whatever_the_first_one_is(
    tmp_path: Path,
) -> None:
    with locked(tmp_path):
        with pytest.raises(UserError) as refused:
            go(FakeLauncher(), tmp_path)
        assert str(refused.value) == (  # a run-one makes runs as a sweep does
            f"another command is making runs in {tmp_path}; wait for it or choose another RESULTS."
        )
        go(FakeLauncher(), tmp_path / "elsewhere", ONE)
    assert len(go(FakeLauncher(), tmp_path, ONE).made) == 2


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(UserError, match=r"cannot write to .*\. Choose another RESULTS\.$"):
        go(FakeLauncher(), tmp_path / "results" / "compare")


def test_a_folder_of_a_file_system_that_refuses_is_told() -> None:
    # The superuser may write anywhere, but for what the kernel makes up.
    with (
        pytest.raises(UserError, match=r"cannot write to .*\. Choose another RESULTS\.$"),
        locked(Path("/proc/nothing/compare")),
    ):
        pass


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
    assert str(caught.value).endswith(f"{told} Choose another RESULTS.")


def test_nothing_is_written_to_find_out(place: Path) -> None:
    check_writable(place / "new" / "compare")
    assert not (place / "new").exists()


def test_a_folder_of_somebody_else_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != place)
    with pytest.raises(UserError, match=f"{place} cannot be written"):
        check_writable(place / "new" / "compare")
