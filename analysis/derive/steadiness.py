"""Whether the steps of a run were as fast at its end as at its beginning.

Decides the label of a run from its measured steps, as Barrett et al. (2017) label benchmarks: flat,
warming up, slowing down, or unsteady.  The steps are cut where their level changes; the cuts are
those of the least squares with a price for every cut, which PELT finds as well (Killick, Fearnhead
and Eckley 2012).  A label is told and counted; no run is dropped for it.  When a warm-up ends is
decided by the runner.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import numpy.typing as npt

from ps_allreduce.record.steps import Phase, StepTable

#: Levels that differ by less are the same.
SAME = 0.03

#: Steps are put together to so many batches, and fewer than this many steps have no label.
BATCHES, LEAST_STEPS = 40, 20

#: Batches of a stretch with a level of its own, at least; and of the steady end of a steady run.
SHORTEST, STEADY_SHARE = 3, 0.25

#: Price of a cut in variances, times the logarithm of the batches: above Schwarz's 2, because the
#: steps of a run are not independent.
PRICE = 3.0

Floats = npt.NDArray[np.float64]


class Steadiness(StrEnum):
    """How the step time of a run went."""

    FLAT = "flat"
    WARMING_UP = "warming up"
    SLOWING_DOWN = "slowing down"
    UNSTEADY = "unsteady"


def steadiness_of(steps: StepTable) -> Steadiness | None:
    """The label of a run; None where it has too few measured steps."""
    relative = _step_times(steps)
    if len(relative) < LEAST_STEPS:
        return None
    count = min(BATCHES, len(relative) // 2)
    # A median, so that one step that was late is no change.
    return label_of(np.array([np.median(part) for part in np.array_split(relative, count)]))


def _step_times(steps: StepTable) -> Floats:
    """Measured steps of all workers as they ended, each over the median of its worker.

    A worker most of whose steps took no time, by a clock that was set, says nothing.
    """
    ends, times = [np.empty(0)], [np.empty(0)]
    for table in steps.by_worker():
        measured = table.end[table.phase == Phase.MEASURED]
        durations = np.diff(measured)
        if len(durations) and (median := np.median(durations)) > 0.0:
            ends.append(measured[1:])
            times.append(durations / median)
    return np.concatenate(times)[np.argsort(np.concatenate(ends), kind="stable")]


def label_of(levels: Floats) -> Steadiness:
    """The label of a series of step times, oldest first; any unit.

    The end is the last stretch and all before it that are on its level.  Without a steady end of a
    quarter of the series it is unsteady.
    """
    cuts = change_points(levels)
    stretches = np.split(levels, cuts)
    means = np.array([stretch.mean() for stretch in stretches])
    other = np.flatnonzero(np.abs(means / means[-1] - 1) > SAME)
    if not len(other):
        return Steadiness.FLAT
    steady = sum(len(stretch) for stretch in stretches[other[-1] + 1 :])
    if steady < STEADY_SHARE * len(levels):
        return Steadiness.UNSTEADY
    slower = (means[other] > means[-1]).all()
    return Steadiness.WARMING_UP if slower else Steadiness.SLOWING_DOWN


def change_points(levels: Floats) -> list[int]:
    """Where a series changes its mean: the first positions of all stretches but the first."""
    count, price = len(levels), PRICE * np.log(len(levels)) * _variance(levels)
    sums, squares = (np.concatenate([[0.0], np.cumsum(levels**power)]) for power in (1, 2))
    best, last = np.full(count + 1, np.inf), np.zeros(count + 1, dtype=int)
    best[0] = -price
    for end in range(SHORTEST, count + 1):
        begins = np.arange(0, end - SHORTEST + 1)
        total = sums[end] - sums[begins]
        costs = squares[end] - squares[begins] - total**2 / (end - begins)
        all_ = best[begins] + costs + price
        last[end] = int(np.argmin(all_))
        best[end] = all_[last[end]]
    cuts, position = [], int(last[count])
    while position > 0:
        cuts.append(position)
        position = int(last[position])
    return cuts[::-1]


def _variance(levels: Floats) -> float:
    """Of the noise around the levels, from neighbours, so that no change of level adds to it."""
    spread = float(np.median(np.abs(np.diff(levels)))) * 1.4826 / np.sqrt(2)
    return float(max(spread, 1e-9 * np.median(levels)) ** 2)
