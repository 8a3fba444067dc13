"""When a sweep ends that launches its main comparison as often as time allows.

Decides when it is asked: before every turn of the main comparison, once all points have the fewest
launches.  First, points that cannot be the best of their side any more leave it.  It ends when no
further turn fits into the time, or when the main ratio is known well enough.  That the ratio was
looked at is noted in `sweep.json` before, because whoever tells its interval later must account for
it (`analysis.stats.decision`); what the clock says tells nothing of the ratio.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from analysis.planning.precision import half_width
from experiments.sweep.contenders import both_sides, still_open
from experiments.sweep.definition import CONTENDERS, LAUNCHES, Choices, save_definition
from experiments.sweep.history import kept_records
from experiments.sweep.session import Session
from experiments.sweep.sweep import PlannedRun, Sweep
from ps_allreduce.record.files import EARLY_STOPPING
from ps_allreduce.record.records import Status


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
            self._narrow()
            self.precise = self._is_precise(run.turn)
            if self.precise or self._has_no_time(run.turn):
                self._end(run.turn)
        return self.is_beyond(run)

    def is_beyond(self, run: PlannedRun) -> bool:
        """Whether a run belongs to what is left out."""
        if run.turn < self.sweep.profile.repetitions:
            return False
        ended = self.launches is not None and run.turn >= self.launches
        return ended or run.experiment not in (*self.sweep.contenders, self.sweep.sentinel)

    def _narrow(self) -> None:
        """See once which points may still be the best of their side."""
        if (
            CONTENDERS in self.choices.answers
            or self.sweep.job_sizes
            or not both_sides(self.sweep.points)
        ):
            return
        points = self.sweep.contenders
        block = self.session.place.provenance(self.session.hosts).fingerprint
        rates: dict[str, list[float]] = {}
        for record in kept_records(self._folder, block, [p.experiment_id for p in points]):
            if record.status is Status.OK and record.metrics is not None:
                rates.setdefault(record.experiment_id, []).append(record.metrics.examples_per_sec)
        chosen = tuple(p.experiment_id for p in still_open(points, rates))
        self.choices.decide(CONTENDERS, tuple[str, ...], lambda: chosen)
        self.sweep = replace(self.sweep, main_ids=chosen)
        save_definition(self.sweep, self.choices, self._folder)

    def _begins_turn(self, run: PlannedRun) -> bool:
        """It is the first run of a turn of the main comparison alone."""
        return run.turn >= self.sweep.profile.repetitions and run.turn > self._asked

    def _end(self, launches: int) -> None:
        self.launches = launches
        self.choices.answers[LAUNCHES] = launches
        ended = replace(self.sweep, main_launches=launches)
        save_definition(ended, self.choices, self._folder)

    def _has_no_time(self, launches: int) -> bool:
        """Whether another turn would take longer than what is left; tells how many would not."""
        turn_s, left_s = self._turn_s(), self.ends_at - time.monotonic()
        planned = (self.sweep.main_launches or launches) - launches
        more = int(min(planned, left_s / turn_s)) if turn_s else planned
        more = max(more, self.sweep.fewest_turns - launches, 0)
        self.session.place.listener.expect(more * len(self.sweep.contenders))
        return more < 1

    def _turn_s(self) -> float:
        """What a turn took in this session, summed over the points of the main comparison."""
        made = self.session.made
        seconds = [
            [record.phases.total_s or 0.0 for record in made if record.experiment == point]
            for point in self.sweep.contenders
        ]
        return float(sum(np.mean(each) for each in seconds if each))

    @property
    def _folder(self) -> Path:
        return self.session.place.sweep_dir

    def _is_precise(self, launches: int) -> bool:
        """Look, where the profile asks for it, and note it before anything is concluded."""
        precision = self.sweep.profile.precision
        if precision is None or self.sweep.job_sizes:
            return False
        self.choices.answers[EARLY_STOPPING] = launches
        save_definition(self.sweep, self.choices, self._folder)
        reached = half_width(self._folder)
        return reached is not None and reached <= precision
