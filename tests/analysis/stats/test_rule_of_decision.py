"""Whether the rule of decision keeps its promise, by simulated sweeps.

Sweeps of two settings on each side, of which one may be slower, are made as real ones: settings
leave their side, sweeps end early, and the same functions decide.  Sides that are equal must not be
told apart, intervals must hold the truth, and a planted difference of 5 % must be found.
Everything is seeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from analysis.planning.budget import MOST_LAUNCHES
from analysis.stats.decision import (
    EARLY_STOPPING_LEVEL,
    LEVEL,
    Contest,
    Decision,
    Outcome,
    decide,
    still_open,
)
from experiments.suite.found_causes import Share
from experiments.sweep.sweep import PROFILES

#: The planted difference.
PLANTED = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a sweep is made.

    Attributes:
        fewest, most: launches of the main comparison.
        level: of its test.
        precision: the interval with which the sweep ends early; 0 for never.
    """

    fewest: int
    most: int
    level: float
    precision: float = 0.0


#: As many launches as five minutes hold.
QUICK = Plan(fewest=PROFILES["quick"].repetitions, most=11, level=LEVEL)
STANDARD = Plan(
    fewest=PROFILES["standard"].repetitions,
    most=MOST_LAUNCHES,
    level=EARLY_STOPPING_LEVEL,
    precision=PROFILES["standard"].precision or 0.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """Standard deviations of logarithms, which are about shares of the rate.

    Attributes:
        turn: of what all launches of a turn share.
        launch: of what is of one launch alone.
    """

    turn: float
    launch: float


SPREADS = Spreads(turn=0.05, launch=0.02)


def equal_sides(
    spreads: Spreads, sweeps: int, plan: Plan = STANDARD, behind: float = 0.0
) -> list[Decision]:
    """What is decided of sides that are equal, each with a setting that is slower by a share."""
    return [decided(spreads, 0.0, seed, plan, behind) for seed in range(sweeps)]


def false_alarms(equal: Sequence[Decision]) -> Share:
    """How often equal settings are told apart."""
    told = [each.outcome in (Outcome.FASTER, Outcome.SLOWER) for each in equal]
    return Share(count=sum(told), of=len(equal))


def misses(equal: Sequence[Decision]) -> Share:
    """How often the interval of equal settings does not hold 1."""
    held = [(low or 0.0) <= 1.0 <= (high or np.inf) for _, low, high in (e.ends for e in equal)]
    return Share(count=len(equal) - sum(held), of=len(equal))


def detections(spreads: Spreads, sweeps: int) -> Share:
    """How often the side that was made faster is said to be; it is each side in turn."""
    effects = {Outcome.FASTER: PLANTED, Outcome.SLOWER: -PLANTED}
    planted = [list(effects)[seed % 2] for seed in range(sweeps)]
    right = [
        decided(spreads, effects[outcome], seed).outcome is outcome
        for seed, outcome in enumerate(planted)
    ]
    return Share(count=sum(right), of=sweeps)


def decided(
    spreads: Spreads, effect: float, seed: int, plan: Plan = STANDARD, behind: float = 0.0
) -> Decision:
    """What a sweep says of its first side when it ends."""
    sides = simulated(spreads, (effect, behind), plan.most, np.random.default_rng(seed))
    for count in range(plan.fewest, plan.most + 1):
        seen = [[each[:count] for each in side] for side in sides]
        left = [still_open(side) for side in seen]
        sides = [
            [each if number in own else each[:count] for number, each in enumerate(side)]
            for side, own in zip(sides, left, strict=True)
        ]
        first, second = ([side[n] for n in own] for side, own in zip(seen, left, strict=True))
        (decision,) = decide([Contest.of(first, second)], plan.level)
        if decision.half_width is not None and decision.half_width <= plan.precision:
            break
    return decision


def simulated(
    spreads: Spreads, effects: tuple[float, float], launches: int, random: np.random.Generator
) -> list[list[pd.Series]]:
    """Rates of two settings of each side.

    Args:
        effects: the shares by which the first side is faster, and the second setting slower.
    """
    turns = random.normal(0.0, spreads.turn, launches)
    faster = np.log1p(abs(effects[0])) * np.sign(effects[0])
    return [
        [
            pd.Series(np.exp(turns + gain + random.normal(0.0, spreads.launch, launches)))
            for gain in (best, best - np.log1p(effects[1]))
        ]
        for best in (faster, 0.0)
    ]


def test_equal_sides_are_told_apart_in_at_most_five_percent() -> None:
    found = false_alarms(equal_sides(replace(SPREADS, launch=0.1), 400))
    print("false alarms:", found)
    # Of 400 at 5 %, 29 is the 97.5 % point of the binomial distribution.
    assert 0 < found.count <= 29
    low, high = found.interval
    assert low < found.rate < high


@pytest.mark.parametrize("behind", [0.0, 0.05, 0.5])
@pytest.mark.parametrize(("plan", "launch"), [(QUICK, 0.03), (STANDARD, 0.01)])
def test_intervals_hold_the_truth_where_settings_leave_and_sweeps_end_early(
    plan: Plan, launch: float, behind: float
) -> None:
    found = misses(equal_sides(replace(SPREADS, launch=launch), 400, plan, behind))
    print("intervals that miss:", found)
    assert found.count <= 29


def test_a_planted_difference_is_found_where_launches_agree() -> None:
    found = detections(replace(SPREADS, launch=0.005), 100)
    print("planted 5 % found:", found)
    assert found.rate > 0.95
    assert detections(replace(SPREADS, launch=0.2), 100).rate < 0.3
