"""Run a sweep through a launcher: resume, retry, keep every record.

Decides what is left to do, from the records alone, and writes one record per attempt.  The same
path serves a single run and a sweep.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path

from experiments.sweep.folder import InFlight, keep, locked, noted, now, recover
from experiments.sweep.history import History, key_of, read_history
from experiments.sweep.sweep import PlannedRun, Sweep
from launchers.protocol import LaunchedRun, Launcher
from launchers.sites.slurm.jobs import explain_job, job_is_over
from ps_allreduce.point.experiment import Profile
from ps_allreduce.record.files import write_atomically
from ps_allreduce.record.hosts import HostFacts
from ps_allreduce.record.provenance import collect
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.serialization import to_json

#: Beyond a run's own deadline: bringing fork servers up, and taking everything down.
LAUNCH_ALLOWANCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a sweep came to.

    Attributes:
        made: records of this session.
        kept: runs that earlier sessions had settled.
        wall_s: duration of this session.
        stop: why the session ended before the sweep did, None if it did not.
    """

    made: tuple[RunRecord, ...]
    kept: int
    wall_s: float
    stop: Stop | None

    @property
    def useful_fraction(self) -> float:
        """Share of the session's time inside warm-up and measured steps."""
        phases = [record.phases for record in self.made]
        useful = sum((p.warmup_s or 0.0) + (p.measured_s or 0.0) for p in phases)
        return useful / self.wall_s if self.made else 0.0


class Stop(StrEnum):
    """Why a session ends before its sweep."""

    INTERRUPTED = "interrupted"
    NO_TIME = "no time"


class Follower:
    """Is told how a sweep goes on; this one does not listen."""

    def begin(self, total: int, kept: int) -> None:
        """So many runs are to be made, so many were made before."""

    def start(self, run: PlannedRun) -> None:
        """A run begins."""

    def stage(self, text: str) -> None:
        """What the present run is doing."""

    def recovered(self, record: RunRecord) -> None:
        """A run that an earlier session did not live to record is recorded now."""

    def finish(self, record: RunRecord, log_tail: str) -> None:
        """A run has ended; `log_tail` is the end of the right log if it did not succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What all runs of one call of the suite share.

    Attributes:
        sweep_name, sweep_dir: where records belong.
        hosts: what sets the launcher's hosts apart from others.
        history: of the folder; runs are added as they are made.
    """

    launcher: Launcher
    sweep_name: str
    sweep_dir: Path
    commit: str
    hosts: Sequence[HostFacts]
    history: History
    follower: Follower


def execute(
    sweep: Sweep,
    wanted: Sequence[PlannedRun],
    launcher: Launcher,
    sweep_dir: Path,
    commit: str,
    follower: Follower,
) -> Result:
    """Make the runs that are missing.

    Args:
        wanted: those runs of the sweep that are this session's.

    Raises:
        UserError: a point cannot be run, or the folder cannot be used.
    """
    begin = time.monotonic()
    for point in dict.fromkeys(run.experiment for run in wanted):
        launcher.check(point)
    with locked(sweep_dir):
        session = open_session(launcher, sweep.name, sweep_dir, commit, follower)
        queue = [run for run in wanted if session.history.needs_run(run)]
        _save_definition(sweep, sweep_dir)
        follower.begin(len(queue), len(wanted) - len(queue))
        for workload in {run.experiment.workload for run in queue}:
            launcher.prepare(workload)
        made, stop = _run_queue(session, queue)
    return Result(
        made=tuple(made),
        kept=len(wanted) - len(queue),
        wall_s=time.monotonic() - begin,
        stop=stop,
    )


def open_session(
    launcher: Launcher, sweep_name: str, sweep_dir: Path, commit: str, follower: Follower
) -> Session:
    """Look at the hosts and at what the folder holds already.

    The run that was being made when the suite was killed, if there is one, is recorded first.

    Raises:
        UserError: somebody seems to be making that run still.
    """
    record = recover(sweep_dir, job_is_over, explain_job)
    if record is not None:
        follower.recovered(record)
    hosts = launcher.host_facts()
    return Session(
        launcher=launcher,
        sweep_name=sweep_name,
        sweep_dir=sweep_dir,
        commit=commit,
        hosts=hosts,
        history=read_history(sweep_dir, collect(commit, hosts).fingerprint),
        follower=follower,
    )


def _run_queue(
    session: Session, queue: Sequence[PlannedRun]
) -> tuple[list[RunRecord], Stop | None]:
    """Make runs in order; those that fail are tried again after all others."""
    made: list[RunRecord] = []
    again = list(queue)
    while again:
        pending, again = again, []
        for run in pending:
            if not has_time(session.launcher, run.experiment.profile):
                return made, Stop.NO_TIME
            record = run_once(session, run)
            made.append(record)
            if record.status is Status.INTERRUPTED:
                return made, Stop.INTERRUPTED
            if session.history.needs_run(run):
                again.append(run)
    return made, None


def has_time(launcher: Launcher, profile: Profile) -> bool:
    """Whether a run of this profile would finish before the scheduler's limit."""
    left = launcher.time_left_s()
    return left is None or left >= profile.deadline_s + LAUNCH_ALLOWANCE_S


def run_once(session: Session, run: PlannedRun, weights: Path | None = None) -> RunRecord:
    """Launch one run and keep its files: the one way in which runs are made.

    Args:
        weights: file that takes the final trainable weights.
    """
    session.follower.start(run)
    note = InFlight(
        sweep=session.sweep_name,
        experiment=run.experiment,
        repetition=run.repetition,
        attempt=session.history.next_attempt.get(key_of(run), 0),
        started_at=now(),
        provenance=collect(session.commit, session.hosts),
        host=socket.gethostname(),
        pid=os.getpid(),
        job_id=session.launcher.job_id,
    )
    with noted(session.sweep_dir, note):
        launched = session.launcher.launch(
            run.experiment, progress=session.follower.stage, weights=weights
        )
        record = RunRecord(
            sweep=note.sweep,
            experiment=note.experiment,
            experiment_id=note.experiment.experiment_id,
            repetition=note.repetition,
            attempt=note.attempt,
            started_at=note.started_at,
            finished_at=now(),
            provenance=note.provenance,
            **_shared_fields(launched),  # type: ignore[arg-type]
        )
        keep(record, launched, session.sweep_dir)
    session.history.add(record, note.provenance.fingerprint)
    session.follower.finish(record, launched.log_tail)
    return record


def _shared_fields(launched: LaunchedRun) -> Mapping[str, object]:
    names = {f.name for f in fields(launched)} & {f.name for f in fields(RunRecord)}
    return {name: getattr(launched, name) for name in names}


def _save_definition(sweep: Sweep, sweep_dir: Path) -> None:
    """What was asked for, beside the runs: seed, order and points."""
    content = {
        "name": sweep.name,
        "seed": sweep.seed,
        "order": [f"{run.experiment.experiment_id}/{run.repetition}" for run in sweep.runs()],
        "points": {point.experiment_id: to_json(point) for point in sweep.points},
    }
    write_atomically(sweep_dir / "sweep.json", (json.dumps(content, indent=1) + "\n").encode())
