"""The two-level bootstrap of a ratio: launches are drawn anew, then blocks of their steps.

Decides the length of a block from the autocorrelation of the steps.  It needs no normal
distribution, but of few launches it draws too little: `suite.rule.coverage` holds it against the
t-interval of `statistics`, which decides.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def block_length(steps: Floats) -> int:
    """Steps of a block, of a series with the lag-1 autocorrelation of these (Carlstein 1986)."""
    lag = min(autocorrelation(steps), 0.99)
    if lag <= 0.0:
        return 1
    best = (2 * lag / (1 - lag**2)) ** (2 / 3) * len(steps) ** (1 / 3)
    return int(min(max(1, round(best)), max(1, len(steps) // 4)))


def autocorrelation(steps: Floats) -> float:
    """At lag 1; 0 where nothing varies."""
    centred = steps - steps.mean()
    square = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / square if square > 0.0 else 0.0


def bootstrap_interval(
    first: Sequence[Floats],
    second: Sequence[Floats],
    level: float,
    random: np.random.Generator,
    draws: int = 1000,
) -> tuple[float, float]:
    """Percentile interval of the ratio of rates, first over second.

    Launches are drawn as pairs, which share their turn; steps within them independently.

    Args:
        first, second: step times of each launch, in the order of the turns; as many of both.
        level: that the interval misses the ratio with, two-sided.
    """
    pairs = random.integers(0, len(first), (draws, len(first)))
    logs = np.zeros(draws)
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        times = (pairs == number).sum(axis=1)
        most = int(times.max())
        drawn = _means(other, (draws, most), random) - _means(one, (draws, most), random)
        logs += np.where(np.arange(most) < times[:, np.newaxis], drawn, 0.0).sum(axis=1)
    low, high = np.quantile(logs / len(first), [level / 2, 1 - level / 2])
    return float(np.exp(low)), float(np.exp(high))


def _means(steps: Floats, shape: tuple[int, int], random: np.random.Generator) -> Floats:
    """Logarithms of mean step times, each of as many steps in blocks that were drawn."""
    length = block_length(steps)
    sums = np.concatenate([[0.0], np.cumsum(np.concatenate([steps, steps[: length - 1]]))])
    begins = random.integers(0, len(steps), (*shape, -(-len(steps) // length)))
    totals = (sums[begins + length] - sums[begins]).sum(axis=-1)
    return np.asarray(np.log(totals / (begins.shape[-1] * length)))
