"""The attempts that a results folder holds already, and which runs are missing.

Decides from the records alone whether a run has to be made.  Runs of another block (machine,
software or commit) do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.sweep.sweep import PlannedRun
from ps_allreduce.errors import RecordFormatError
from ps_allreduce.record.files import iter_record_paths, load_record
from ps_allreduce.record.records import RunRecord, Status

#: Attempts at a run that fails or times out.
MAX_ATTEMPTS = 2

REPEATED = (Status.FAILED, Status.TIMED_OUT)

SETTLED = (Status.OK, Status.INVALID)

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class History:
    """The attempts that a results folder holds already.

    Attributes:
        statuses: of the attempts of the present block, by experiment and repetition.
        next_attempt: the first number that is free, whatever the block.
    """

    statuses: dict[Key, list[Status]] = field(default_factory=dict)
    next_attempt: dict[Key, int] = field(default_factory=dict)

    def add(self, record: RunRecord, block: str) -> None:
        """Note one record."""
        key = (record.experiment_id, record.repetition)
        self.next_attempt[key] = max(self.next_attempt.get(key, 0), record.attempt + 1)
        if record.block == block:
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


def key_of(run: PlannedRun) -> Key:
    """What the attempts at one run have in common."""
    return run.experiment.experiment_id, run.repetition


def read_history(sweep_dir: Path, block: str) -> History:
    """Read all records of a sweep.

    Raises:
        RecordFormatError: one is damaged or of another version.
    """
    history = History()
    for path in iter_record_paths(sweep_dir):
        history.add(load_record(path), block)
    return history


def unsettled(runs: Sequence[PlannedRun], sweep_dir: Path, commit: str) -> list[PlannedRun]:
    """Those runs that no record of this commit has settled, on whatever hosts.

    Which hosts a job will get is unknown before it begins; whoever wants the same runs on hosts of
    another kind chooses another results folder.
    """
    settled = {
        (record.experiment_id, record.repetition)
        for path in iter_record_paths(sweep_dir)
        if (record := load_if_complete(path)) is not None
        and record.provenance.commit == commit
        and record.status in SETTLED
    }
    return [run for run in runs if key_of(run) not in settled]


def load_if_complete(path: Path) -> RunRecord | None:
    """A record that a job on other hosts writes; None if not all of it has arrived."""
    try:
        return load_record(path)
    except RecordFormatError:
        return None
