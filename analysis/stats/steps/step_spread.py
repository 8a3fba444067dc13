"""How much the steps of one run vary in its window.

Decides that the first worker's steps stand for the run, and that their neighbours are correlated as
in an autoregressive series of the first order.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from analysis.data.load import load_steps
from ps_allreduce.errors import RecordFormatError

#: Fewer steps tell nothing of their spread.
FEWEST = 6

#: Of few steps the estimate is rough; beyond this it would foretell no variation, or no end of it.
MOST_CORRELATED = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpread:
    """Steps of the window.

    Attributes:
        step_s: their mean.
        spread: standard deviation of their logarithms, which is about a share of the mean.
        autocorrelation: of the logarithms, at lag 1.
    """

    step_s: float
    spread: float
    autocorrelation: float

    @property
    def variance_of_a_second(self) -> float:
        """Variance of the logarithm of a rate that is measured for one second.

        A mean of n steps has the variance spread^2/n times (1 + r)/(1 - r), with their
        autocorrelation r (Priestley, "Spectral Analysis and Time Series", 1981, section 5.3.2).
        """
        lag = min(max(self.autocorrelation, -MOST_CORRELATED), MOST_CORRELATED)
        return self.spread**2 * self.step_s * (1 + lag) / (1 - lag)


def step_spread(run: str | Path) -> StepSpread | None:
    """Of a run, by the path of its record; None without raw timings or with too few steps."""
    try:
        table = load_steps(run)
    except RecordFormatError:
        return None
    steps = table.loc[table["in_window"] & (table["worker"] == 0), "step_s"].to_numpy(dtype=float)
    if len(steps) < FEWEST:
        return None
    logs = np.log(steps)
    return StepSpread(
        step_s=float(steps.mean()),
        spread=float(logs.std(ddof=1)),
        autocorrelation=_autocorrelation(logs),
    )


def _autocorrelation(values: npt.NDArray[np.float64]) -> float:
    """At lag 1; 0 where nothing varies."""
    centred = values - values.mean()
    square = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / square if square > 0.0 else 0.0
