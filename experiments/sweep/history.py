"""The attempts that a results folder holds already, and how far a sweep has come with them.

Decides from the records alone which runs are missing, which points have failed for good, and
whether a sweep is complete: for a sweep that goes on, a dry run, and jobs before and after they are
made.  Nothing is moved or written here.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.sweep.sweep import PlannedRun
from ps_allreduce.errors import OtherVersionError, RecordFormatError, UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.files import is_strange, iter_record_paths, name_of_sweep, read_run
from ps_allreduce.record.provenance import Provenance
from ps_allreduce.record.records import RunRecord, Status

#: Attempts at a run that fails or times out.
MAX_ATTEMPTS = 2

REPEATED = (Status.FAILED, Status.TIMED_OUT)

SETTLED = (Status.OK, Status.INVALID)

#: So many points are named; a sweep may have hundreds.
MOST_NAMED = 3

Key = tuple[str, int]

#: Whether an attempt tells about the runs that would be made now.
Counts = Callable[[RunRecord], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a sweep has come.

    Attributes:
        missing: the runs that are to be made.
        failed: points with a run that has failed as often as it is tried.
        invalid: points with a run that did not pass its checks.
    """

    missing: tuple[PlannedRun, ...]
    failed: tuple[Experiment, ...]
    invalid: tuple[Experiment, ...]

    @property
    def is_complete(self) -> bool:
        """Every run was made and ended well."""
        return not (self.missing or self.failed or self.invalid)

    @property
    def troubles(self) -> tuple[str, ...]:
        """What no further call of the same command mends, in sentences."""
        told = []
        for points, what, ends in (
            (self.failed, "failed for good", "; --retry-failed tries again."),
            (self.invalid, "runs that are not valid and not repeated", "."),
        ):
            if points:
                have = "point has" if len(points) == 1 else "points have"
                told.append(f"{len(points)} {have} {what}: {_named(points)}{ends}")
        return tuple(told)


def _named(points: Sequence[Experiment]) -> str:
    names = [point.title for point in points[:MOST_NAMED]]
    if len(points) > MOST_NAMED:
        names.append(f"{len(points) - MOST_NAMED} more")
    return "; ".join(names)


@dataclass(frozen=True, slots=True)
class History:
    """The attempts that a results folder holds already.

    Attributes:
        statuses: of the attempts that count, by experiment and repetition.
        next_attempt: the first number that is free, whether attempts count or not.
        refused: files that should be records and are none, and why.
    """

    statuses: dict[Key, list[Status]] = field(default_factory=dict)
    next_attempt: dict[Key, int] = field(default_factory=dict)
    refused: dict[Path, RecordFormatError] = field(default_factory=dict)

    def add(self, record: RunRecord, counts: bool) -> None:
        """Note one record."""
        key = (record.experiment_id, record.repetition)
        self.next_attempt[key] = max(self.next_attempt.get(key, 0), record.attempt + 1)
        if counts:
            self.statuses.setdefault(key, []).append(record.status)

    def next_repetition(self, experiment_id: str) -> int:
        """The first number beyond all launches of a point."""
        taken = [repetition for key, repetition in self.next_attempt if key == experiment_id]
        return max(taken, default=-1) + 1

    def needs_run(self, run: PlannedRun) -> bool:
        """No attempt has settled this run, and it may be tried again."""
        tried = self.statuses.get(key_of(run), [])
        settled = any(status in SETTLED for status in tried)
        return not settled and sum(status in REPEATED for status in tried) < MAX_ATTEMPTS

    def standing(self, runs: Sequence[PlannedRun]) -> Standing:
        """How far these runs of a sweep have come."""
        missing = tuple(run for run in runs if self.needs_run(run))
        failed: dict[Experiment, bool] = {}
        invalid: dict[Experiment, bool] = {}
        for run in runs:
            tried = self.statuses.get(key_of(run), [])
            if not self.needs_run(run) and Status.OK not in tried:
                (invalid if Status.INVALID in tried else failed)[run.experiment] = True
        return Standing(missing=missing, failed=tuple(failed), invalid=tuple(invalid))


def key_of(run: PlannedRun) -> Key:
    """What the attempts at one run have in common."""
    return run.experiment.experiment_id, run.repetition


def of_block(block: str) -> Counts:
    """Runs of this machine, or kind of hosts, and this software."""
    return lambda record: record.block == block


def of_software(here: Provenance) -> Counts:
    """Runs of this program and these versions, on whatever hosts.

    Which hosts a job will get is unknown before it begins; whoever wants the same runs on hosts of
    another kind chooses another results folder.
    """
    known = (here.program, here.versions)
    return lambda record: (record.provenance.program, record.provenance.versions) == known


def read_history(sweep_dir: Path, counts: Counts, *, retry_failed: bool = False) -> History:
    """Read all records of a sweep; those of another one that were copied in do not count.

    Args:
        retry_failed: attempts that failed do not count.

    Raises:
        UserError: a record is of another version, or a file cannot be read now.
    """
    history, sweep = History(), name_of_sweep(sweep_dir)
    for path in iter_record_paths(sweep_dir):
        record = read_run(path)
        if isinstance(record, RunRecord):
            again = retry_failed and record.status in REPEATED
            own = counts(record) and not is_strange(record, sweep)
            history.add(record, own and not again)
        else:
            history.refused[path] = _refusal(path, record)
    return history


def kept_records(
    sweep_dir: Path, block: str | None, experiment_ids: Container[str]
) -> list[RunRecord]:
    """The records of some points, by point and repetition.

    Args:
        block: of machine and software; others do not count.
    """
    read, sweep = map(read_run, iter_record_paths(sweep_dir)), name_of_sweep(sweep_dir)
    return [
        record
        for record in read
        if isinstance(record, RunRecord)
        and record.block == block
        and not is_strange(record, sweep)
        and record.experiment_id in experiment_ids
    ]


def _refusal(path: Path, error: RecordFormatError) -> RecordFormatError:
    """Why a file is no record.

    Raises:
        UserError: it may well be one, for another suite or when the disk can be read again.
    """
    if isinstance(error, OtherVersionError):
        raise error
    if isinstance(error.__cause__, OSError) and path.is_file():
        raise UserError(f"{path} cannot be read: {error.__cause__.strerror}.") from error
    return error
