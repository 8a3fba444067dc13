"""What recording a step's timings costs, from stretches of steps with it and without."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from ps_allreduce.record.records import RecordingTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingCost:
    """Time of a step with recording over that without; 1 is no cost.

    Attributes:
        ratio: median over pairs of stretches.
        low, high: its 95 % interval.
    """

    ratio: float
    low: float
    high: float
    pairs: int
    steps_per_stretch: int


def recording_cost(stretches: RecordingTimes) -> RecordingCost:
    """Median ratio of recorded to bare stretches, with the 95 % interval of the median.

    The interval is that of the sign test: order statistics at n/2 -+ 0.98 sqrt(n).  Source:
    Conover, Practical Nonparametric Statistics, section 3.2 (normal approximation of the
    binomial).
    """
    pairs = zip(stretches.recorded_s, stretches.bare_s, strict=True)
    ratios = sorted(recorded / bare for recorded, bare in pairs)
    margin = math.ceil(0.98 * math.sqrt(len(ratios)))
    middle = len(ratios) // 2
    return RecordingCost(
        ratio=statistics.median(ratios),
        low=ratios[max(middle - margin, 0)],
        high=ratios[min(middle + margin, len(ratios) - 1)],
        pairs=len(ratios),
        steps_per_stretch=stretches.steps_per_stretch,
    )
