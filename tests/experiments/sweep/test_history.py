"""Which runs are missing follows from the records alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.sweep.history import MAX_ATTEMPTS, History, read_history
from experiments.sweep.sweep import PlannedRun
from ps_allreduce.errors import RecordFormatError
from ps_allreduce.record.files import RunFiles
from ps_allreduce.record.records import Status
from tests.experiments.sweeps import ended, leave
from tests.fakes import PROVENANCE, make_experiment, make_record

BLOCK = PROVENANCE.fingerprint

RUN = PlannedRun(experiment=make_experiment(), repetition=0)

KEY = (RUN.experiment.experiment_id, 0)


def history(*statuses: Status, block: str = BLOCK) -> History:
    made = History()
    for number, status in enumerate(statuses):
        made.add(make_record(attempt=number, **ended(status)), block)
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
    other = history(OK, FAILED, block="another")
    assert other.needs_run(RUN)
    assert other.next_attempt == {KEY: 2}


def test_attempts_are_numbered_on_whatever_is_missing() -> None:
    made = History()
    for number in (4, 1):
        made.add(make_record(attempt=number, **ended(FAILED)), BLOCK)
    assert made.next_attempt[KEY] == 5


def test_repetitions_are_settled_one_by_one() -> None:
    assert history(OK).needs_run(PlannedRun(experiment=RUN.experiment, repetition=1))
    assert history(OK).needs_run(PlannedRun(experiment=make_experiment(num_ps=3), repetition=0))


def test_a_folder_is_read_whole(tmp_path: Path) -> None:
    leave(tmp_path, attempt=0, **ended(FAILED))
    leave(tmp_path, attempt=1)
    read = read_history(tmp_path, BLOCK)
    assert (read.statuses, read.next_attempt) == ({KEY: [FAILED, OK]}, {KEY: 2})
    assert read_history(tmp_path, "another").statuses == {}
    assert read_history(tmp_path / "new", BLOCK) == History()


def test_a_damaged_record_is_not_passed_over(tmp_path: Path) -> None:
    files = RunFiles.of(tmp_path, RUN.experiment.experiment_id, 0, 0)
    files.record.parent.mkdir(parents=True)
    files.record.write_text("{")
    with pytest.raises(RecordFormatError, match=str(files.record)):
        read_history(tmp_path, BLOCK)
