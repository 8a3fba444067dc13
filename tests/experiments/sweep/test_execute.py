"""Resuming, retrying and keeping records, with a launcher that starts nothing."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from experiments.sweep import history
from experiments.sweep.execute import SessionResult, Stop
from experiments.sweep.history import MAX_ATTEMPTS, History
from experiments.sweep.sweep import LAUNCH_ALLOWANCE_S, longest_run_s
from ps_allreduce.errors import RecordFormatError, UserError
from ps_allreduce.point.inputs.data import RecordFiles
from ps_allreduce.point.strategies import Single
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.files import RunFiles, iter_record_paths, load_raw, read_run
from ps_allreduce.record.records import Phases, RunRecord, Status
from tests.experiments.conftest import Machine
from tests.experiments.sweeps import ONE, PROFILE, SWEEP, Listener, attempts, go, records
from tests.fakes import FakeLauncher, bad_run, make_experiment, make_facts, make_record, ok_run

pytestmark = pytest.mark.usefixtures("machine")


def test_every_run_leaves_a_record_raw_timings_and_a_log(tmp_path: Path) -> None:
    launcher = FakeLauncher()
    result = go(launcher, tmp_path)
    assert (len(result.made), result.kept, result.stop) == (4, 0, None)
    assert sorted(records(tmp_path), key=str) == sorted(result.made, key=str)
    for record in result.made:
        files = RunFiles.of(tmp_path, record.experiment_id, record.repetition, record.attempt)
        assert len(load_raw(files.raw)[0]) == 10
        assert files.log.read_text() == "==> worker:0 <==\nhello\n"
        assert (record.sweep, record.profile) == ("compare", "quick")
        assert record.provenance.commit == "0123456789ab"
        assert [host.name for host in record.hosts] == ["n9"]


def test_a_sweep_is_made_in_its_order_and_told_beside_its_runs(tmp_path: Path) -> None:
    launcher = FakeLauncher()
    go(launcher, tmp_path)
    assert launcher.launched == [run.experiment for run in SWEEP.runs()]
    assert launcher.prepared == [SWEEP.points[0].workload]
    definition = json.loads((tmp_path / "sweep.json").read_text())
    assert (definition["name"], definition["seed"]) == ("compare", 1)
    assert len(definition["order"]) == 4
    assert set(definition["points"]) == {point.experiment_id for point in SWEEP.points}


def test_nothing_is_done_twice(tmp_path: Path) -> None:
    go(FakeLauncher(), tmp_path)
    again = FakeLauncher()
    result = go(again, tmp_path)
    assert (result.made, result.kept) == ((), 4)
    assert result.useful_fraction == 0.0
    assert (again.launched, again.prepared) == ([], [])


def test_a_sweep_that_goes_on_reads_every_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(FakeLauncher(), tmp_path)
    read: list[Path] = []

    def note(path: Path) -> RunRecord | RecordFormatError:
        read.append(path)
        return read_run(path)

    monkeypatch.setattr(history, "read_run", note)
    go(FakeLauncher(), tmp_path)
    assert read == list(iter_record_paths(tmp_path))


def test_an_interrupted_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    launcher = FakeLauncher([ok_run(), bad_run(Status.INTERRUPTED, "interrupted by the operator")])
    interrupted = go(launcher, tmp_path)
    assert interrupted.stop is Stop.INTERRUPTED
    assert [record.status for record in interrupted.made] == [Status.OK, Status.INTERRUPTED]
    assert len(records(tmp_path)) == 2
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
    machine.fingerprint = "aaaaaaaa"
    assert go(FakeLauncher(), tmp_path, ONE).kept == 2


def test_another_congestion_control_of_this_machine_opens_a_new_block(tmp_path: Path) -> None:
    for name, kept in (("cubic", 0), ("bbr", 0), ("cubic", 2)):
        assert go(FakeLauncher(congestion=name), tmp_path, ONE).kept == kept
    assert len({record.block for record in records(tmp_path)}) == 2


def test_other_hosts_of_the_same_kind_go_on_and_another_kind_begins_anew(tmp_path: Path) -> None:
    go(FakeLauncher(facts=(make_facts("n1"), make_facts("n2"))), tmp_path, ONE)
    assert go(FakeLauncher(facts=(make_facts("n7"),)), tmp_path, ONE).kept == 2
    other = FakeLauncher(facts=(make_facts("n1", cpu_model="Another"),))
    assert go(other, tmp_path, ONE).kept == 0
    assert len({record.block for record in records(tmp_path)}) == 2


def test_a_new_point_is_added_to_what_is_there(tmp_path: Path) -> None:
    go(FakeLauncher(), tmp_path, ONE)
    launcher = FakeLauncher()
    assert go(launcher, tmp_path).kept == 2
    assert launcher.launched == [SWEEP.points[1]] * 2


def test_more_repetitions_or_another_deadline_continue_a_sweep(tmp_path: Path) -> None:
    three, ten = (replace(ONE, profile=replace(PROFILE, repetitions=n)) for n in (3, 10))
    go(FakeLauncher(), tmp_path, three)
    before = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*.*")}
    result = go(FakeLauncher(), tmp_path, ten)
    assert (len(result.made), result.kept) == (7, 3)
    assert attempts(tmp_path) == [(repetition, 0, "ok") for repetition in range(10)]
    assert {path: path.read_bytes() for path in before} == before
    patient = replace(three, profile=replace(PROFILE, repetitions=3, deadline_s=600.0))
    assert go(FakeLauncher(), tmp_path, patient).kept == 3


def test_a_point_that_cannot_run_is_refused_before_anything_runs(tmp_path: Path) -> None:
    def refuses(point: object) -> Exception | None:
        return UserError("too few cores") if point == SWEEP.points[1] else None

    launcher = FakeLauncher(refuses=refuses)
    with pytest.raises(UserError, match="too few cores"):
        go(launcher, tmp_path)
    assert launcher.launched == []
    assert records(tmp_path) == []


def test_what_is_no_record_is_set_aside_with_the_reason_and_made_again(tmp_path: Path) -> None:
    go(FakeLauncher(), tmp_path, ONE)
    damaged, renamed = iter_record_paths(tmp_path)
    damaged.write_text(damaged.read_text()[:-100])
    renamed.rename(renamed.with_name("7-0.json"))
    listener = Listener()
    assert go(FakeLauncher(), tmp_path, ONE, listener).standing.is_complete
    assert attempts(tmp_path) == [(0, 0, "ok"), (1, 0, "ok")]
    aside = tmp_path / "runs" / "refused"
    kept = ("0-0.json", "0-0.log", "0-0.npz", "0-0.reason.txt", "7-0.json", "7-0.reason.txt")
    assert tuple(sorted(path.name for path in aside.iterdir())) == kept
    assert "the record is of run" in (aside / "7-0.reason.txt").read_text()
    assert "not a readable record" in str(listener.heard[0])
    damaged.write_text("{")
    go(FakeLauncher(), tmp_path, ONE)
    assert (aside / "0-0.2.json").read_text() == "{"
    assert go(FakeLauncher(), tmp_path, ONE).kept == 2


def test_files_with_names_in_any_bytes_and_loops_of_links_are_set_aside(tmp_path: Path) -> None:
    go(FakeLauncher(), tmp_path, ONE)
    first, second = iter_record_paths(tmp_path)
    first.rename(first.with_name(os.fsdecode(b"\xff.json")))
    second.unlink()
    second.symlink_to(second.name)
    assert go(FakeLauncher(), tmp_path, ONE).standing.is_complete
    reasons = [path.read_text() for path in (tmp_path / "runs" / "refused").glob("*.reason.txt")]
    assert len(reasons) == 2
    assert any("\\udcff.json" in reason for reason in reasons)


def test_a_run_that_turns_out_to_be_impossible_leaves_no_note(tmp_path: Path) -> None:
    def refuse(_: object) -> NoReturn:
        raise UserError("no such interface")

    with pytest.raises(UserError, match="no such interface"):
        go(FakeLauncher(on_launch=refuse), tmp_path, ONE)
    assert not (tmp_path / "in_flight.json").exists()
    assert len(go(FakeLauncher(), tmp_path, ONE).made) == 2


def test_damaged_input_is_told_before_anything_is_written(tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    (images / "0.tfrecord").write_bytes(b"1")
    point = make_experiment(Single, workload=Workload(data=RecordFiles.found_in(images)))
    launcher = FakeLauncher()
    go(launcher, tmp_path / "good", replace(ONE, points=(point,)))
    assert launcher.prepared[0] == point.workload

    def refuse(*_: object) -> NoReturn:
        raise UserError("0.tfrecord is truncated")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeLauncher, "prepare", refuse)
        with pytest.raises(UserError, match="truncated"):
            go(FakeLauncher(), tmp_path / "new", replace(ONE, points=(point,)))
    assert not (tmp_path / "new").exists()


def test_runs_that_failed_for_good_are_given_their_tries_anew(tmp_path: Path) -> None:
    failed = [bad_run(Status.FAILED)] * 2 * MAX_ATTEMPTS
    assert go(FakeLauncher(failed), tmp_path, ONE).standing.failed == ONE.points
    again = go(FakeLauncher(), tmp_path, ONE)
    assert (again.made, again.standing.failed) == ((), ONE.points)
    again = go(FakeLauncher([bad_run(Status.FAILED)]), tmp_path, ONE, retry_failed=True)
    assert [record.status for record in again.made] == [Status.FAILED, Status.OK, Status.OK]
    assert again.standing.is_complete


def seconds_left(*looks: float | None) -> FakeLauncher:
    """A launcher in a job that comes to its limit."""
    clock = [look for look in looks for _ in ("before a run", "for its limit")]
    return FakeLauncher(time_left=lambda: clock.pop(0))


def test_a_run_that_could_not_finish_in_time_is_not_begun(tmp_path: Path) -> None:
    enough = longest_run_s(PROFILE)
    launcher = seconds_left(enough, enough - 1)
    result = go(launcher, tmp_path)
    assert (len(result.made), result.stop) == (1, Stop.NO_TIME)
    assert len(launcher.launched) == 1
    assert go(FakeLauncher(), tmp_path).kept == 1


def test_a_second_attempt_is_not_begun_without_time_either(tmp_path: Path) -> None:
    launcher = seconds_left(9999, None, 10)
    launcher.script = [bad_run(Status.FAILED)]
    assert go(launcher, tmp_path, ONE).stop is Stop.NO_TIME
    assert attempts(tmp_path) == [(0, 0, "failed"), (1, 0, "ok")]


@pytest.mark.parametrize(
    ("time_left_s", "limit_s"),
    [(None, PROFILE.limit_s), (1e6, PROFILE.limit_s), (150.0, 150.0 - LAUNCH_ALLOWANCE_S)],
)
def test_a_run_with_long_steps_is_given_no_more_time_than_there_is(
    tmp_path: Path, time_left_s: float | None, limit_s: float
) -> None:
    notes: list[float] = []
    note = tmp_path / "in_flight.json"
    launcher = FakeLauncher(
        time_left=lambda: time_left_s,
        on_launch=lambda _: notes.append(json.loads(note.read_text())["deadline_s"]),
    )
    go(launcher, tmp_path, ONE)
    assert notes == [limit_s, limit_s]


def test_the_useful_fraction_is_time_in_warm_up_and_measurement() -> None:
    made = tuple(make_record(phases=Phases(warmup_s=2.0, measured_s=3.0)) for _ in range(2))
    failed = make_record(status=Status.FAILED, reason="x", metrics=None)
    standing = History().standing(())
    result = SessionResult(made=(*made, failed), kept=0, wall_s=40.0, stop=None, standing=standing)
    assert result.useful_fraction == pytest.approx(10 / 40)


def test_a_listener_hears_every_run(tmp_path: Path) -> None:
    listener = Listener()
    go(FakeLauncher([bad_run(Status.FAILED)]), tmp_path, ONE, listener)
    assert listener.heard == [
        (2, 0),
        *("start", "measured", "0-0 failed"),
        *("start", "measured", "1-0 ok"),
        *("start", "measured", "0-1 ok"),
    ]
