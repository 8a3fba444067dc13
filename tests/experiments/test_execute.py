"""Resuming, retrying and keeping records, with a launcher that starts nothing."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import pytest

from experiments import execute as execute_module
from experiments.execute import MAX_ATTEMPTS, Follower, Result, execute, keep, locked
from experiments.sweep import PlannedRun, Sweep
from ps_allreduce.errors import RecordFormatError, UserError
from ps_allreduce.records import (
    Phases,
    RunFiles,
    RunRecord,
    Status,
    iter_record_paths,
    load_record,
)
from ps_allreduce.steps import load_raw
from ps_allreduce.strategies import Strategy
from tests.fakes import PROVENANCE, FakeLauncher, bad_run, make_experiment, make_record, ok_run

#: Two repetitions of two points: four runs.
SWEEP = Sweep(
    name="compare",
    points=(make_experiment(Strategy.ALLREDUCE, 1), make_experiment(Strategy.ALLREDUCE, 2)),
    seed=1,
)

ONE = Sweep(name="compare", points=SWEEP.points[:1], seed=1)


@dataclass(slots=True)
class Machine:
    """Where runs are made: its fingerprint can change."""

    fingerprint: str = "aaaaaaaa"
    commits: list[str] = field(default_factory=list)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()

    def collect(commit: str) -> object:
        machine.commits.append(commit)
        return replace(PROVENANCE, commit=commit, fingerprint=machine.fingerprint)

    monkeypatch.setattr(execute_module, "collect", collect)
    return machine


def go(launcher: FakeLauncher, sweep_dir: Path, sweep: Sweep = SWEEP) -> Result:
    return execute(sweep, launcher, sweep_dir, "0123456789ab", Follower())


def records(sweep_dir: Path) -> list[RunRecord]:
    return [load_record(path) for path in iter_record_paths(sweep_dir)]


def attempts(sweep_dir: Path) -> list[tuple[int, int, str]]:
    """Repetition, attempt and status of every record of the only point."""
    return [(r.repetition, r.attempt, str(r.status)) for r in records(sweep_dir)]


def test_every_run_leaves_a_record_raw_timings_and_a_log(tmp_path: Path) -> None:
    launcher = FakeLauncher()
    result = go(launcher, tmp_path)
    assert (len(result.made), result.kept, result.interrupted) == (4, 0, False)
    assert sorted(records(tmp_path), key=str) == sorted(result.made, key=str)
    for record in result.made:
        files = RunFiles.of(tmp_path, record.experiment_id, record.repetition, record.attempt)
        assert len(load_raw(files.raw)[0]) == 6
        assert files.log.read_text() == "==> worker:0 <==\nhello\n"
        assert record.sweep == "compare"
        assert record.provenance.commit == "0123456789ab"
        assert record.hosts == ("n9",)


def test_runs_are_made_in_the_order_of_the_sweep(tmp_path: Path) -> None:
    launcher = FakeLauncher()
    go(launcher, tmp_path)
    assert launcher.launched == [run.experiment for run in SWEEP.runs()]


def test_the_definition_lies_beside_the_runs(tmp_path: Path) -> None:
    go(FakeLauncher(), tmp_path)
    definition = json.loads((tmp_path / "sweep.json").read_text())
    assert (definition["name"], definition["seed"]) == ("compare", 1)
    assert len(definition["order"]) == 4
    assert set(definition["points"]) == {point.experiment_id for point in SWEEP.points}


def test_each_input_is_prepared_once(tmp_path: Path) -> None:
    launcher = FakeLauncher()
    go(launcher, tmp_path)
    assert launcher.prepared == [SWEEP.points[0].workload]


def test_nothing_is_done_twice(tmp_path: Path) -> None:
    go(FakeLauncher(), tmp_path)
    again = FakeLauncher()
    result = go(again, tmp_path)
    assert (result.made, result.kept) == ((), 4)
    assert result.useful_fraction == 0.0
    assert (again.launched, again.prepared) == ([], [])


def test_an_interrupted_run_is_recorded_and_ends_the_sweep(tmp_path: Path) -> None:
    launcher = FakeLauncher([ok_run(), bad_run(Status.INTERRUPTED, "interrupted by the operator")])
    result = go(launcher, tmp_path)
    assert result.interrupted
    assert [record.status for record in result.made] == [Status.OK, Status.INTERRUPTED]
    assert len(records(tmp_path)) == 2


def test_an_interrupted_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    go(FakeLauncher([ok_run(), bad_run(Status.INTERRUPTED)]), tmp_path)
    again = FakeLauncher()
    result = go(again, tmp_path)
    assert (len(result.made), result.kept) == (3, 1)
    assert again.launched == [run.experiment for run in SWEEP.runs()][1:]
    statuses = Counter((r.experiment_id, r.repetition, r.status) for r in records(tmp_path))
    assert sum(statuses[key] for key in statuses if key[2] is Status.OK) == 4
    assert max(statuses.values()) == 1


@pytest.mark.parametrize("status", [Status.FAILED, Status.TIMED_OUT])
def test_a_run_that_fails_is_tried_again_after_all_others(tmp_path: Path, status: Status) -> None:
    launcher = FakeLauncher([bad_run(status)])
    go(launcher, tmp_path, ONE)
    assert attempts(tmp_path) == [(0, 0, str(status)), (0, 1, "ok"), (1, 0, "ok")]
    assert len(launcher.launched) == 3


def test_failures_are_tried_again_up_to_a_bound(tmp_path: Path) -> None:
    launcher = FakeLauncher([bad_run(Status.FAILED)] * 20)
    result = go(launcher, tmp_path, ONE)
    assert len(result.made) == 2 * MAX_ATTEMPTS
    again = FakeLauncher()
    assert go(again, tmp_path, ONE).kept == 2
    assert again.launched == []


def test_attempts_of_earlier_sessions_count_towards_the_bound(tmp_path: Path) -> None:
    go(FakeLauncher([bad_run(Status.FAILED), bad_run(Status.INTERRUPTED)]), tmp_path, ONE)
    go(FakeLauncher([bad_run(Status.FAILED)] * 20), tmp_path, ONE)
    tried = Counter((repetition, status) for repetition, _, status in attempts(tmp_path))
    assert tried == {(0, "failed"): 2, (1, "interrupted"): 1, (1, "failed"): 2}


def test_interruptions_have_no_bound(tmp_path: Path) -> None:
    for _ in range(MAX_ATTEMPTS + 2):
        assert go(FakeLauncher([bad_run(Status.INTERRUPTED)]), tmp_path, ONE).interrupted
    assert not go(FakeLauncher(), tmp_path, ONE).interrupted
    assert attempts(tmp_path)[-2:] == [(0, MAX_ATTEMPTS + 2, "ok"), (1, 0, "ok")]


def test_an_invalid_run_is_kept_and_not_repeated(tmp_path: Path) -> None:
    invalid = ok_run(status=Status.INVALID, reason="a step function was traced again")
    go(FakeLauncher([invalid]), tmp_path, ONE)
    assert attempts(tmp_path) == [(0, 0, "invalid"), (1, 0, "ok")]
    assert go(FakeLauncher(), tmp_path, ONE).kept == 2


def test_a_changed_machine_opens_a_new_block_and_overwrites_nothing(
    tmp_path: Path, machine: Machine
) -> None:
    go(FakeLauncher(), tmp_path, ONE)
    before = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*.*")}
    machine.fingerprint = "bbbbbbbb"
    result = go(FakeLauncher(), tmp_path, ONE)
    assert (len(result.made), result.kept) == (2, 0)
    assert attempts(tmp_path) == [(0, 0, "ok"), (0, 1, "ok"), (1, 0, "ok"), (1, 1, "ok")]
    assert {path: path.read_bytes() for path in before} == before
    assert [record.block for record in records(tmp_path)] == ["aaaaaaaa", "bbbbbbbb"] * 2


def test_a_block_of_before_counts_again_when_the_machine_is_back(
    tmp_path: Path, machine: Machine
) -> None:
    go(FakeLauncher(), tmp_path, ONE)
    machine.fingerprint = "bbbbbbbb"
    go(FakeLauncher([ok_run(), bad_run(Status.INTERRUPTED)]), tmp_path, ONE)
    machine.fingerprint = "aaaaaaaa"
    assert go(FakeLauncher(), tmp_path, ONE).kept == 2


def test_a_new_point_is_added_to_what_is_there(tmp_path: Path) -> None:
    go(FakeLauncher(), tmp_path, ONE)
    launcher = FakeLauncher()
    assert go(launcher, tmp_path).kept == 2
    assert launcher.launched == [SWEEP.points[1]] * 2


def test_a_point_that_cannot_run_is_refused_before_anything_runs(tmp_path: Path) -> None:
    def refuses(point: object) -> Exception | None:
        return UserError("too few cores") if point == SWEEP.points[1] else None

    launcher = FakeLauncher(refuses=refuses)
    with pytest.raises(UserError, match="too few cores"):
        go(launcher, tmp_path)
    assert launcher.launched == []
    assert records(tmp_path) == []


def full_disk(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_disk_for_timings(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(path: Path, *_: object) -> NoReturn:
        path.write_bytes(b"half of it")
        full_disk()

    monkeypatch.setattr(execute_module, "save_raw", half)


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


def test_a_sweep_goes_on_when_there_is_space_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        launcher = FakeLauncher(on_launch=lambda _: full_disk_for_timings(full))
        with pytest.raises(UserError):
            go(launcher, tmp_path, ONE)
    assert len(go(FakeLauncher(), tmp_path, ONE).made) == 2
    assert attempts(tmp_path) == [(0, 0, "ok"), (1, 0, "ok")]


def test_a_record_that_is_there_keeps_its_log_and_timings(tmp_path: Path) -> None:
    record = make_record()
    keep(record, ok_run(log="mine"), tmp_path)
    files = RunFiles.of(tmp_path, record.experiment_id, 0, 0)
    before = [path.read_bytes() for path in (files.record, files.raw, files.log)]
    with pytest.raises(UserError, match="never overwritten"):
        keep(record, ok_run(log="another's"), tmp_path)
    assert [path.read_bytes() for path in (files.record, files.raw, files.log)] == before


def test_a_damaged_record_stops_the_sweep_with_its_name(tmp_path: Path) -> None:
    go(FakeLauncher(), tmp_path, ONE)
    path = next(iter(iter_record_paths(tmp_path)))
    path.write_text(path.read_text()[:-100])
    with pytest.raises(RecordFormatError, match=str(path)):
        go(FakeLauncher(), tmp_path, ONE)


def test_the_useful_fraction_is_time_in_warm_up_and_measurement() -> None:
    made = tuple(make_record(phases=Phases(warmup_s=2.0, measured_s=3.0)) for _ in range(2))
    failed = make_record(status=Status.FAILED, reason="x", metrics=None)
    result = Result(made=(*made, failed), kept=0, wall_s=40.0, interrupted=False)
    assert result.useful_fraction == pytest.approx(10 / 40)


def test_a_second_sweep_in_the_folder_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path):
        with pytest.raises(UserError, match=r"another sweep is running in .*another RESULTS"):
            go(FakeLauncher(), tmp_path)
        go(FakeLauncher(), tmp_path / "elsewhere", ONE)
    assert len(go(FakeLauncher(), tmp_path, ONE).made) == 2


def test_the_lock_is_dropped_after_a_failure(tmp_path: Path) -> None:
    def crash(_: object) -> NoReturn:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError):
        go(FakeLauncher(on_launch=crash), tmp_path, ONE)
    assert len(go(FakeLauncher(), tmp_path, ONE).made) == 2


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(UserError, match="cannot write to"):
        go(FakeLauncher(), tmp_path / "results" / "compare")


def test_a_file_system_without_locks_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> NoReturn:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", no_locks)
    assert len(go(FakeLauncher(), tmp_path, ONE).made) == 2


@dataclass(slots=True)
class Listener(Follower):
    """Notes what it is told."""

    heard: list[object] = field(default_factory=list)

    def begin(self, total: int, kept: int) -> None:
        self.heard.append((total, kept))

    def start(self, run: PlannedRun) -> None:
        self.heard.append("start")

    def stage(self, text: str) -> None:
        self.heard.append(text)

    def finish(self, record: RunRecord, log_tail: str) -> None:
        self.heard.append(f"{record.status} {log_tail}".strip())


def test_a_follower_hears_every_run(tmp_path: Path) -> None:
    listener = Listener()
    launcher = FakeLauncher([bad_run(Status.FAILED)])
    execute(ONE, launcher, tmp_path, "0123456789ab", listener)
    assert listener.heard == [
        (2, 0),
        *("start", "measured", "failed"),
        *("start", "measured", "ok"),
        *("start", "measured", "ok"),
    ]
