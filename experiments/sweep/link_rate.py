"""The rate of emulated links, and the work of a step, where nobody states them.

Emulated hosts share the processors of one machine.  On links that are too fast these are the limit,
and a comparison tells nothing about networks; on links that are too slow nothing else is left, and
whoever looks at it learns that distribution is pointless.  So both are chosen such that workers
keep about half of the rate that they have without communication.  Decides which batch and which of
some round rates is good, from short runs.  Which points these are, and what is said of them, is
decided on the command line.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

#: Asks what plain TCP reached on the slowest link of a cluster, in bits per second.
LINKS = "rate of the links between hosts"

#: Processors that are busier than this may be the limit.
MOST_BUSY = 0.7

#: Workers that keep less of their rate without communication only wait for links, and those that
#: keep more tell nothing about them.
LEAST_KEPT, MOST_KEPT = 0.4, 0.8

#: A rate is chosen at which steps are so much longer than their computation.
AIM = 0.65

#: A step without communication is to take about so long: several times as long as handling the
#: messages of a small network does, and short enough for many steps in a window.
COMPUTED_S = 0.15

MOST_BATCH = 1024

LEAST_BITS_PER_S, MOST_BITS_PER_S = 1e6, 1e10

#: A further look would cost more time than a better rate is worth.
MOST_LOOKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a short run at one rate has shown.

    Attributes:
        bits: that the busiest link carries in a step, per direction.
        step_s: duration of a step.
        free_s: of a step of as many workers that do not communicate.
        busy: share of this machine's processor time that the run used.
        others: that other programs and the hypervisor used.
    """

    bits_per_s: float
    bits: float
    step_s: float
    free_s: float
    busy: float
    others: float = 0.0

    @property
    def network_share(self) -> float:
        """Share of a step in which the busiest link carries bytes."""
        return min(self.bits / self.bits_per_s / self.step_s, 1.0)

    @property
    def kept(self) -> float:
        """Share of the rate without communication that is left."""
        return min(self.free_s / self.step_s, 1.0)

    @property
    def is_good(self) -> bool:
        """Processors have time to spare, and links take a share of the step, not all of it."""
        return self.busy <= MOST_BUSY and LEAST_KEPT <= self.kept <= MOST_KEPT

    @property
    def better_bits_per_s(self) -> float:
        """A round rate at which a step should be as long as its processor time asks for.

        It assumes that a step's other parts last as long as now, and that none overlaps.
        """
        other_s = self.step_s * (1 - self.network_share)
        wanted_s = max(self.step_s * self.busy, self.free_s) / AIM
        return round_rate(self.bits / max(wanted_s - other_s, 1e-9))

    @property
    def helps_by_rate(self) -> bool:
        """Another rate would tell more; where workers mostly wait, only a faster one could."""
        return self.kept >= LEAST_KEPT or self.better_bits_per_s > self.bits_per_s


def round_rate(bits_per_s: float) -> float:
    """The next of 1, 2, 3, 5, 7, 10 ... bit/s that is not faster, within what links may have."""
    within = min(max(bits_per_s, LEAST_BITS_PER_S), MOST_BITS_PER_S)
    power = 10.0 ** math.floor(math.log10(within))
    return max(step * power for step in (1, 2, 3, 5, 7) if step * power <= within)


def choose_batch(batch: int, free_s: float) -> int:
    """The batch of a worker, doubled until a step computes about as long as it should.

    Whole doublings and few rates: calls on one machine are to choose the same.

    Args:
        batch: with which a step without communication took `free_s` seconds; it is the least.
    """
    doublings = max(0, round(math.log2(COMPUTED_S / free_s)))
    return max(batch, min(batch << doublings, MOST_BATCH))


def choose_rate(bits: float, free_s: float, look_at: Callable[[float], Look]) -> Look:
    """Look at some rates; return the first good look, else the one that keeps most within limits.

    Where processors are the limit at every rate, it is the look with the idlest ones.

    Args:
        bits: that the busiest link carries in a step.
        free_s: duration of a step without communication.
    """
    looks: list[Look] = []
    rate = round_rate(bits / (free_s / AIM - free_s))
    while len(looks) < MOST_LOOKS and rate not in [look.bits_per_s for look in looks]:
        looks.append(look_at(rate))
        if looks[-1].is_good:
            return looks[-1]
        rate = looks[-1].better_bits_per_s
    return min(looks, key=lambda look: (max(look.busy, MOST_BUSY), abs(look.kept - AIM)))
