"""How many seeds a study of learning takes, by the spread of its first ones.  Pure.

Decides it before anything is known of who is faster: only spreads are looked at, so that going on
favours no answer (C. Stein, "A Two-Sample Test for a Linear Hypothesis Whose Power Is Independent
of the Variance", Annals of Mathematical Statistics 16, 1945).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
from scipy.special import stdtrit

from ps_allreduce.record.records import RunRecord

#: Seeds that are made in any case, those of them whose spread counts, and the most.
LEAST, FIRST, MOST = 5, 3, 12

#: A difference that is to be decided, at this level, in so many of such cases.
DIFFERENCE, LEVEL, POWER = 0.2, 0.05, 0.8

#: Seconds to a target by seed, of every setting.
Seconds = Mapping[str, Mapping[int, float]]


def seconds_of(records: Iterable[RunRecord]) -> Seconds:
    """Those of every setting on every kind of links; misses are left out."""
    found: dict[str, dict[int, float]] = {}
    for record in records:
        if record.learned is not None and record.learned.target_s:
            own = record.experiment
            found.setdefault(own.point_id, {})[own.workload.seed] = record.learned.target_s
    return found


def spread_of(seconds: Seconds) -> float | None:
    """Of ratios of two settings with the same seed: root mean square over all settings.

    A setting is held against the mean logarithm of all settings with the same seed.  None where no
    setting has reached the target with enough of the first seeds.
    """
    seeds = sorted({seed for own in seconds.values() for seed in own})[:FIRST]
    rows = [[own[seed] for seed in seeds] for own in seconds.values() if {*seeds} <= {*own}]
    if len(seeds) < FIRST or len(rows) < 2:
        return None
    logs = np.log(np.asarray(rows))
    left = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean()
    freedom = (len(rows) - 1) * (FIRST - 1)
    return math.sqrt(2 * float((left**2).sum()) / freedom)


def seeds_wanted(spread: float) -> int:
    """So many that the difference is decided by pairs whose ratios have this spread (logarithm)."""
    for number in range(LEAST, MOST):
        quantiles = stdtrit(number - 1, np.asarray([1 - LEVEL / 2, POWER]))
        if float(quantiles.sum()) * spread / math.sqrt(number) <= math.log1p(DIFFERENCE):
            return number
    return MOST
