"""How long runs take, before any of them is made.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.sweep.profiles import Profile
from experiments.sweep.sweep import PlannedRun
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import Measurement

#: Beyond a run's own deadline: bringing fork servers up, and taking everything down.
LAUNCH_ALLOWANCE_S = 60.0

#: What a run takes beyond warm-up and measured steps: building and tracing; in a job of a batch
#: system a step and imports as well.
OVERHEAD_S = 5.0
JOB_OVERHEAD_S = 20.0

#: What a window that is only counted in steps is expected to take.
TYPICAL_WINDOW_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedDuration:
    """How long runs take together.

    Attributes:
        likely_s: about so long.
        most_s: no longer than this.
    """

    num_runs: int
    likely_s: float
    most_s: float


def longest_run_s(profile: Profile) -> float:
    """From launch until everything is taken down, at most."""
    return profile.deadline_s + LAUNCH_ALLOWANCE_S


def expected_duration(
    runs: Sequence[PlannedRun], profile: Profile, overhead_s: float
) -> ExpectedDuration:
    """Add up what runs take, with so many seconds for each beyond measuring."""
    return ExpectedDuration(
        num_runs=len(runs),
        likely_s=sum(_likely_s(run.experiment) + overhead_s for run in runs),
        most_s=len(runs) * longest_run_s(profile),
    )


def _likely_s(experiment: Experiment) -> float:
    """Warm-up and window."""
    measurement = experiment.measurement
    if not isinstance(measurement, Measurement):
        return TYPICAL_WINDOW_S
    return measurement.warmup_s + max(measurement.measured_s, TYPICAL_WINDOW_S)
