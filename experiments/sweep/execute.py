"""Run a sweep through a launcher: resume, retry, keep every record.

Decides which runs are missing, from the records alone, and writes one record per attempt.  The same
path serves a single run and a sweep.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from experiments.sweep.definition import Choices, save_definition
from experiments.sweep.folder import InFlight, keep, locked, noted, now, recover
from experiments.sweep.history import History, key_of, read_history
from experiments.sweep.sweep import PlannedRun, Profile, Sweep, longest_run_s
from launchers.run.launcher import HostsLauncher
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
class Workplace:
    """Where runs are made and kept, and who hears of them.

    Attributes:
        commit: the state of the suite's source.
    """

    launcher: HostsLauncher
    sweep_dir: Path
    commit: str
    listener: RunListener = field(default_factory=RunListener)

    @property
    def block(self) -> str:
        """The fingerprint of runs that would be made here now."""
        return collect(self.commit, self.launcher.host_facts()).fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What all runs of one call of the suite share.

    Attributes:
        sweep_name: the sweep that records belong to.
        profile: whose deadline holds for every run.
        hosts: what sets the launcher's hosts apart from others.
        history: of the folder; runs are added as they are made.
    """

    place: Workplace
    sweep_name: str
    profile: Profile
    hosts: Sequence[HostFacts]
    history: History


def execute(
    sweep: Sweep, runs: Sequence[PlannedRun], place: Workplace, choices: Choices
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
        place.launcher.check(point)
    with open_session(place, sweep.name, sweep.profile) as session:
        queue = [run for run in runs if session.history.needs_run(run)]
        save_definition(sweep, choices, place.sweep_dir)
        place.listener.begin(len(queue), len(runs) - len(queue))
        for workload in {run.experiment.workload for run in queue}:
            place.launcher.prepare(workload)
        made, stop = _run_queue(session, queue)
    return SessionResult(
        made=tuple(made),
        kept=len(runs) - len(queue),
        wall_s=time.monotonic() - begin,
        stop=stop,
    )


@contextmanager
def open_session(place: Workplace, sweep_name: str, profile: Profile) -> Iterator[Session]:
    """Lock the folder; look at the hosts and at what the folder holds already.

    The run that was being made when the suite was killed, if there is one, is recorded first.

    Raises:
        UserError: the folder cannot be used, or somebody seems to be making that run still.
    """
    with locked(place.sweep_dir):
        record = recover(place.sweep_dir, lambda launcher: site_kind(launcher).scheduler)
        if record is not None:
            place.listener.recovered(record)
        hosts = place.launcher.host_facts()
        block = collect(place.commit, hosts).fingerprint
        yield Session(
            place=place,
            sweep_name=sweep_name,
            profile=profile,
            hosts=hosts,
            history=read_history(place.sweep_dir, block),
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
            if not has_time(session.place.launcher, session.profile):
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
    place = session.place
    place.listener.start(run)
    note = _note_of(session, run)
    with noted(place.sweep_dir, note):
        launched = place.launcher.launch(
            run.experiment,
            deadline_s=note.deadline_s,
            progress=place.listener.stage,
            weights=weights,
        )
        record = note.record(launched)
        keep(record, launched, place.sweep_dir)
    session.history.add(record, note.provenance.fingerprint)
    place.listener.finish(record, launched.log_tail)
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
        provenance=collect(session.place.commit, session.hosts),
        host=socket.gethostname(),
        pid=os.getpid(),
        job_id=session.place.launcher.job_id,
    )
