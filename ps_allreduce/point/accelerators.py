"""What an emulated accelerator takes: published speeds, and random differences between steps.

`published_speeds.csv` holds images per second of a single accelerator, the batch of that
measurement, and where the number is from.  What is made of them is decided by whoever reads them.

Differences are the same in every launch.  The factor of a worker's step follows from a seed, the
worker and the step alone: nothing has to be stored, steps can be drawn in any order, and whoever
judges a run knows what it drew.  All distributions have mean 1 and are stated by their coefficient
of variation c (standard deviation over mean).

- lognormal: sigma^2 = ln(1 + c^2), mu = -sigma^2 / 2 (Johnson, Kotz and Balakrishnan, Continuous
  Univariate Distributions, volume 1, second edition, 1994, chapter 14).
- gamma: shape 1 / c^2, scale c^2 (the same, chapter 17).

A draw is one of `QUANTILES` equally likely quantiles of the distribution, chosen by a hash:
SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ps_allreduce.errors import UserError

_FILE = Path(__file__).resolve().parent / "published_speeds.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSpeed:
    """How fast an accelerator trained a model alone.

    Attributes:
        precision: as it was published.
        batch: of that measurement.
    """

    device: str
    precision: str
    model: str
    images_per_sec: float
    batch: int
    source: str

    def __str__(self) -> str:
        return self.device if self.precision == "float32" else f"{self.device}, {self.precision}"


def _speeds() -> tuple[PublishedSpeed, ...]:
    with _FILE.open(encoding="utf-8", newline="") as rows:
        return tuple(
            PublishedSpeed(
                device=row["device"],
                precision=row["precision"],
                model=row["model"],
                images_per_sec=float(row["images_per_sec"]),
                batch=int(row["batch"]),
                source=row["source"],
            )
            for row in csv.DictReader(rows)
        )


SPEEDS = _speeds()


Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: Of a distribution; the largest is the one at 1 - 1 / 8192.
QUANTILES = 4096

#: With more, a distribution has steps of hardly any time, which timers cannot keep.
MOST_VARIATION = 0.5

#: Bits of a hash that choose a quantile: the highest.
CHOOSING_SHIFT = 64 - 12

#: The increment of SplitMix64, and its shifts with the number that each is followed by.
GOLDEN = 0x9E3779B97F4A7C15
ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))


class Distribution(StrEnum):
    """What the factors of steps are distributed like."""

    LOGNORMAL = "lognormal"
    GAMMA = "gamma"


def _lognormal(log: Floats, variation: float) -> Floats:
    """Logarithm of the density of the factor's logarithm, without its constant; `_gamma` too."""
    variance = np.log1p(variation**2)
    return np.asarray(-((log + variance / 2) ** 2) / (2 * variance))


def _gamma(log: Floats, variation: float) -> Floats:
    return np.asarray((log - np.exp(log)) / variation**2)


_LOG_DENSITIES: Mapping[Distribution, Callable[[Floats, float], Floats]] = {
    Distribution.LOGNORMAL: _lognormal,
    Distribution.GAMMA: _gamma,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Jitter:
    """A factor for every step of every worker, independent of all others.

    Attributes:
        variation: coefficient of variation of the distribution, whose mean is 1.
        seed: another one gives other factors.
    """

    distribution: Distribution
    variation: float
    seed: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.variation <= MOST_VARIATION:
            raise UserError(
                f"the coefficient of variation of jitter is above 0 and at most "
                f"{MOST_VARIATION:g}, got {self.variation:g}."
            )
        if not 0 <= self.seed < 2**31:
            raise UserError(f"the seed of jitter is 0 to {2**31 - 1}, got {self.seed}.")

    def factors(self, worker: int, steps: Integers) -> Floats:
        """The factors of some steps of a worker, which count from 0."""
        return self.quantiles[_choices(self.streams(worker + 1)[worker], steps)]

    def streams(self, num_workers: int) -> npt.NDArray[np.uint64]:
        """What tells the draws of so many workers from each other's, and those of another seed."""
        seeds = _mixed(np.full(num_workers, self.seed, np.uint64))
        return _mixed(seeds + np.arange(1, num_workers + 1).astype(np.uint64) * np.uint64(GOLDEN))

    @property
    def quantiles(self) -> Floats:
        """The values that are drawn, all equally likely."""
        return _quantiles(self.distribution, self.variation)

    def __str__(self) -> str:
        return f"{self.distribution}:{self.variation:g}:{self.seed}"


@cache
def _quantiles(distribution: Distribution, variation: float) -> Floats:
    """With mean 1; from the density of the factor's logarithm on a finer and wider grid."""
    log = np.linspace(-14 * variation, 6 * variation, 200_001)
    density = _LOG_DENSITIES[distribution](log, variation)
    below = np.cumsum(np.exp(density - density.max()))
    middles = (np.arange(QUANTILES) + 0.5) / QUANTILES
    values = np.exp(np.interp(middles, below / below[-1], log))
    return np.asarray(values / values.mean())


def _choices(stream: np.uint64, steps: Integers) -> Integers:
    """The positions of the quantiles that a worker draws in some steps."""
    hashes = _mixed(stream + (steps + 1).astype(np.uint64) * np.uint64(GOLDEN))
    return (hashes >> np.uint64(CHOOSING_SHIFT)).astype(np.int64)


def _mixed(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The output of SplitMix64 for a state; overflow is meant."""
    for shift, factor in ROUNDS:
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    return state
