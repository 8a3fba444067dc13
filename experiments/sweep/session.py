"""One call of the suite in a results folder, and the runs that are made in it, one at a time.

Decides that every launch leaves a record, whatever becomes of it.  A launch that a fault of the
host ended says nothing about the run: it is made again at once, up to a bound.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from experiments.sweep.folder import (
    InFlight,
    check_there,
    keep,
    locked,
    noted,
    now,
    recover,
    set_aside,
    withdraw,
)
from experiments.sweep.history import History, key_of, of_block, read_history
from experiments.sweep.sweep import LAUNCH_ALLOWANCE_S, PlannedRun, Profile
from launchers.run.conclude import LaunchedRun
from launchers.run.launcher import HostsLauncher
from launchers.sites.kinds import site_kind
from ps_allreduce.errors import HostFault, LaunchError, UserError, in_a_sentence
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Digits
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.hosts import HostFacts
from ps_allreduce.record.provenance import Provenance, collect, running_system
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.scratch import without_scratch_names

#: So often one fault of the host may end launches in a row, and all of its faults together.
SAME_FAULTS = 3
ALL_FAULTS = 10

#: Before the next launch, after the first fault in a row and after every further one; seconds.
PAUSES_S = (1.0, 5.0)


class RunListener:
    """Is told how a sweep goes on; this one does nothing about it."""

    def prepare(self, text: str, done: int, total: int) -> None:
        """So many of the runs are over that come before the sweep."""

    def begin(self, total: int, kept: int) -> None:
        """So many runs are to be made, so many were made before."""

    def expect(self, more: int) -> None:
        """So many more runs are likely to be made."""

    def start(self, run: PlannedRun) -> None:
        """A run begins."""

    def stage(self, text: str) -> None:
        """What the present run is doing."""

    def recovered(self, record: RunRecord) -> None:
        """A run that an earlier session did not live to record is recorded now."""

    def refused(self, reason: str) -> None:
        """A file that should be a record is none, and was set aside."""

    def finish(self, record: RunRecord, log_tail: str) -> None:
        """A run has ended; `log_tail` is the end of the right log if it did not succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Where runs are made and kept, and who hears of them.

    Attributes:
        commit: the state of the suite's source.
        pause: waits for so many seconds.
    """

    launcher: HostsLauncher
    sweep_dir: Path
    commit: str
    listener: RunListener = field(default_factory=RunListener)
    pause: Callable[[float], None] = time.sleep

    @property
    def block(self) -> str:
        """The fingerprint of runs that would be made here now."""
        return self.provenance(self.launcher.host_facts()).fingerprint

    def provenance(self, hosts: Sequence[HostFacts]) -> Provenance:
        """That of runs that are made here on such hosts."""
        return collect(self.commit, hosts, self.launcher.congestion)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What all runs of one call of the suite share.

    Attributes:
        sweep_name: the sweep that records belong to.
        profile: whose deadline holds for every run.
        hosts: what sets the launcher's hosts apart from others.
        history: of the folder; runs are added as they are made.
        made: the records of this call, in their order.
    """

    place: Workplace
    sweep_name: str
    profile: Profile
    hosts: Sequence[HostFacts]
    history: History
    made: list[RunRecord] = field(default_factory=list)


@contextmanager
def open_session(
    place: Workplace, sweep_name: str, profile: Profile, *, retry_failed: bool = False
) -> Iterator[Session]:
    """Lock the folder; look at the hosts and at what the folder holds already.

    The run that was being made when the suite was killed, if there is one, is recorded first; what
    should be a record and is none is set aside.

    Raises:
        UserError: the folder cannot be used, or somebody seems to be making that run still.
    """
    with locked(place.sweep_dir) as is_locked:
        record = recover(
            place.sweep_dir, lambda launcher: site_kind(launcher).scheduler, is_locked=is_locked
        )
        if record is not None:
            place.listener.recovered(record)
        hosts = place.launcher.host_facts()
        block = place.provenance(hosts).fingerprint
        history = read_history(place.sweep_dir, of_block(block), retry_failed=retry_failed)
        for path, error in history.refused.items():
            set_aside(path, str(error))
            place.listener.refused(str(error))
        yield Session(
            place=place,
            sweep_name=sweep_name,
            profile=profile,
            hosts=hosts,
            history=history,
        )


def run_once(session: Session, run: PlannedRun, weights: Path | None = None) -> RunRecord:
    """Launch one run, again after a fault of the host: the one way in which runs are made.

    Args:
        weights: file that takes the trainable weights (`record.variables`).

    Raises:
        UserError: the folder cannot be written.
        LaunchError: the host has a fault that does not pass.
    """
    faults: list[str] = []
    while True:
        record, fault = _attempt(session, run, weights, again=bool(faults))
        if not fault:
            return record
        faults.append(without_scratch_names(fault))
        if faults.count(faults[-1]) == SAME_FAULTS or len(faults) == ALL_FAULTS:
            raise LaunchError(
                f"no run can be made here: {fault.rstrip('.')} ({len(faults)} times in a row). "
                "Mend this; then the same command makes the runs that are missing."
            )
        session.place.pause(PAUSES_S[min(len(faults), len(PAUSES_S)) - 1])


def _attempt(
    session: Session, run: PlannedRun, weights: Path | None, *, again: bool
) -> tuple[RunRecord, str]:
    """Launch once and keep the files; the record, and the fault of the host that ended the run."""
    place = session.place
    check_there(place.sweep_dir)
    place.listener.start(run)
    note = _note_of(session, run)
    with noted(place.sweep_dir, note):
        launched = _launched(session, note, weights, again=again)
        record = note.record(launched)
        keep(record, launched, place.sweep_dir)
    session.history.add(record, counts=True)
    session.made.append(record)
    place.listener.finish(record, launched.log_tail)
    return record, launched.host_fault


def _launched(
    session: Session, note: InFlight, weights: Path | None, *, again: bool
) -> LaunchedRun:
    place, workload = session.place, note.experiment.workload
    try:
        if again and _has_files(workload):  # whatever deleted files may have had these
            place.launcher.prepare(workload)
        return place.launcher.launch(
            note.experiment,
            deadline_s=session.profile.deadline_s,
            limit_s=note.deadline_s,
            progress=place.listener.stage,
            weights=weights,
        )
    except UserError:
        withdraw(place.sweep_dir)
        raise
    except (HostFault, OSError) as error:  # no temporary folder, no room in it, no file handle
        fault = str(in_a_sentence(error) if isinstance(error, OSError) else error)
        return LaunchedRun(status=Status.INTERRUPTED, reason=fault, host_fault=fault)


def _has_files(workload: Workload) -> bool:
    """The suite has put files of the workload on the hosts."""
    made = isinstance(workload.data, Digits | ImageFiles)
    return made or isinstance(workload.model, OwnModel)


def _limit_s(session: Session) -> float:
    """How long a run may take whose steps need it: no longer than the scheduler gives."""
    profile, time_left_s = session.profile, session.place.launcher.time_left_s()
    if time_left_s is None:
        return profile.limit_s
    return min(profile.limit_s, max(profile.deadline_s, time_left_s - LAUNCH_ALLOWANCE_S))


def run_once_more(
    session: Session, experiment: Experiment, weights: Path | None = None
) -> RunRecord:
    """Launch a point once more than it ever was, whatever became of it before."""
    repetition = session.history.next_repetition(experiment.experiment_id)
    return run_once(session, PlannedRun(experiment=experiment, repetition=repetition), weights)


def run_uninterrupted(
    session: Session, experiment: Experiment, weights: Path | None = None
) -> RunRecord:
    """The same, for a command that ends when a run of it is interrupted.

    Raises:
        KeyboardInterrupt: somebody has interrupted the run.
    """
    record = run_once_more(session, experiment, weights)
    if record.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return record


def _note_of(session: Session, run: PlannedRun) -> InFlight:
    return InFlight(
        sweep=session.sweep_name,
        profile=session.profile.name,
        deadline_s=_limit_s(session),
        experiment=run.experiment,
        repetition=run.repetition,
        attempt=session.history.next_attempt.get(key_of(run), 0),
        started_at=now(),
        provenance=session.place.provenance(session.hosts),
        host=socket.gethostname(),
        pid=os.getpid(),
        machine=running_system(),
        job_id=session.place.launcher.job_id,
    )
