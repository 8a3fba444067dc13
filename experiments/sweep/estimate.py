"""How long runs take, before any of them is made.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.sweep.execute import LAUNCH_ALLOWANCE_S
from experiments.sweep.sweep import PlannedRun

#: What a run takes beyond warm-up and measured steps: building and tracing; in a job of Slurm a
#: step and imports as well.
OVERHEAD_S = 5.0
STEP_OVERHEAD_S = 20.0

USUAL_MEASURED_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What runs take.

    Attributes:
        usual_s: about so long.
        most_s: no longer than this.
    """

    num_runs: int
    usual_s: float
    most_s: float


def estimate(runs: Sequence[PlannedRun], overhead_s: float) -> Estimate:
    """Add up what runs take, with so many seconds for each beyond measuring."""
    profiles = [run.experiment.profile for run in runs]
    return Estimate(
        num_runs=len(profiles),
        usual_s=sum(
            p.warmup_s + max(p.measured_s, USUAL_MEASURED_S) + overhead_s for p in profiles
        ),
        most_s=sum(p.deadline_s + LAUNCH_ALLOWANCE_S for p in profiles),
    )
