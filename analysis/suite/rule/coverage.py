"""Which interval is right for how many launches: Student's t or the two-level bootstrap.

Decides by simulation with the spread of launches and steps that was measured: of the two, the one
whose coverage is nearer to what it states is the one to use.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.signal import lfilter

from analysis.stats.statistics import CONFIDENCE, compare
from analysis.stats.steps.bootstrap import bootstrap_interval
from analysis.suite.rule.self_test import Share
from analysis.suite.rule.spreads import Spreads

LAUNCHES, SWEEPS = (3, 5, 10), 300

#: Steps of a simulated launch, and draws of a bootstrap.
_STEPS, _DRAWS = 100, 400

Floats = npt.NDArray[np.float64]


def coverages(spreads: Spreads, launches: int, sweeps: int) -> tuple[Share, Share]:
    """How often the ratio of equal settings lies inside the t-interval and the bootstrap's."""
    random, level = np.random.default_rng(launches), 1 - CONFIDENCE
    hits = [0, 0]
    for _ in range(sweeps):
        first, second = (_steps(spreads, launches, random) for _ in range(2))
        ends = (
            compare(_rates(first), _rates(second)).interval(level),
            bootstrap_interval(first, second, level, random, _DRAWS),
        )
        for kind, (low, high) in enumerate(ends):
            hits[kind] += low is not None and high is not None and low <= 1.0 <= high
    student, bootstrap = (Share(count=count, of=sweeps) for count in hits)
    return student, bootstrap


def _rates(launches: list[Floats]) -> pd.Series:
    return pd.Series([1 / steps.mean() for steps in launches])


def _steps(spreads: Spreads, launches: int, random: np.random.Generator) -> list[Floats]:
    """Step times of every launch: a level, and steps that depend on the one before."""
    lag = max(spreads.autocorrelation, 0.0)
    noise = random.normal(0.0, spreads.step * np.sqrt(1 - lag**2), (launches, _STEPS))
    levels = random.normal(0.0, spreads.launch, (launches, 1))
    return list(np.exp(levels + lfilter([1.0], [1.0, -lag], noise, axis=1)))


def render_coverages(spreads: Spreads, content: dict[str, object]) -> Iterator[str]:
    """Simulate, put the figures below `interval_coverage`, and tell them."""
    yield f"coverage of {CONFIDENCE:.0%} intervals, {SWEEPS} simulated comparisons each:"
    figures = {}
    for launches in LAUNCHES:
        student, bootstrap = coverages(spreads, launches, SWEEPS)
        better = abs(student.rate - CONFIDENCE) <= abs(bootstrap.rate - CONFIDENCE)
        figures[str(launches)] = {"t": student.rate, "two_level_bootstrap": bootstrap.rate}
        yield (
            f"  {launches} launches: t {student}, two-level bootstrap {bootstrap}: "
            f"{'t' if better else 'the bootstrap'} is nearer"
        )
    content["interval_coverage"] = figures
