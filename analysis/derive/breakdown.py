"""Where the time of a step goes: compute, exposed communication, input wait.

The parts are those of `steps.Metrics`, means over the steps of all workers; here they are averaged
over launches.  They are costs, so the mean is the arithmetic one, and the parts add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from analysis.data.cases import Case, Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Mean seconds of a worker's step at one point.

    Attributes:
        launch_totals_s: the sum of the parts for each launch.
        step_time_p50_s, step_time_p95_s: means over launches of each launch's percentile.
    """

    point: Point
    compute_s: float
    communication_s: float
    input_wait_s: float
    step_time_p50_s: float
    step_time_p95_s: float
    launch_totals_s: tuple[float, ...]

    @property
    def total_s(self) -> float:
        """Mean step time."""
        return self.compute_s + self.communication_s + self.input_wait_s


def breakdowns(case: Case) -> tuple[Breakdown, ...]:
    """One for each point with a launch that is ok, in the order of the case."""
    found = (breakdown_of(point) for point in case.points)
    return tuple(item for item in found if item is not None)


def breakdown_of(point: Point) -> Breakdown | None:
    """The parts of a point's step; None without a launch that is ok."""
    runs = list(point.metrics.values())
    if not runs:
        return None
    return Breakdown(
        point=point,
        compute_s=fmean(run.compute_s for run in runs),
        communication_s=fmean(run.communication_s for run in runs),
        input_wait_s=fmean(run.input_wait_s for run in runs),
        step_time_p50_s=fmean(run.step_time_p50_s for run in runs),
        step_time_p95_s=fmean(run.step_time_p95_s for run in runs),
        launch_totals_s=tuple(
            run.compute_s + run.communication_s + run.input_wait_s for run in runs
        ),
    )
