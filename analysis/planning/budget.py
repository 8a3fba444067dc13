"""How a sweep spends its time: the length of windows, and how many launches there are.

Decides by two formulas, which `docs/method.md` explains.  Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.planning.pilot import PilotResult

#: Windows are no shorter and no longer, in seconds; and they have so many steps.
SHORTEST_S, LONGEST_S = 1.0, 20.0
FEWEST_STEPS = 10

#: More launches of a point are not made: others would gain more from the time.
MOST_LAUNCHES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPart:
    """What a model's part of a sweep wants.

    Attributes:
        points: so many are launched as often as the profile says at least.
        main: so many are launched as often as time allows.
    """

    pilot: PilotResult
    points: int
    main: int

    @property
    def launch_s(self) -> float:
        """What a launch takes about."""
        return self.pilot.overhead_s + max(self.window_s, FEWEST_STEPS * self.pilot.step_s)

    @property
    def window_s(self) -> float:
        """The window with which a given time tells most.

        A mean of n launches has the variance (launch^2 + second^2/w)/n and costs n (c + w).  The
        product is least for w = sqrt(c) second/launch (Cochran, "Sampling Techniques", 3rd ed.
        1977, section 10.6; for benchmarks Kalibera and Jones, "Rigorous Benchmarking in Reasonable
        Time", ISMM 2013).
        """
        best = math.sqrt(self.pilot.overhead_s) * self.pilot.second / self.pilot.launch
        return round(min(max(best, SHORTEST_S), LONGEST_S), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a budget is spent on.

    Attributes:
        launches: of the points of the main comparison; all others have the fewest.
        expected_s: of all launches together.
    """

    launches: int
    expected_s: float


def spend(shares: Sequence[ModelPart], fewest: int, budget_s: float) -> Spending:
    """The fewest launches of all points; what is left of the time goes to the main comparison.

    Args:
        shares: one for each model.
        fewest: launches of every point, also where time does not suffice.
    """
    base_s = sum(share.points * fewest * share.launch_s for share in shares)
    turn_s = sum(share.main * share.launch_s for share in shares)
    more = math.floor((budget_s - base_s) / turn_s) if turn_s else 0
    launches = max(fewest, min(fewest + more, MOST_LAUNCHES))
    return Spending(launches=launches, expected_s=base_s + (launches - fewest) * turn_s)
