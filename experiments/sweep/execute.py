"""Run a sweep through a launcher: resume and retry.

Decides which runs are missing, from the records alone, what is looked at before the first of them,
and when the sweep ends.  How one run is made is decided in `session`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from experiments.sweep.definition import Choices, save_definition
from experiments.sweep.history import History, Standing, of_block, read_history
from experiments.sweep.last_turn import EarlyEnd
from experiments.sweep.session import Session, Workplace, open_session, run_once
from experiments.sweep.sweep import PlannedRun, Profile, Sweep, longest_run_s
from experiments.sweep.writable import check_writable
from launchers.run.launcher import HostsLauncher
from ps_allreduce.point.inputs.data import InputFiles
from ps_allreduce.record.files import iter_record_paths
from ps_allreduce.record.records import Phases, RunRecord, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResult:
    """What a session of a sweep came to.

    Attributes:
        made: records of this session.
        kept: runs that earlier sessions had settled.
        wall_s: duration of this session.
        stop: why the session ended before the sweep did, None if it did not.
        standing: how far the sweep has come.
    """

    made: tuple[RunRecord, ...]
    kept: int
    wall_s: float
    stop: Stop | None
    standing: Standing

    @property
    def useful_fraction(self) -> float:
        """Share of the session's time inside warm-up and measured steps."""
        return self.measured_share + self._share(p.warmup_s for p in self._phases)

    @property
    def measured_share(self) -> float:
        """Share of the session's time inside measured steps."""
        return self._share(p.measured_s for p in self._phases)

    @property
    def _phases(self) -> list[Phases]:
        return [record.phases for record in self.made]

    def _share(self, seconds: Iterable[float | None]) -> float:
        return sum(each or 0.0 for each in seconds) / self.wall_s if self.made else 0.0


class Stop(StrEnum):
    """Why a session ends before its sweep."""

    INTERRUPTED = "interrupted"
    NO_TIME = "no time"
    PRECISE = "precise"


def execute(
    sweep: Sweep,
    runs: Sequence[PlannedRun],
    place: Workplace,
    choices: Choices,
    *,
    retry_failed: bool = False,
    begun: float | None = None,
) -> SessionResult:
    """Make the runs that are missing.

    Args:
        runs: those runs of the sweep that are this session's.
        choices: what was decided for the sweep, to be stored with it.
        retry_failed: try again what earlier sessions tried often enough.
        begun: when its time began, on the monotonic clock; None for now.

    Raises:
        UserError: a point cannot be run, or the folder cannot be used.
        LaunchError: the host has a fault that does not pass.
    """
    begin = time.monotonic()
    ends_at = (begin if begun is None else begun) + (sweep.profile.budget_s or math.inf)
    _see_first(runs, place)
    with open_session(place, sweep.name, sweep.profile, retry_failed=retry_failed) as session:
        queue = session.history.standing(runs).missing
        kept = len(runs) - len(queue)
        place.listener.begin(_likely(queue, sweep), kept)
        _prepare(queue, place)
        save_definition(sweep, choices, place.sweep_dir)
        early = EarlyEnd(sweep=sweep, choices=choices, session=session, ends_at=ends_at)
        stop = _run_queue(session, queue, early)
        runs = [run for run in runs if not early.is_beyond(run)]
    return SessionResult(
        made=tuple(session.made),
        kept=kept,
        wall_s=time.monotonic() - begin,
        stop=stop,
        standing=session.history.standing(runs),
    )


def _see_first(runs: Sequence[PlannedRun], place: Workplace) -> None:
    """Refuse what cannot be run; where a sweep begins, look at its input before it is written."""
    if any(iter_record_paths(place.sweep_dir)):
        _see_possible(runs, place)  # which are missing is read once, when nobody else writes
    else:
        look_ahead(runs, place)


def _prepare(runs: Iterable[PlannedRun], place: Workplace) -> None:
    """Have the input of runs made or checked."""
    for workload in {run.experiment.workload for run in runs}:
        place.launcher.prepare(workload)


def _likely(queue: Sequence[PlannedRun], sweep: Sweep) -> int:
    """How many of the missing runs will be made, as far as it is known before the first of them."""
    if sweep.profile.budget_s is None or sweep.profile.pilot:
        return len(queue)
    return sum(run.turn < sweep.fewest_turns for run in queue)


def look_ahead(
    runs: Sequence[PlannedRun], place: Workplace, *, retry_failed: bool = False
) -> tuple[History, Standing]:
    """See whether the missing runs could be made, before anything of the sweep is written.

    Returns:
        What the folder holds already, and how far the sweep has come with it.

    Raises:
        UserError: a point cannot be run, its input is damaged, or the folder cannot be used.
    """
    _see_possible(runs, place)
    history = read_history(place.sweep_dir, of_block(place.block), retry_failed=retry_failed)
    standing = history.standing(runs)
    # Other input is made, not checked.
    _prepare([run for run in standing.missing if _reads_files(run)], place)
    return history, standing


def _reads_files(run: PlannedRun) -> bool:
    return isinstance(run.experiment.workload.data, InputFiles)


def _see_possible(runs: Sequence[PlannedRun], place: Workplace) -> None:
    check_writable(place.sweep_dir)
    points = dict.fromkeys(run.experiment for run in runs)
    for workload in {point.workload for point in points}:
        place.launcher.describe(workload)  # so that it is known what memory a batch needs
    for point in points:
        place.launcher.check(point)


def _run_queue(session: Session, queue: Sequence[PlannedRun], early: EarlyEnd) -> Stop | None:
    """Make runs in order; those that fail are tried again after all others."""
    again = list(queue)
    while again:
        pending, again = again, []
        for run in pending:
            if not has_time(session.place.launcher, session.profile):
                return Stop.NO_TIME
            if early.comes_before(run):
                continue
            if run_once(session, run).status is Status.INTERRUPTED:
                return Stop.INTERRUPTED
            if session.history.needs_run(run):
                again.append(run)
    return Stop.PRECISE if early.precise else None


def has_time(launcher: HostsLauncher, profile: Profile) -> bool:
    """Whether a run of this profile would finish before the scheduler's limit."""
    time_left_s = launcher.time_left_s()
    return time_left_s is None or time_left_s >= longest_run_s(profile)
