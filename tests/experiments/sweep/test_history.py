"""Which runs are missing, and how far a sweep has come, follows from the records alone."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from experiments.sweep.history import (
    MAX_ATTEMPTS,
    MOST_NAMED,
    Counts,
    History,
    kept_records,
    of_block,
    of_software,
    read_history,
)
from experiments.sweep.sweep import PlannedRun
from ps_allreduce.errors import OtherVersionError, UserError
from ps_allreduce.record.files import DEFINITION, RunFiles, write_json
from ps_allreduce.record.records import FORMAT_VERSION, Status
from tests.experiments.sweeps import SWEEP, ended, leave
from tests.fakes import PROVENANCE, make_experiment, make_record

BLOCK = PROVENANCE.fingerprint

RUN = PlannedRun(experiment=make_experiment(), repetition=0)

KEY = (RUN.experiment.experiment_id, 0)


def history(*statuses: Status, counts: bool = True) -> History:
    made = History()
    for number, status in enumerate(statuses):
        made.add(make_record(attempt=number, **ended(status)), counts)
    return made


OK, INVALID, INTERRUPTED = Status.OK, Status.INVALID, Status.INTERRUPTED

FAILED, TIMED_OUT = Status.FAILED, Status.TIMED_OUT


@pytest.mark.parametrize(
    ("statuses", "needed"),
    [
        ([], True),
        ([OK], False),
        ([INVALID], False),
        ([FAILED], True),
        ([TIMED_OUT], True),
        ([FAILED, TIMED_OUT], False),
        ([FAILED, OK], False),
        ([INTERRUPTED] * (MAX_ATTEMPTS + 3), True),
        ([INTERRUPTED, FAILED, INTERRUPTED], True),
        ([FAILED, INTERRUPTED, FAILED], False),
    ],
)
def test_a_run_is_needed_until_it_is_settled_or_was_tried_often_enough(
    statuses: list[Status], needed: bool
) -> None:
    assert history(*statuses).needs_run(RUN) is needed


def test_attempts_of_another_block_settle_nothing_but_keep_their_numbers() -> None:
    other = history(OK, FAILED, counts=False)
    assert other.needs_run(RUN)
    assert other.next_attempt == {KEY: 2}


def test_attempts_are_numbered_on_whatever_is_missing() -> None:
    made = History()
    for number in (4, 1):
        made.add(make_record(attempt=number, **ended(FAILED)), counts=True)
    assert made.next_attempt[KEY] == 5


def test_repetitions_are_settled_one_by_one() -> None:
    assert history(OK).needs_run(PlannedRun(experiment=RUN.experiment, repetition=1))
    assert history(OK).needs_run(PlannedRun(experiment=make_experiment(num_ps=3), repetition=0))


def test_a_folder_is_read_whole(tmp_path: Path) -> None:
    leave(tmp_path, attempt=0, **ended(FAILED))
    leave(tmp_path, attempt=1)
    read = read_history(tmp_path, of_block(BLOCK))
    assert (read.statuses, read.next_attempt) == ({KEY: [FAILED, OK]}, {KEY: 2})
    again = read_history(tmp_path, of_block(BLOCK), retry_failed=True)
    assert (again.statuses, again.next_attempt) == ({KEY: [OK]}, {KEY: 2})
    assert read_history(tmp_path / "new", of_block(BLOCK)) == History()


@pytest.mark.parametrize(
    ("counts", "they_do"),
    [
        pytest.param(of_block(BLOCK), True, id="the same block"),
        pytest.param(of_block("another"), False, id="another block"),
        pytest.param(of_software(replace(PROVENANCE, fingerprint="b")), True, id="other hosts"),
        pytest.param(of_software(replace(PROVENANCE, versions={})), False, id="an upgrade"),
        pytest.param(of_software(replace(PROVENANCE, program="b")), False, id="another program"),
    ],
)
def test_runs_of_another_machine_or_software_do_not_count(
    tmp_path: Path, counts: Counts, they_do: bool
) -> None:
    leave(tmp_path)
    assert bool(read_history(tmp_path, counts).statuses) is they_do


def test_runs_of_another_sweep_that_were_copied_in_do_not_count(tmp_path: Path) -> None:
    leave(tmp_path, sweep="ps-sweep")
    ids = (RUN.experiment.experiment_id,)
    assert kept_records(tmp_path, BLOCK, ids)
    write_json(tmp_path / DEFINITION, {"name": "compare"})
    read = read_history(tmp_path, of_block(BLOCK))
    assert (read.statuses, read.next_attempt) == ({}, {KEY: 1})
    assert kept_records(tmp_path, BLOCK, ids) == []


def test_a_sweep_is_complete_when_every_run_is_ok() -> None:
    first, second = SWEEP.points
    made = History()
    for repetition in range(2):
        made.add(make_record(experiment=first, repetition=repetition), counts=True)
    assert {run.experiment for run in made.standing(SWEEP.runs()).missing} == {second}
    for attempt in range(MAX_ATTEMPTS):
        made.add(make_record(experiment=second, attempt=attempt, **ended(FAILED)), counts=True)
    invalid = make_record(experiment=second, repetition=1, **ended(INVALID))
    made.add(invalid, counts=True)
    standing = made.standing(SWEEP.runs())
    assert (standing.missing, standing.failed, standing.invalid) == ((), (second,), (second,))
    assert standing.troubles == (
        f"1 point has failed for good: {second.title}; --retry-failed tries again.",
        f"1 point has runs that are not valid and not repeated: {second.title}.",
    )
    assert not standing.is_complete
    made.add(make_record(experiment=second, attempt=9), counts=True)
    made.add(make_record(experiment=second, repetition=1, attempt=9), counts=True)
    assert made.standing(SWEEP.runs()).is_complete


def test_not_every_point_that_has_failed_is_named() -> None:
    made, runs = History(), []
    for num_ps in range(1, MOST_NAMED + 3):
        point = make_experiment(num_ps=num_ps)
        runs.append(PlannedRun(experiment=point, repetition=0))
        for attempt in range(MAX_ATTEMPTS):
            made.add(make_record(experiment=point, attempt=attempt, **ended(FAILED)), counts=True)
    (told,) = made.standing(runs).troubles
    assert told.startswith("5 points have failed for good: ")
    assert told.endswith("; 2 more; --retry-failed tries again.")


def path_of_run(sweep_dir: Path) -> Path:
    return RunFiles.of(sweep_dir, RUN.experiment.experiment_id, 0, 0).record


def test_a_record_of_another_version_is_no_damage(tmp_path: Path) -> None:
    leave(tmp_path)
    path = path_of_run(tmp_path)
    path.write_text(
        path.read_text().replace(f'"format_version": {FORMAT_VERSION}', '"format_version": 5')
    )
    with pytest.raises(OtherVersionError, match="Start a new RESULTS folder"):
        read_history(tmp_path, of_block(BLOCK))


def test_a_disk_that_cannot_be_read_now_damages_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(tmp_path)

    def no_handles(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    for function in ("os.open", "io.open"):
        monkeypatch.setattr(function, no_handles)
    with pytest.raises(UserError, match=r"0-0\.json cannot be read: Too many open files\."):
        read_history(tmp_path, of_block(BLOCK))
