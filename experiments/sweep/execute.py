"""Run a sweep through a launcher: resume, retry, keep every record.

Decides which runs are missing, from the records alone, and writes one record per attempt.  The same
path serves a single run and a sweep.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from experiments.sweep.definition import Choices, save_definition
from experiments.sweep.duration import longest_run_s
from experiments.sweep.folder import InFlight, keep, locked, noted, now, recover
from experiments.sweep.history import History, key_of, read_history
from experiments.sweep.profiles import Profile
from experiments.sweep.sweep import PlannedRun, Sweep
from launchers.run.launcher import HostsLauncher
from launchers.scheduler import Scheduler
from launchers.sites import site_kind
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.hosts import HostFacts
from ps_allreduce.record.provenance import collect
from ps_allreduce.record.records import RunRecord, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResult:
    """What a session of a sweep came to.

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


class RunListener:
    """Is told how a sweep goes on; this one does nothing about it."""

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
        profile: whose deadline holds for every run.
        hosts: what sets the launcher's hosts apart from others.
        history: of the folder; runs are added as they are made.
    """

    launcher: HostsLauncher
    sweep_name: str
    sweep_dir: Path
    profile: Profile
    commit: str
    hosts: Sequence[HostFacts]
    history: History
    listener: RunListener


def block_of(launcher: HostsLauncher, commit: str) -> str:
    """The fingerprint of runs that this launcher would make now."""
    return collect(commit, launcher.host_facts()).fingerprint


def execute(
    sweep: Sweep,
    runs: Sequence[PlannedRun],
    launcher: HostsLauncher,
    sweep_dir: Path,
    commit: str,
    listener: RunListener,
    choices: Choices | None = None,
) -> SessionResult:
    """Make the runs that are missing.

    Args:
        runs: those runs of the sweep that are this session's.
        choices: what was decided for the sweep, to be stored with it.

    Raises:
        UserError: a point cannot be run, or the folder cannot be used.
    """
    begin = time.monotonic()
    for point in dict.fromkeys(run.experiment for run in runs):
        launcher.check(point)
    with locked(sweep_dir):
        session = open_session(launcher, sweep.name, sweep_dir, sweep.profile, commit, listener)
        queue = [run for run in runs if session.history.needs_run(run)]
        save_definition(sweep, choices or Choices(), sweep_dir)
        listener.begin(len(queue), len(runs) - len(queue))
        for workload in {run.experiment.workload for run in queue}:
            launcher.prepare(workload)
        made, stop = _run_queue(session, queue)
    return SessionResult(
        made=tuple(made),
        kept=len(runs) - len(queue),
        wall_s=time.monotonic() - begin,
        stop=stop,
    )


def open_session(
    launcher: HostsLauncher,
    sweep_name: str,
    sweep_dir: Path,
    profile: Profile,
    commit: str,
    listener: RunListener,
) -> Session:
    """Look at the hosts and at what the folder holds already.

    The run that was being made when the suite was killed, if there is one, is recorded first.

    Raises:
        UserError: somebody seems to be making that run still.
    """
    record = recover(sweep_dir, _scheduler_of)
    if record is not None:
        listener.recovered(record)
    hosts = launcher.host_facts()
    return Session(
        launcher=launcher,
        sweep_name=sweep_name,
        sweep_dir=sweep_dir,
        profile=profile,
        commit=commit,
        hosts=hosts,
        history=read_history(sweep_dir, collect(commit, hosts).fingerprint),
        listener=listener,
    )


def _scheduler_of(launcher: str) -> Scheduler | None:
    return site_kind(launcher).scheduler


def _run_queue(
    session: Session, queue: Sequence[PlannedRun]
) -> tuple[list[RunRecord], Stop | None]:
    """Make runs in order; those that fail are tried again after all others."""
    made: list[RunRecord] = []
    again = list(queue)
    while again:
        pending, again = again, []
        for run in pending:
            if not has_time(session.launcher, session.profile):
                return made, Stop.NO_TIME
            record = run_once(session, run)
            made.append(record)
            if record.status is Status.INTERRUPTED:
                return made, Stop.INTERRUPTED
            if session.history.needs_run(run):
                again.append(run)
    return made, None


def has_time(launcher: HostsLauncher, profile: Profile) -> bool:
    """Whether a run of this profile would finish before the scheduler's limit."""
    time_left_s = launcher.time_left_s()
    return time_left_s is None or time_left_s >= longest_run_s(profile)


def run_once(session: Session, run: PlannedRun, weights: Path | None = None) -> RunRecord:
    """Launch one run and keep its files: the one way in which runs are made.

    Args:
        weights: file that takes the final trainable weights.
    """
    session.listener.start(run)
    note = _note_of(session, run)
    with noted(session.sweep_dir, note):
        launched = session.launcher.launch(
            run.experiment,
            deadline_s=note.deadline_s,
            progress=session.listener.stage,
            weights=weights,
        )
        record = note.record(launched)
        keep(record, launched, session.sweep_dir)
    session.history.add(record, note.provenance.fingerprint)
    session.listener.finish(record, launched.log_tail)
    return record


def run_once_more(
    session: Session, experiment: Experiment, weights: Path | None = None
) -> RunRecord:
    """Launch a point once more than it ever was, whatever became of it before."""
    repetition = session.history.next_repetition(experiment.experiment_id)
    return run_once(session, PlannedRun(experiment=experiment, repetition=repetition), weights)


def _note_of(session: Session, run: PlannedRun) -> InFlight:
    return InFlight(
        sweep=session.sweep_name,
        profile=session.profile.name,
        deadline_s=session.profile.deadline_s,
        experiment=run.experiment,
        repetition=run.repetition,
        attempt=session.history.next_attempt.get(key_of(run), 0),
        started_at=now(),
        provenance=collect(session.commit, session.hosts),
        host=socket.gethostname(),
        pid=os.getpid(),
        job_id=session.launcher.job_id,
    )
