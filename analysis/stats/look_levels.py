"""How sure a sweep must be that may stop early: the level at which each look at the data tests.

Decides the spending of the level: Lan and DeMets (1983) with bounds like those of O'Brien and
Fleming, so that early looks need overwhelming data and the last look loses little.  Looking after
every turn without it would find a difference between equal settings in about twice as many sweeps.
When a sweep looks, and when it stops, is not decided here.

The bounds are computed for a normal statistic and used as levels of Student's t, as Jennison and
Turnbull (2000, section 3.8) advise for unknown variance.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
from scipy.special import ndtr, ndtri

from ps_allreduce.record.looks import Looks

#: Points of the grid on which the density of the statistic is carried from look to look, and how
#: far it reaches in standard deviations of the last look.
_GRID, _REACH = 2001, 8.0

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


#: All launches were made before anybody looked.
ONCE = Looks(launches=(1,), most=1)


def level_of(looks: Looks, level: float) -> float:
    """The two-sided level of the last look, of a test that errs with `level` in all looks."""
    return _levels(tuple(count / looks.most for count in looks.launches), level)[-1]


def spent(share: float, level: float) -> float:
    """What may be spent of a two-sided level when a share (0 to 1) of the launches is made."""
    return 4 * float(ndtr(float(ndtri(level / 4)) / math.sqrt(share)))


@lru_cache
def _levels(shares: tuple[float, ...], level: float) -> tuple[float, ...]:
    """The level of every look (Armitage, McPherson and Rowe 1969, by numerical integration).

    The statistic is a Brownian motion at times `shares`.  Its density is kept where no look before
    has stopped; each bound is where the part beyond it is what this look may spend.
    """
    grid = np.linspace(-_REACH, _REACH, _GRID)
    used = spent(shares[0], level)
    levels = [used]
    density = _spread(grid, np.where(grid == 0.0, 1.0, 0.0), shares[0])
    for before, share in pairwise(shares):
        bound = -float(ndtri(levels[-1] / 2)) * math.sqrt(before)
        density = _spread(grid, np.where(np.abs(grid) < bound, density, 0.0), share - before)
        levels.append(_level(grid / math.sqrt(share), density, spent(share, level) - used))
        used = spent(share, level)
    return tuple(levels)


def _spread(grid: Floats, density: Floats, time: float) -> Floats:
    """The density after a further time; it adds up to what has not stopped."""
    kernel = np.exp(-0.5 * grid**2 / time)
    moved: Floats = np.convolve(density, kernel / kernel.sum(), mode="same")
    return moved


def _level(scores: Floats, density: Floats, tails: float) -> float:
    """The level of the bound, in standard deviations, beyond which on both sides lies so much."""
    upper = slice(len(scores) // 2, None)
    beyond = 2 * np.cumsum(density[::-1])[::-1] - density
    return 2 * float(ndtr(-np.interp(-tails, -beyond[upper], scores[upper])))
