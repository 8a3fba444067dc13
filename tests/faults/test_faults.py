"""Plans follow from their seed, and what is promised is noticed when it does not hold."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from ps_allreduce.record.files import save_record
from ps_allreduce.record.records import RunRecord, Status
from tests.fakes import make_experiment, make_record
from tests.faults.calls import CallEnd, Stages
from tests.faults.checks import (
    allowed_statuses,
    check_call,
    check_launches,
    check_left_overs,
    check_reason,
    check_runs,
    check_times,
    of_other_versions,
    read_records,
    traceback_in,
)
from tests.faults.damage import damage
from tests.faults.ground import SERVER_WORDS, Ground, end_all
from tests.faults.ledger import Ledger
from tests.faults.plan import BETWEEN, Fault, Moment, Stage, Target, Verb
from tests.faults.strike import GUARD, SERVER, TASK, Struck, generation
from tests.pretend import idle_process


class Relative(psutil.Process):
    """A process of a family, made up."""

    def __init__(self, words: str, parent: Relative | None) -> None:
        self._words, self._parent = words.split(), parent

    def cmdline(self) -> list[str]:
        return self._words

    def parent(self) -> Relative | None:
        return self._parent


def test_a_fork_server_its_guard_and_its_tasks_are_told_apart() -> None:
    kinds, process = [], Relative("python -m experiments compare", None)
    for _ in range(4):
        kinds.append(generation(process))
        process = Relative(f"python -m {SERVER_WORDS} --socket 7", process)
    assert kinds == [0, GUARD, SERVER, TASK]


def test_a_moment_counts_from_the_stage_of_the_right_run(tmp_path: Path) -> None:
    stages, told = Stages(), tmp_path / "told"
    moment = Moment(stage=Stage.MEASURED, nth=2, delay_s=1.0)
    told.write_text("stage starting\nrun a/0\nstage measured\nfinished a/0-0\n")
    stages.hear(told, 10.0)
    assert stages.is_due(Moment(stage=Stage.CALL, nth=1, delay_s=0.0), 10.0)
    assert not stages.is_due(moment, 99.0)
    told.write_text(told.read_text() + "run b/0\nstage measured\nstage measured\n")
    stages.hear(told, 20.0)
    assert not stages.is_due(moment, 20.9)
    assert stages.is_due(moment, 21.0)


def test_every_planned_run_needs_exactly_one_usable_record() -> None:
    points = [make_experiment(num_workers=number) for number in (1, 2, 3, 4)]
    a, b, c, d = [point.experiment_id for point in points]

    def record(point: int, attempt: int, status: Status = Status.OK) -> RunRecord:
        reason = "" if status is Status.OK else "it failed"
        return make_record(experiment=points[point], attempt=attempt, status=status, reason=reason)

    planned = [f"{a}/0", f"{b}/0", f"{c}/0"]
    failed = record(1, 0, Status.FAILED)
    assert check_runs(planned, [record(0, 0), failed, record(1, 1), record(2, 0)]) == []
    assert check_runs(
        planned, [record(0, 0), record(0, 1), failed, record(2, 0), record(3, 0)]
    ) == [
        f"missing: no usable record of {b}/0",
        f"doubled: 2 of {a}/0",
        f"strange: {d}/0 was not planned",
    ]
    assert check_runs([], []) == ["planned: sweep.json tells of 0 runs and not of 3"]


def test_every_launch_leaves_a_record() -> None:
    assert check_launches(2, 0, [make_record()] * 2) == []
    assert check_launches(2, 1, [make_record()]) == []
    assert check_launches(3, 1, [make_record()]) == ["not recorded: 1 of 3 runs that were begun"]


def test_a_run_that_goes_on_after_its_deadline_is_late() -> None:
    record = make_record(started_at="2024-01-01T00:00:00", finished_at="2024-01-01T00:01:30")
    assert check_times([record], 50) == [f"late: {record.run_id} took 90 s and not 50 s"]
    assert check_times([replace(record, finished_at="2024-01-01T00:00:30")], 50) == []


STOPPED = Fault(verb=Verb.STOP, target=Target.SUITE)
HUNG_UP = Fault(verb=Verb.SIGHUP, target=Target.SUITE)
FULL = Fault(verb=Verb.FILL, target=Target.RESULTS)


@pytest.mark.parametrize(
    ("faults", "statuses"),
    [
        ([], {0, 1}),
        ([HUNG_UP], {0, 130}),
        ([HUNG_UP, FULL], {0, 1, 2, 130}),
        ([replace(STOPPED, verb=Verb.KILL)], {0, -9}),
        ([STOPPED], {0}),
        ([replace(STOPPED, for_good=True)], {0, -9}),
        ([replace(STOPPED, verb=Verb.FEW_HANDLES)], {0, 1, 2}),
    ],
)
def test_a_call_may_end_only_as_its_faults_explain(faults: list[Fault], statuses: set[int]) -> None:
    assert allowed_statuses(faults) == statuses


def test_a_stopped_task_is_named_by_the_run_that_it_made_fail() -> None:
    stopped = Fault(verb=Verb.STOP, target=Target.TASK, for_good=True)
    end = CallEnd(
        status=1,
        hung=False,
        said="",
        begun=1,
        struck=((stopped, Struck(victim="worker:1")),),
        survivors=("a process",),
    )
    named = make_record(status=Status.TIMED_OUT, reason="worker:1 said nothing for 20 s")
    assert check_reason(end, [named]) == []
    assert check_reason(end, [replace(named, reason="worker:0 waited")]) != []
    assert check_call(end) == ["survivor: a process"]
    assert check_call(replace(end, survivors=(), hung=True)) == ["hang: the last line is ''"]


def test_a_record_of_another_version_ends_a_call_and_stays(tmp_path: Path) -> None:
    texts = {"4.json": '{"format_version": 4}', "null.json": '{"format_version": null}'}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    foreign = of_other_versions(tmp_path.iterdir())
    assert foreign == [tmp_path / "4.json"]
    end = CallEnd(status=2, hung=False, said="", begun=0, struck=(), survivors=())
    assert check_call(end, foreign) == []
    assert check_call(end) != []
    assert check_call(replace(end, status=0), foreign) != []
    assert check_call(replace(end, status=1), foreign) != []
    killed = Fault(verb=Verb.KILL, target=Target.TASK)
    struck = replace(end, struck=((killed, Struck(victim="worker:1")),))
    assert check_call(replace(struck, status=1), foreign) == []
    assert check_call(replace(struck, status=0), foreign) != []
    foreign[0].unlink()
    assert check_call(end, foreign) == ["foreign: 4.json was moved"]


def test_a_traceback_of_the_suite_counts_and_one_in_a_quoted_log_does_not() -> None:
    trace = "Traceback (most recent call last):\n  File x\nValueError: no\n"
    assert traceback_in(f"1/3\n{trace}") == "ValueError: no"
    assert traceback_in("".join(f"      | {line}\n" for line in trace.splitlines())) == ""


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """A sweep with one complete run."""
    ground = Ground(folder=tmp_path)
    record = make_record()
    path = ground.sweep_dir / "runs" / f"{record.run_id}.json"
    save_record(path, record)
    path.with_suffix(".npz").write_bytes(b"raw timings")
    (ground.sweep_dir / "sweep.json").write_text(json.dumps({"order": ["a/0"]}))
    return ground


def test_records_that_are_lost_or_changed_are_noticed_unless_a_fault_did_it(ground: Ground) -> None:
    ledger, (path,) = Ledger(), ground.records()
    ledger.look(ground)
    assert ledger.compare() == []
    path.write_text("{}")
    path.with_suffix(".npz").unlink()
    changed = f"changed: {path.name} of {path.parent.name}"
    assert ledger.compare() == [f"lost: {path.stem}.npz of {path.parent.name}", changed]
    ledger.forget([path.parent])
    assert ledger.compare() == []
    ledger.look(ground)  # what is made in its place counts again
    path.unlink()
    assert len(ledger.compare()) == 1
    ledger.distrust([path])
    path.write_text("anything")
    ledger.look(ground)
    path.unlink()
    assert ledger.compare() == []


@pytest.mark.parametrize("verb", [verb for verb, target in BETWEEN if target is Target.RECORD])
def test_a_damaged_record_is_no_usable_one(ground: Ground, verb: Verb) -> None:
    assert read_records(ground.records())[1] == []
    assert damage(Fault(verb=verb, target=Target.RECORD), ground)
    records, refused = read_records(ground.records())
    assert (records, len(refused)) == ([], 1)


def test_files_of_a_sweep_are_damaged(ground: Ground) -> None:
    (raw,) = damage(Fault(verb=Verb.TRUNCATE, target=Target.RAW), ground)
    assert raw.stat().st_size == len(b"raw timings") // 2
    (path,) = damage(Fault(verb=Verb.WRONG_ORDER, target=Target.DEFINITION), ground)
    assert json.loads(path.read_text()) == {"order": 3}
    (note,) = damage(Fault(verb=Verb.FOLDER, target=Target.NOTE), ground)
    assert os.path.isdir(note)


def test_processes_and_files_that_are_left_over_are_found(ground: Ground) -> None:
    ground.tmpdir.mkdir(parents=True)
    assert check_left_overs(ground) == []
    (ground.tmpdir / "scratch").touch()
    (ground.sweep_dir / ".sweep.json.x7").touch()
    damage(Fault(verb=Verb.GARBLE, target=Target.NOTE), ground)
    assert check_left_overs(ground) == [
        "left over: scratch in TMPDIR",
        "left over: .sweep.json.x7 in RESULTS",
        "left over: in_flight.json",
    ]
    with idle_process(ground.environment()) as left:
        assert [process.pid for process in ground.processes()] == [left.pid]
        end_all(ground)
        assert left.wait() == -9
