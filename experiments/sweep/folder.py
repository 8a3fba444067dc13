"""The folder of a sweep: who may write into it, the files of a run, and the run that is being made.

Decides that records are never overwritten and that no run is lost: while one is being made, a note
of it lies in the folder, and whoever finds a note whose writer is gone turns it into a record.  The
kernel's locks are used where they work and not relied on, since shared file systems may have none.

Whether it could be written is looked at before anything is: names, links, and what stands in the
way; a disk that is full is found when something is written.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from launchers.run.conclude import LaunchedRun
from launchers.scheduler import Scheduler
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.files import (
    REFUSED,
    RUNS,
    RunFiles,
    check_free,
    read_json,
    save_raw,
    save_record,
    write_atomically,
    write_json,
)
from ps_allreduce.record.provenance import Provenance, running_system
from ps_allreduce.record.records import RunOutcome, RunRecord, Status
from ps_allreduce.record.sense import judged
from ps_allreduce.serialization import from_json

NOTE = "in_flight.json"

LOCK = ".lock"

#: What to do where a sweep's folder cannot be written.
ANOTHER = "Choose another RESULTS."

#: A note whose writer cannot be asked is given so long beyond the run's own deadline.
NOTE_GRACE_S = 120.0


def now() -> str:
    """The present moment as records state it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """The note of a run that is being made.

    Attributes:
        profile: of the sweep, by name.
        host, pid: of the process that makes it.
        machine: the running system that it is on; a container has a host name of its own.
        job_id: of its scheduler's job, None without one.
    """

    sweep: str
    profile: str
    deadline_s: float
    experiment: Experiment
    repetition: int
    attempt: int
    started_at: str
    provenance: Provenance
    host: str
    pid: int
    machine: str = ""
    job_id: str | None = None

    def record(self, run: RunOutcome) -> RunRecord:
        """What is recorded of the run now that it is over."""
        return judged(
            RunRecord(
                sweep=self.sweep,
                profile=self.profile,
                experiment=self.experiment,
                experiment_id=self.experiment.experiment_id,
                repetition=self.repetition,
                attempt=self.attempt,
                started_at=self.started_at,
                finished_at=now(),
                provenance=self.provenance,
                **{each.name: getattr(run, each.name) for each in fields(RunOutcome)},
            )
        )


@contextmanager
def noted(sweep_dir: Path, note: InFlight) -> Iterator[None]:
    """Leave a note for as long as a run is being made.

    Raises:
        UserError: the folder cannot be written.
    """
    path = sweep_dir / NOTE
    write_json(path, note)
    yield
    # Not in a "finally": a run that was not recorded keeps its note.
    withdraw(sweep_dir)


def withdraw(sweep_dir: Path) -> None:
    """Take the note away: its run is recorded, or was never possible."""
    with suppress(OSError):  # whoever finds the note of a recorded run takes it away
        (sweep_dir / NOTE).unlink()


def recover(
    sweep_dir: Path, scheduler_of: Callable[[str], Scheduler | None], *, is_locked: bool = False
) -> RunRecord | None:
    """Record the run that a sweep was making when it was killed, if there is one.

    Args:
        scheduler_of: the batch system behind a launcher, by the launcher's name.
        is_locked: this process holds the folder's lock, so no other one of its machine makes a run.

    Raises:
        UserError: somebody seems to be making that run still.
    """
    path = sweep_dir / NOTE
    if not os.path.lexists(path):
        return None
    try:
        note = from_json(InFlight, read_json(path), str(path))
    except (OSError, ValueError, UserError):
        _clear(path)  # written by another version: nothing to go by
        return None
    scheduler = scheduler_of(note.experiment.launcher)
    here = note.host == socket.gethostname() or note.machine == running_system()
    if not (here and is_locked) and not _is_over(note, path, scheduler):
        raise UserError(
            f"process {note.pid} on {note.host} seems to be making a run in {sweep_dir} (since "
            f"{note.started_at}); wait for it, choose another RESULTS, or remove {path}."
        )
    record: RunRecord | None = None
    files = RunFiles.of(sweep_dir, note.experiment.experiment_id, note.repetition, note.attempt)
    if not files.record.exists():
        record = _abandoned(note, scheduler)
        save_record(files.record, record)
    path.unlink(missing_ok=True)
    return record


def _clear(path: Path) -> None:
    """Remove a note; what stands in its place and is no file may hold somebody's files: rename it.

    Raises:
        UserError: the folder cannot be written.
    """
    try:
        if path.is_file():
            path.unlink()
            return
        number = 1
        while os.path.lexists(aside := path.with_name(f"{path.name}.refused-{number}")):
            number += 1
        path.rename(aside)
    except OSError as error:
        raise UserError(f"cannot remove {path}: {error.strerror}.") from error


def _is_over(note: InFlight, path: Path, scheduler: Scheduler | None) -> bool:
    if note.host == socket.gethostname():
        return note.pid == os.getpid() or not Path("/proc", str(note.pid)).exists()
    if note.job_id is not None and scheduler is not None and scheduler.is_over(note.job_id):
        return True
    age = time.time() - path.stat().st_mtime
    return age > note.deadline_s + NOTE_GRACE_S


def _abandoned(note: InFlight, scheduler: Scheduler | None) -> RunRecord:
    reason = "the suite ended during this run"
    if note.job_id is not None and scheduler is not None:
        explanation = scheduler.explain(note.job_id)
        reason += f": {explanation}" if explanation else ""
    return note.record(RunOutcome(status=Status.INTERRUPTED, reason=reason, job_id=note.job_id))


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
            save_raw(files.raw, launched.steps, launched.events, launched.evaluated)
        save_record(files.record, record)
    except (OSError, UserError) as error:
        for path in (files.log, files.raw):
            with suppress(OSError):
                path.unlink()
        if isinstance(error, OSError):
            raise UserError(f"cannot write {files.raw}: {error.strerror}.") from error
        raise


def set_aside(path: Path, reason: str) -> None:
    """Move what should be a record and is none to `runs/refused`, with its log and timings.

    Raises:
        UserError: the folder cannot be written.
    """
    folder, number = path.parent.parent / REFUSED, 1
    stem = path.stem
    while os.path.lexists(folder / f"{stem}.reason.txt"):
        number += 1
        stem = f"{path.stem}.{number}"
    text = f"{reason}\n".encode(errors="backslashreplace")  # it may name a file in any bytes
    write_atomically(folder / f"{stem}.reason.txt", text)
    files = RunFiles(path)
    try:
        for source in (files.log, files.raw, files.record):
            if os.path.lexists(source):
                source.rename(folder / f"{stem}{source.suffix}")
    except OSError as error:
        raise UserError(f"cannot move {path} to {folder}: {error.strerror}.") from error


def check_there(sweep_dir: Path) -> None:
    """See that the folder is the one that was locked.

    Raises:
        UserError: somebody has removed or replaced it.
    """
    if not (sweep_dir / LOCK).exists():
        raise UserError(
            f"{sweep_dir} was removed or replaced while its sweep was made; the same command "
            "makes the runs that are missing there."
        )


@contextmanager
def locked(sweep_dir: Path, taken: str = "") -> Iterator[bool]:
    """Keep a second sweep out of the folder: the two would disturb each other's measurement.

    The kernel drops the lock with the process.  Where the file system knows no locks, go on
    without; the value says whether it does.

    Args:
        taken: what is said where another process holds the lock and makes no sweep.

    Raises:
        UserError: another process holds it, or the folder cannot be written.
    """
    try:
        sweep_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(sweep_dir / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        told = f"cannot write to {sweep_dir}: {error.strerror}."
        raise UserError(told if taken else f"{told} {ANOTHER}") from error
    is_locked = True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        runs = (
            f"another command is making runs in {sweep_dir}; wait for it or choose another RESULTS."
        )
        raise UserError(taken or runs) from None
    except OSError:
        is_locked = False
    try:
        yield is_locked
    finally:
        os.close(descriptor)


def check_writable(sweep_dir: Path) -> None:
    """Look whether a sweep could write, and write nothing.

    Raises:
        UserError: it could not.
    """
    try:
        for folder in (sweep_dir, sweep_dir / RUNS):
            check_folder(folder)
    except UserError as error:
        raise UserError(f"{error} {ANOTHER}") from error


def check_folder(folder: Path) -> None:
    """Look whether a folder could be made and written, and write nothing.

    Raises:
        UserError: it could not.
    """
    nearest = _nearest(folder)
    if not nearest.is_dir():
        raise UserError(f"cannot write to {folder}: {nearest} is no folder.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UserError(f"cannot write to {folder}: {nearest} cannot be written.")


def _nearest(folder: Path) -> Path:
    """What there is already of a path: the path itself, or the nearest of its parents.

    Raises:
        UserError: the path can never be: a name is too long, or links lead nowhere.
    """
    for path in (folder, *folder.absolute().parents):
        try:
            path.lstat()
            path.stat()
            return path
        except (NotADirectoryError, PermissionError):
            pass  # the parent is what is wrong
        except FileNotFoundError as error:
            if path.is_symlink():
                raise UserError(
                    f"cannot write to {folder}: {path} is a link that leads nowhere."
                ) from error
        except OSError as error:
            raise UserError(f"cannot write to {folder}: {error.strerror}.") from error
    raise AssertionError("the root is always there")
