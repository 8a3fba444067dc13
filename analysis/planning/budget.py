"""How a sweep spends its time: the length of windows, and how many launches there are.

Decides by two formulas, which `docs/method.md` explains.  Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.planning.pilot import LaunchCost, PilotResult

#: Windows are no shorter and no longer, in seconds; and they have so many steps.
SHORTEST_S, LONGEST_S = 1.0, 20.0
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

    @property
    def window_s(self) -> float:
        """The window with which a given time tells most.

        A mean of n launches has the variance (launch^2 + second^2/w)/n and costs n (c + w).  The
        product is least for w = sqrt(c) second/launch (Cochran, "Sampling Techniques", 3rd ed.
        1977, section 10.6; for benchmarks Kalibera and Jones, "Rigorous Benchmarking in Reasonable
        Time", ISMM 2013).
        """
        pilot = self.pilot
        best = math.sqrt(pilot.most_overhead_s) * pilot.second / pilot.launch
        return round(min(max(best, SHORTEST_S), LONGEST_S), 1)

    def seconds(self, tasks: Sequence[int]) -> float:
        """What a launch of each of these points takes, by their numbers of tasks."""
        costs = [(cost.tasks, self._launch_s(cost)) for cost in self.pilot.costs]
        numbers, times = zip(*sorted(costs), strict=True)
        return float(np.interp(tasks, numbers, times).sum())

    def _launch_s(self, cost: LaunchCost) -> float:
        return cost.overhead_s + max(self.window_s, FEWEST_STEPS * cost.step_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a budget is spent on.

    Attributes:
        launches: of the points of the main comparison; all others have the fewest.
        expected_s: of all launches together.
    """

    launches: int
    expected_s: float


def spend(parts: Sequence[ModelPart], fewest: int, budget_s: float) -> Spending:
    """The fewest launches of all points; what is left of the time goes to the main comparison.

    Args:
        parts: one for each model.
        fewest: launches of every point, also where time does not suffice.
    """
    base_s = fewest * sum(part.seconds(part.points) for part in parts)
    turn_s = sum(part.seconds(part.main) for part in parts)
    more = math.floor((budget_s - base_s) / turn_s) if turn_s else 0
    launches = max(fewest, min(fewest + more, MOST_LAUNCHES))
    return Spending(launches=launches, expected_s=base_s + (launches - fewest) * turn_s)
