"""The rate of emulated links where nobody states one: such that the links decide.

Emulated hosts share the processors of one machine.  On links that are too fast these are the limit,
and a comparison tells nothing about networks; on links that are too slow nothing else is left.
Decides which of some round rates is good, from short runs of one point.  Which point that is, and
what is said of it, is decided on the command line.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

#: Asks what plain TCP reached on the slowest link of a cluster, in bits per second.
LINKS = "rate of the links between hosts"

#: Processors that are busier than this may be the limit; a rate is chosen that leads below.
MOST_BUSY = 0.7
AIM = 0.65

#: Links that carry bytes for a smaller share of a step are not worth studying.
LEAST_SHARE = 0.3

#: The first rate is tried at which the links need so long for a step, but no slower one than this.
FIRST_NETWORK_S = 0.5
FIRST_BITS_PER_S = 1e8

LEAST_BITS_PER_S, MOST_BITS_PER_S = 1e6, 1e10

#: A further look would cost more time than a better rate is worth.
MOST_LOOKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a short run at one rate has shown.

    Attributes:
        bits: that the busiest link carries in a step, per direction.
        step_s: duration of a step.
        busy: share of this machine's processor time that the run used.
    """

    bits_per_s: float
    bits: float
    step_s: float
    busy: float

    @property
    def network_share(self) -> float:
        """Share of a step in which the busiest link carries bytes."""
        return min(self.bits / self.bits_per_s / self.step_s, 1.0)

    @property
    def is_good(self) -> bool:
        """Processors have time to spare, and the network has a share worth studying."""
        return self.busy <= MOST_BUSY and self.network_share >= LEAST_SHARE

    @property
    def better_bits_per_s(self) -> float:
        """A round rate at which a step should be as long as its processor time asks for.

        It assumes that a step's other parts last as long as now, and that none overlaps.
        """
        other_s = self.step_s * (1 - self.network_share)
        wanted_s = self.step_s * self.busy / AIM
        least_s = other_s * LEAST_SHARE / (1 - LEAST_SHARE)
        return round_rate(self.bits / max(wanted_s - other_s, least_s, 1e-9))


def round_rate(bits_per_s: float) -> float:
    """The next of 1, 2, 3, 5, 7, 10 ... bit/s that is not faster, within what links may have."""
    within = min(max(bits_per_s, LEAST_BITS_PER_S), MOST_BITS_PER_S)
    power = 10.0 ** math.floor(math.log10(within))
    return max(step * power for step in (1, 2, 3, 5, 7) if step * power <= within)


def first_rate(bits: float) -> float:
    """Where to begin with so many bits per step and link."""
    return round_rate(max(bits / FIRST_NETWORK_S, FIRST_BITS_PER_S))


def choose_rate(bits: float, look_at: Callable[[float], Look]) -> Look:
    """Look at some rates; return the first good look, or else that with the idlest processors.

    Args:
        bits: that the busiest link carries in a step.
    """
    looks: list[Look] = []
    rate = first_rate(bits)
    while len(looks) < MOST_LOOKS and rate not in [look.bits_per_s for look in looks]:
        looks.append(look_at(rate))
        if looks[-1].is_good:
            return looks[-1]
        rate = looks[-1].better_bits_per_s
    return min(looks, key=lambda look: look.busy)
