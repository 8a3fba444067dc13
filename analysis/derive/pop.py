"""POP metrics: how much of the processes' time was useful, and what took the rest.

Decides the formulas, and how they are filled in for training.  Pure: seconds in, shares out.

Definitions: POP Centre of Excellence, co-design.pop-coe.eu/metrics.  With C_i the useful seconds of
process i, T the time that passed, and T_ideal the time that would pass on a network without latency
and with infinite bandwidth:

    parallel efficiency       mean C_i / T      = load balance x communication efficiency
    load balance              mean C_i / max C_i
    communication efficiency  max C_i / T       = serialisation x transfer
    serialisation             max C_i / T_ideal
    transfer                  T_ideal / T

No simulated network is needed for T_ideal.  Between two barriers every process does its part, so
such a stretch takes as long as the slowest part: T_ideal is the sum of these over all stretches.
Synchronous training has a barrier in every step.  Asynchronous training has none: all of its window
is one stretch.  Waiting for input is not useful, but no network would shorten it, so it is in
T_ideal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PopMetrics:
    """Shares of the time of all workers, 0 to 1."""

    load_balance: float
    serialisation: float
    transfer: float

    @property
    def communication(self) -> float:
        """Communication efficiency: serialisation x transfer."""
        return self.serialisation * self.transfer

    @property
    def parallel(self) -> float:
        """Parallel efficiency: load balance x communication efficiency."""
        return self.load_balance * self.communication

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return {
            "load_balance": self.load_balance,
            "serialisation": self.serialisation,
            "transfer": self.transfer,
        }


def pop_metrics(useful_s: Floats, waits_s: Floats, length_s: float) -> PopMetrics | None:
    """The metrics of some workers; None where nothing useful was done.

    Args:
        useful_s: seconds of computation [workers, stretches]; all workers meet at the end of each
            stretch, and only there.
        waits_s: seconds of waiting for input, of the same shape.
        length_s: time in which all stretches were made.  Clocks of hosts differ by fractions of a
            millisecond, so it counts as no shorter than T_ideal.
    """
    each = useful_s.sum(axis=1)
    if not each.max() > 0.0:
        return None
    ideal_s = float((useful_s + waits_s).max(axis=0).sum())
    return PopMetrics(
        load_balance=float(each.mean() / each.max()),
        serialisation=float(each.max() / ideal_s),
        transfer=ideal_s / max(length_s, ideal_s),
    )


def computation_scaling(reference_s: float, here_s: float) -> float:
    """Useful seconds of an example at the reference over those here; above 1 it got faster."""
    return reference_s / here_s
