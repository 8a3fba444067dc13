"""Whether a sweep ends before its last launches, because its main ratio is known well enough.

Decides when it is looked at: after every turn of the main comparison, once every point has the
fewest launches.  Every look is noted in `sweep.json`, because whoever tells the interval later must
account for it (`analysis.stats.looks`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from analysis.planning.precision import half_width
from experiments.sweep.definition import LAUNCHES, Choices, save_definition
from experiments.sweep.sweep import PlannedRun, Sweep
from ps_allreduce.record.looks import LOOKS, Looks
from ps_allreduce.serialization import to_json


@dataclass(slots=True, kw_only=True)
class EarlyEnd:
    """Looks at the main comparison of a sweep that is being made.

    Attributes:
        launches: of the main comparison when the sweep ended early; None if it did not.
    """

    sweep: Sweep
    choices: Choices
    sweep_dir: Path
    launches: int | None = None

    def comes_before(self, run: PlannedRun) -> bool:
        """Whether the sweep has ended before this run."""
        if self.launches is None and self._is_due(run) and self._is_precise(run.turn):
            self.launches = run.turn
            self.choices.answers[LAUNCHES] = run.turn
            ended = replace(self.sweep, main_launches=run.turn)
            save_definition(ended, self.choices, self.sweep_dir)
        return self.is_beyond(run)

    def is_beyond(self, run: PlannedRun) -> bool:
        """Whether a run belongs to the turns that are left out."""
        return self.launches is not None and run.turn >= self.launches

    def _is_due(self, run: PlannedRun) -> bool:
        """A turn of the main comparison begins, and nobody looked at those before it."""
        profile, looks = self.sweep.profile, self._looks
        looked = looks is not None and run.turn in looks.launches
        begins = run.turn >= profile.repetitions and not looked
        return begins and profile.precision is not None and not self.sweep.job_sizes

    @property
    def _looks(self) -> Looks | None:
        return self.choices.answer(LOOKS, Looks)

    def _is_precise(self, launches: int) -> bool:
        """Look, and note it before anything is concluded."""
        before = self._looks
        looks = Looks(
            launches=(*(before.launches if before else ()), launches),
            most=before.most if before else max(self.sweep.main_launches or 0, launches),
        )
        self.choices.answers[LOOKS] = to_json(looks)
        save_definition(self.sweep, self.choices, self.sweep_dir)
        reached = half_width(self.sweep_dir)
        return reached is not None and reached <= (self.sweep.profile.precision or 0.0)
