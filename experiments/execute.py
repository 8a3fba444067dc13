"""Run a sweep through a launcher: resume, retry, keep every record.

Decides what is left to do, from the records alone, and writes one record per attempt.  The same
path serves a single run and a sweep.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path

from experiments.sweep import PlannedRun, Sweep
from launchers.protocol import LaunchedRun, Launcher
from ps_allreduce.errors import UserError
from ps_allreduce.provenance import collect
from ps_allreduce.records import (
    RunFiles,
    RunRecord,
    Status,
    check_free,
    iter_record_paths,
    load_record,
    save_record,
    write_atomically,
)
from ps_allreduce.serialization import to_json
from ps_allreduce.steps import save_raw

#: Attempts at a run that fails or times out.
MAX_ATTEMPTS = 2

REPEATED = (Status.FAILED, Status.TIMED_OUT)

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

    def needs_run(self, run: PlannedRun) -> bool:
        """No attempt has settled this run, and it may be tried again."""
        tried = self.statuses.get(_key(run), [])
        settled = any(status in (Status.OK, Status.INVALID) for status in tried)
        return not settled and sum(status in REPEATED for status in tried) < MAX_ATTEMPTS


def _key(run: PlannedRun) -> Key:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a sweep came to.

    Attributes:
        made: records of this session.
        kept: runs that earlier sessions had settled.
        wall_s: duration of this session.
        useful_s: part of it inside warm-up and measured steps.
    """

    made: tuple[RunRecord, ...]
    kept: int
    wall_s: float
    interrupted: bool

    @property
    def useful_fraction(self) -> float:
        """Share of the session's time inside warm-up and measured steps."""
        phases = [record.phases for record in self.made]
        useful = sum((p.warmup_s or 0.0) + (p.measured_s or 0.0) for p in phases)
        return useful / self.wall_s if self.made else 0.0


class Follower:
    """Is told how a sweep goes on; this one does not listen."""

    def begin(self, total: int, kept: int) -> None:
        """So many runs are to be made, so many were made before."""

    def start(self, run: PlannedRun) -> None:
        """A run begins."""

    def stage(self, text: str) -> None:
        """What the present run is doing."""

    def finish(self, record: RunRecord, log_tail: str) -> None:
        """A run has ended; `log_tail` is the end of the right log if it did not succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What all runs of one call of the suite share.

    Attributes:
        sweep_name, sweep_dir: where records belong.
        history: of the folder; runs are added as they are made.
    """

    launcher: Launcher
    sweep_name: str
    sweep_dir: Path
    commit: str
    history: History
    follower: Follower


def execute(
    sweep: Sweep, launcher: Launcher, sweep_dir: Path, commit: str, follower: Follower
) -> Result:
    """Make the runs that are missing.

    Raises:
        UserError: a point cannot be run, or the folder cannot be used.
    """
    begin = time.monotonic()
    for point in sweep.points:
        launcher.check(point)
    with locked(sweep_dir):
        history = read_history(sweep_dir, collect(commit).fingerprint)
        wanted = list(sweep.runs())
        queue = [run for run in wanted if history.needs_run(run)]
        _save_definition(sweep, sweep_dir)
        follower.begin(len(queue), len(wanted) - len(queue))
        for workload in {run.experiment.workload for run in queue}:
            launcher.prepare(workload)
        session = Session(
            launcher=launcher,
            sweep_name=sweep.name,
            sweep_dir=sweep_dir,
            commit=commit,
            history=history,
            follower=follower,
        )
        made, interrupted = _run_queue(session, queue)
    return Result(
        made=tuple(made),
        kept=len(wanted) - len(queue),
        wall_s=time.monotonic() - begin,
        interrupted=interrupted,
    )


def _run_queue(session: Session, queue: Sequence[PlannedRun]) -> tuple[list[RunRecord], bool]:
    """Make runs in order; those that fail are tried again after all others."""
    made: list[RunRecord] = []
    again = list(queue)
    while again:
        pending, again = again, []
        for run in pending:
            record = run_once(session, run)
            made.append(record)
            if record.status is Status.INTERRUPTED:
                return made, True
            if session.history.needs_run(run):
                again.append(run)
    return made, False


def run_once(session: Session, run: PlannedRun, weights: Path | None = None) -> RunRecord:
    """Launch one run and keep its files: the one way in which runs are made.

    Args:
        weights: file that takes the final trainable weights.
    """
    session.follower.start(run)
    provenance = collect(session.commit)
    started_at = _now()
    launched = session.launcher.launch(
        run.experiment, progress=session.follower.stage, weights=weights
    )
    record = RunRecord(
        sweep=session.sweep_name,
        experiment=run.experiment,
        experiment_id=run.experiment.experiment_id,
        repetition=run.repetition,
        attempt=session.history.next_attempt.get(_key(run), 0),
        started_at=started_at,
        finished_at=_now(),
        provenance=provenance,
        oversubscribed=session.launcher.is_oversubscribed(run.experiment),
        total_cores=session.launcher.total_cores(run.experiment),
        **_shared_fields(launched),  # type: ignore[arg-type]
    )
    keep(record, launched, session.sweep_dir)
    session.history.add(record, provenance.fingerprint)
    session.follower.finish(record, launched.log_tail)
    return record


def _shared_fields(launched: LaunchedRun) -> Mapping[str, object]:
    names = {f.name for f in fields(launched)} & {f.name for f in fields(RunRecord)}
    return {name: getattr(launched, name) for name in names}


def keep(record: RunRecord, launched: LaunchedRun, sweep_dir: Path) -> None:
    """Write the files of a run; the record comes last and makes them count.

    Raises:
        UserError: the disk refuses; nothing of the run is left behind.
    """
    files = RunFiles.of(sweep_dir, record.experiment_id, record.repetition, record.attempt)
    check_free(files.record)  # its log and timings would be lost, too
    try:
        write_atomically(files.log, launched.log.encode())
        if launched.steps is not None and launched.events is not None:
            save_raw(files.raw, launched.steps, launched.events)
        save_record(files.record, record)
    except OSError as error:
        _forget(files)
        raise UserError(f"cannot write {files.raw}: {error.strerror}.") from error
    except UserError:
        _forget(files)
        raise


def _forget(files: RunFiles) -> None:
    for path in (files.log, files.raw):
        path.unlink(missing_ok=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _save_definition(sweep: Sweep, sweep_dir: Path) -> None:
    """What was asked for, beside the runs: seed, order and points."""
    content = {
        "name": sweep.name,
        "seed": sweep.seed,
        "order": [f"{run.experiment.experiment_id}/{run.repetition}" for run in sweep.runs()],
        "points": {point.experiment_id: to_json(point) for point in sweep.points},
    }
    write_atomically(sweep_dir / "sweep.json", (json.dumps(content, indent=1) + "\n").encode())


@contextmanager
def locked(sweep_dir: Path) -> Iterator[None]:
    """Keep a second sweep out of the folder: the two would disturb each other's measurement.

    The kernel drops the lock with the process.  Where the file system knows no locks, go on
    without.

    Raises:
        UserError: another process holds it, or the folder cannot be written.
    """
    try:
        sweep_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(sweep_dir / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UserError(f"cannot write to {sweep_dir}: {error.strerror}.") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UserError(
            f"another sweep is running in {sweep_dir}; wait for it or choose another RESULTS."
        ) from None
    except OSError:
        pass
    try:
        yield
    finally:
        os.close(descriptor)
