"""Run a sweep through a launcher: resume and retry, and when it ends.

Decides which runs are missing, from the records alone, what is looked at before the first of them,
and when the sweep ends.  How one run is made is decided in `session`.

A sweep that launches its main comparison as often as time allows is asked before every turn of
it, once all points have the fewest launches.  First, points leave it that are decided slower than
another one of their side.  It ends when no further turn fits into the time, or when the main ratio
is known well enough.  That the ratio may end it is noted in `sweep.json` before, because whoever
tells its interval later must account for it (`analysis.stats.decision`); what the clock says tells
nothing of the ratio.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np

from analysis.planning.choice import Glance, look_at
from experiments.sweep.definition import LAUNCHES, LEFT, Choices, save_definition
from experiments.sweep.folder import check_writable
from experiments.sweep.history import History, Standing, of_block, read_history
from experiments.sweep.session import Session, Workplace, open_session, run_once
from experiments.sweep.sweep import PlannedRun, Profile, Sweep, longest_run_s
from launchers.run.launcher import HostsLauncher
from ps_allreduce.point.inputs.data import InputFiles
from ps_allreduce.point.sides import both_sides
from ps_allreduce.record.files import EARLY_STOPPING, iter_record_paths
from ps_allreduce.record.records import Phases, RunRecord, Status


@dataclass(slots=True, kw_only=True)
class EarlyEnd:
    """Watches a sweep that is being made.

    Attributes:
        ends_at: when its time is over, on the monotonic clock; infinite for never.
        launches: of the main comparison when the sweep ended early; None if it did not.
        precise: it ended because the ratio is known well enough.
    """

    sweep: Sweep
    choices: Choices
    session: Session
    ends_at: float
    launches: int | None = None
    precise: bool = False
    _asked: int = 0

    def comes_before(self, run: PlannedRun) -> bool:
        """Whether the sweep has ended before this run, or its point has left it."""
        if self.launches is None and self._begins_turn(run):
            self._asked = run.turn
            look = self._look(run.turn)
            self._leave(run.turn, look)
            self.precise = self._is_precise(look)
            if self.precise or self._has_no_time(run.turn):
                self._end(run.turn)
        return self.is_beyond(run)

    def is_beyond(self, run: PlannedRun) -> bool:
        """Whether a run belongs to what is left out."""
        if run.turn < self.sweep.profile.repetitions:
            return False
        ended = self.launches is not None and run.turn >= self.launches
        going_on = (*self.sweep.contenders(run.turn), self.sweep.sentinel)
        return ended or run.experiment not in going_on

    def _look(self, turn: int) -> Glance | None:
        """What is known of the main comparison; None where nothing could follow from it."""
        sweep = self.sweep
        may_end, may_leave = sweep.profile.precision is not None, len(sweep.contenders(turn)) > 2
        if sweep.job_sizes or not both_sides(sweep.points) or not (may_end or may_leave):
            return None
        if may_end:
            self.choices.answers[EARLY_STOPPING] = turn
            save_definition(sweep, self.choices, self._folder)
        return look_at(self._folder)

    def _leave(self, turn: int, look: Glance | None) -> None:
        """Launch no more what cannot be the best of its side any more."""
        beaten = look.beaten if look else ()
        leaving = [p.experiment_id for p in self.sweep.contenders(turn) if p.point_id in beaten]
        if leaving:
            left = {**self.sweep.left, **dict.fromkeys(leaving, turn)}
            self.choices.answers[LEFT] = left
            self.sweep = replace(self.sweep, left=left)
            save_definition(self.sweep, self.choices, self._folder)

    def _is_precise(self, look: Glance | None) -> bool:
        precision, reached = self.sweep.profile.precision, look.half_width if look else None
        return precision is not None and reached is not None and reached <= precision

    def _begins_turn(self, run: PlannedRun) -> bool:
        """It is the first run of a turn of the main comparison alone, also of earlier calls."""
        alone = run.turn >= self.sweep.profile.repetitions and run.turn > self._asked
        tried = self.session.history.statuses
        return alone and not any(
            (point.experiment_id, run.repetition) in tried
            for point in self.sweep.contenders(run.turn)
        )

    def _end(self, launches: int) -> None:
        self.launches = launches
        self.choices.answers[LAUNCHES] = launches
        ended = replace(self.sweep, main_launches=launches)
        save_definition(ended, self.choices, self._folder)

    def _has_no_time(self, launches: int) -> bool:
        """Whether another turn would take longer than what is left; tells how many would not."""
        turn_s, left_s = self._turn_s(launches), self.ends_at - time.monotonic()
        planned = (self.sweep.main_launches or launches) - launches
        more = int(min(planned, left_s / turn_s)) if turn_s else planned
        more = max(more, self.sweep.fewest_turns - launches, 0)
        self.session.place.listener.expect(more * len(self.sweep.contenders(launches)))
        return more < 1

    def _turn_s(self, turn: int) -> float:
        """What a turn takes, by launches of this session of the points that are still in it."""
        made = self.session.made
        seconds = [
            [record.phases.total_s or 0.0 for record in made if record.experiment == point]
            for point in self.sweep.contenders(turn)
        ]
        return float(sum(np.mean(each) for each in seconds if each))

    @property
    def _folder(self) -> Path:
        return self.session.place.sweep_dir


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
    reading = [r for r in standing.missing if isinstance(r.experiment.workload.data, InputFiles)]
    _prepare(reading, place)
    return history, standing


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
