"""Whether step times are steady.

Pure: arrays in, answers out.  How long a warm-up waits for the answer is decided in
`point.measurement`.
"""

from __future__ import annotations

import numpy as np

from ps_allreduce.record.steps import Floats, Integers

#: Steps are taken together in about so many batches; of fewer steps, each is one.
BATCHES = 30

#: The oldest of the batches do not count: where a warm-up is over, it ended before the rest.
OLDEST = 0.25

#: A trend is shown if its statistic is so many standard deviations from none: two-sided, 5 %.
SHOWN = 1.96

#: A smaller change between the halves is none.
TOLERANCE = 0.01


def round_times(workers: Integers, ends: Floats, num_workers: int) -> Floats:
    """Seconds of each round: as many steps, of whatever worker, as there are workers.

    So dealt steps, of which a fast worker makes more, have one speed; a worker that drives itself
    has its own step times.  Clocks of workers may differ: every worker's counts from the end of its
    first step.  The time before that holds what comes before the stretch, and is left out.

    Args:
        workers: who made each step of one stretch [n].
        ends: when it ended, seconds, each on its worker's clock [n].
    """
    since_first = ends.copy()
    for worker in np.unique(workers):
        since_first[workers == worker] -= ends[workers == worker].min()
    return np.asarray(np.diff(np.sort(since_first)[num_workers - 1 :: num_workers]))


def is_steady(times: Floats) -> bool:
    """Whether the newer three quarters of step times show no trend, in the order they were made.

    The test is that of Mann and Kendall (H. B. Mann, "Nonparametric Tests against Trend",
    Econometrica 13, 1945), on medians of batches.  It looks at ranks, so a few very long steps do
    not matter; batches take away most of what neighbouring steps have in common.  Why it is not
    MSER-5 (K. P. White, "An Effective Truncation Heuristic for Bias Reduction in Simulation
    Output", Simulation 69, 1997) says `docs/decisions/0014-when-a-warm-up-is-over.md`.
    """
    size = max(1, len(times) // BATCHES)
    number = len(times) // size
    medians = np.median(times[len(times) - number * size :].reshape(number, size), axis=1)
    newer = medians[int(OLDEST * number) :]
    half = len(newer) // 2
    if half < 2:
        return False
    change = np.median(newer[half:]) / np.median(newer[:half]) - 1
    return bool(abs(change) <= TOLERANCE or _trend(newer) < SHOWN)


def _trend(values: Floats) -> float:
    """How far Kendall's S is from 0, in its standard deviations without a trend."""
    number = len(values)
    later, earlier = np.tril_indices(number, -1)
    statistic = np.sign(values[later] - values[earlier]).sum()
    deviation = np.sqrt(number * (number - 1) * (2 * number + 5) / 18)
    return float(max(abs(statistic) - 1, 0) / deviation)
