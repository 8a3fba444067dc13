"""Whether the rule of decision keeps its promise: simulated sweeps with the spread measured here.

Decides what is simulated: sweeps of one all-reduce setting and two of synchronous servers, which
end early and are decided by the same functions as real ones.  Equal settings must not be told
apart, and a planted difference of 5 % must be found.  Everything is seeded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import stats

from analysis.stats.decision import EARLY_STOPPING_LEVEL, Contest, Decision, Outcome, decide
from analysis.stats.statistics import CONFIDENCE
from analysis.suite.rule.spreads import Spreads
from analysis.suite.targets import no_less_than, target_text, up_to

#: Simulated sweeps of each kind; of each spread where the limit of detection is looked for.
SWEEPS, SWEEPS_OF_A_SPREAD = 2000, 500

#: Of the profile `standard`: the fewest launches, the most of the main comparison, and how narrow
#: its interval must be for an early end.
FEWEST, LAUNCHES, PRECISION = 5, 30, 0.02

#: The planted difference, and how often it must be found.
PLANTED, TARGET = 0.05, 0.9

#: The spreads between which the limit of detection is looked for.
_NARROW, _WIDE, _HALVINGS = 0.001, 0.1, 7

_SETTINGS = (1, 2)

_WHY_NOT_FOUND = "launches spread more than the limit below"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How often something happened, with the exact interval of its rate (Clopper, Pearson 1934)."""

    count: int
    of: int

    @property
    def rate(self) -> float:
        """Between 0 and 1."""
        return self.count / self.of

    @property
    def interval(self) -> tuple[float, float]:
        """At 95 %."""
        ends = stats.binomtest(self.count, self.of).proportion_ci(CONFIDENCE, method="exact")
        return float(ends.low), float(ends.high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.rate:.3f} [{low:.3f}, {high:.3f}]"


def equal_settings(spreads: Spreads, sweeps: int) -> list[Decision]:
    """What is decided of settings that are equal."""
    return [_decided(spreads, 0.0, seed) for seed in range(sweeps)]


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
        _decided(spreads, effects[outcome], seed).outcome is outcome
        for seed, outcome in enumerate(planted)
    ]
    return Share(count=sum(right), of=sweeps)


def limit_of_detection(spreads: Spreads) -> float | None:
    """The spread of launches beyond which less than 90 % is found; None where it always is less."""
    low, high = _NARROW, _WIDE
    if not _finds(spreads, low):
        return None
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _finds(spreads, middle) else (low, middle)
    return low


def _finds(spreads: Spreads, launch: float) -> bool:
    return detections(replace(spreads, launch=launch), SWEEPS_OF_A_SPREAD).rate >= TARGET


def _decided(spreads: Spreads, effect: float, seed: int) -> Decision:
    """What a sweep says of its first side when it ends."""
    sides = _sweep(spreads, effect, np.random.default_rng(seed))
    for count in range(FEWEST, LAUNCHES + 1):
        first, second = ([each[:count] for each in side] for side in sides)
        (decision,) = decide([Contest.of(first, second)], EARLY_STOPPING_LEVEL)
        if decision.half_width is not None and decision.half_width <= PRECISION:
            break
    return decision


def _sweep(spreads: Spreads, effect: float, random: np.random.Generator) -> list[list[pd.Series]]:
    """Rates of the settings of two sides; the first side is faster by a share."""
    turns = random.normal(0.0, spreads.turn, LAUNCHES)
    faster = np.log1p(abs(effect)) * np.sign(effect)
    return [
        [
            pd.Series(np.exp(turns + gain + random.normal(0.0, spreads.launch, LAUNCHES)))
            for _ in range(count)
        ]
        for count, gain in zip(_SETTINGS, (faster, 0.0), strict=True)
    ]


def render_self_test(
    spreads: Spreads, emulated: Spreads, content: dict[str, object]
) -> Iterator[str]:
    """Simulate, put the figures below `self_test`, and tell them.

    Args:
        spreads: of real sweeps; equal settings must not be told apart there.
        emulated: of an emulated accelerator, where a difference is planted.
    """
    equal = equal_settings(spreads, SWEEPS)
    alarms, missed = false_alarms(equal), misses(equal)
    found, limit = detections(emulated, SWEEPS), limit_of_detection(emulated)
    content["self_test"] = _figures((spreads, emulated), alarms, missed, found, limit)
    yield (
        f"self-test, {SWEEPS} simulated sweeps of {FEWEST} to {LAUNCHES} launches, which end early "
        f"at {PRECISION:.0%}:"
    )
    told = target_text("at most 0.05", (alarms.rate, alarms.rate), up_to(0.05))
    yield f"  {_told(spreads)}: false alarms {alarms} {told}"
    told = target_text("at most 0.05", (missed.rate, missed.rate), up_to(0.05))
    yield f"  intervals of equal settings that miss: {missed} {told}"
    yield (
        f"  {_told(emulated)}: a planted difference of {PLANTED:.0%} found {found} "
        + target_text(
            f"at least {TARGET:.2f}", (found.rate, found.rate), no_less_than(TARGET), _WHY_NOT_FOUND
        )
    )
    reach = "at no spread" if limit is None else f"up to a spread of {limit:.1%} between launches"
    yield f"  it is found in {TARGET:.0%} of sweeps {reach}"


def _told(spreads: Spreads) -> str:
    return f"launches that spread by {spreads.launch:.1%} (turns by {spreads.turn:.1%})"


def _figures(
    spreads: tuple[Spreads, Spreads],
    alarms: Share,
    missed: Share,
    found: Share,
    limit: float | None,
) -> Mapping[str, object]:
    real, emulated = spreads
    return {
        "sweeps": SWEEPS,
        "launches": [FEWEST, LAUNCHES],
        "launch_spread": real.launch,
        "turn_spread": real.turn,
        "false_alarm_rate": alarms.rate,
        "false_alarm_interval": list(alarms.interval),
        "miss_rate": missed.rate,
        "emulated_launch_spread": emulated.launch,
        "detection_rate": found.rate,
        "detection_interval": list(found.interval),
        "planted": PLANTED,
        "spread_of_90_percent_detection": limit,
    }
