"""Whether the rule of decision keeps its promise, by simulated sweeps.

Sweeps of one all-reduce setting and two of synchronous servers end early, and are decided by the
same functions as real ones.  Equal settings must not be told apart, and a planted difference of 5 %
must be found.  Everything is seeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.planning.budget import MOST_LAUNCHES
from analysis.stats.decision import EARLY_STOPPING_LEVEL, Contest, Decision, Outcome, decide
from analysis.suite.planted_causes import Share
from experiments.sweep.sweep import PROFILES

#: The fewest launches, the most of the main comparison, and how narrow its interval must be for an
#: early end.
STANDARD = PROFILES["standard"]
FEWEST, LAUNCHES, PRECISION = STANDARD.repetitions, MOST_LAUNCHES, STANDARD.precision or 0.0

#: The planted difference, and the settings of both sides.
PLANTED, SETTINGS = 0.05, (1, 2)


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


def equal_settings(spreads: Spreads, sweeps: int) -> list[Decision]:
    """What is decided of settings that are equal."""
    return [decided(spreads, 0.0, seed) for seed in range(sweeps)]


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


def decided(spreads: Spreads, effect: float, seed: int) -> Decision:
    """What a sweep says of its first side when it ends."""
    sides = simulated(spreads, effect, np.random.default_rng(seed))
    for count in range(FEWEST, LAUNCHES + 1):
        first, second = ([each[:count] for each in side] for side in sides)
        (decision,) = decide([Contest.of(first, second)], EARLY_STOPPING_LEVEL)
        if decision.half_width is not None and decision.half_width <= PRECISION:
            break
    return decision


def simulated(
    spreads: Spreads, effect: float, random: np.random.Generator
) -> list[list[pd.Series]]:
    """Rates of the settings of two sides; the first side is faster by a share."""
    turns = random.normal(0.0, spreads.turn, LAUNCHES)
    faster = np.log1p(abs(effect)) * np.sign(effect)
    return [
        [
            pd.Series(np.exp(turns + gain + random.normal(0.0, spreads.launch, LAUNCHES)))
            for _ in range(count)
        ]
        for count, gain in zip(SETTINGS, (faster, 0.0), strict=True)
    ]


def test_equal_settings_are_told_apart_in_at_most_five_percent() -> None:
    found = false_alarms(equal_settings(replace(SPREADS, launch=0.1), 400))
    print("false alarms:", found)
    # Of 400 at 5 %, 29 is the 97.5 % point of the binomial distribution.
    assert 0 < found.count <= 29
    low, high = found.interval
    assert low < found.rate < high


def test_intervals_of_sweeps_that_end_early_hold_the_truth() -> None:
    found = misses(equal_settings(replace(SPREADS, launch=0.01), 400))
    print("intervals that miss:", found)
    assert found.count <= 29


def test_a_planted_difference_is_found_where_launches_agree() -> None:
    found = detections(replace(SPREADS, launch=0.005), 100)
    print("planted 5 % found:", found)
    assert found.rate > 0.95
    assert detections(replace(SPREADS, launch=0.2), 100).rate < 0.3
