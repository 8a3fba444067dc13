"""How a sweep spends its time: the length of windows, and how many launches there are.

Decides both together: the window with which the main interval gets narrowest in the time there is.
`docs/decisions/0015-time-goes-to-the-main-comparison.md` has the formula.  Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from analysis.planning.variances import LaunchCost, PilotResult

#: The windows to choose from, in seconds; each has so many steps at least.
WINDOWS_S = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 20.0)
FEWEST_STEPS = 8

#: More launches of a point are not made: others would gain more from the time.
MOST_LAUNCHES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPart:
    """What a model's part of a sweep wants.

    Attributes:
        points: tasks of each point that is launched as often as the profile says at least.
        main: tasks of each point that is launched as often as time allows.
    """

    pilot: PilotResult
    points: tuple[int, ...]
    main: tuple[int, ...]

    def seconds(self, tasks: Sequence[int], window_s: float) -> float:
        """What a launch of each of these points takes, by their numbers of tasks."""
        costs = sorted((cost.tasks, _launch_s(cost, window_s)) for cost in self.pilot.costs)
        numbers, times = zip(*costs, strict=True)
        return float(np.interp(tasks, numbers, times).sum())

    def half_width(self, window_s: float, launches: int) -> float:
        """Of the t-interval of a mean of so many launches, on the logarithm.

        Its variance is (launch^2 + second^2/window)/launches, that of two-stage sampling (Cochran,
        "Sampling Techniques", 3rd ed. 1977, section 10.3; for benchmarks Kalibera and Jones,
        "Rigorous Benchmarking in Reasonable Time", ISMM 2013).
        """
        variance = self.pilot.launch**2 + self.pilot.second**2 / window_s
        return float(stdtrit(launches - 1, 0.975)) * math.sqrt(variance / launches)


def _launch_s(cost: LaunchCost, window_s: float) -> float:
    return cost.overhead_s + max(window_s, FEWEST_STEPS * cost.step_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a budget is spent on.

    Attributes:
        window_s: of all launches.
        launches: of the points of the main comparison; all others have the fewest.
        expected_s: of all launches together.
    """

    window_s: float
    launches: int
    expected_s: float


def spend(parts: Sequence[ModelPart], fewest: int, budget_s: float) -> Spending:
    """The fewest launches of all points; what is left of the time goes to the main comparison.

    Args:
        parts: one for each model.
        fewest: launches of every point, also where time does not suffice; at least 2.
    """
    possible = [_with_window(parts, fewest, budget_s, window_s) for window_s in WINDOWS_S]
    within = [each for each in possible if each.expected_s <= budget_s]

    def widest(spending: Spending) -> float:
        return max(part.half_width(spending.window_s, spending.launches) for part in parts)

    return min(within, key=widest, default=possible[0])


def _with_window(
    parts: Sequence[ModelPart], fewest: int, budget_s: float, window_s: float
) -> Spending:
    base_s = fewest * sum(part.seconds(part.points, window_s) for part in parts)
    turn_s = sum(part.seconds(part.main, window_s) for part in parts)
    more = math.floor((budget_s - base_s) / turn_s)
    launches = max(fewest, min(fewest + more, MOST_LAUNCHES))
    expected_s = base_s + (launches - fewest) * turn_s
    return Spending(window_s=window_s, launches=launches, expected_s=expected_s)
