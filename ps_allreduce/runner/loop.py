"""The timed loop: first step, warm-up, measured steps, traced steps.

Decides how many steps are made and to which phase each belongs, and says how long they will take at
least: after a first look at the step time, and again when the workers are warm.  It knows no
TensorFlow: a driver makes the steps, a clock is handed in.  All driving tasks make the same number
of steps because they agree on every number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from ps_allreduce.point.measurement import Measurement
from ps_allreduce.record.steps import Phase

RowsT = TypeVar("RowsT")
RowsT_co = TypeVar("RowsT_co", covariant=True)

#: Steps after the last agreement that still count as warm-up, because agreeing empties pipelines.
SETTLING_STEPS = 3

#: The first steps are slow: a duration takes more steps than they suggest.
MARGIN = 1.1


class Driver(Protocol[RowsT_co]):
    """What the loop needs of a backend."""

    def run(self, num_steps: int, *, events: bool = False) -> RowsT_co:
        """Make steps on all workers this task drives."""

    def agree(self, value: float) -> float:
        """The largest of all driving tasks' values."""


@dataclass(frozen=True, slots=True)
class Stretch(Generic[RowsT]):
    """Steps that were made in one go.

    Attributes:
        num_steps: of every worker; if steps are dealt, the mean over all workers.
        leading: how many steps of each worker, the first ones, still count as warm-up.
    """

    phase: Phase
    num_steps: int
    rows: RowsT
    leading: int = 0


def timed_loop(
    driver: Driver[RowsT],
    measurement: Measurement,
    clock: Callable[[], float],
    progress: Callable[[Phase], None],
    expect: Callable[[float], None],
) -> list[Stretch[RowsT]]:
    """Run one measurement.

    Args:
        clock: seconds, monotonic.
        progress: told of every phase as it begins.
        expect: told how many seconds are needed from now on, at least.
    """
    progress(Phase.FIRST)
    stretches = [Stretch(Phase.FIRST, 1, driver.run(1))]
    progress(Phase.WARMUP)
    step_s = _warm_up(driver, measurement, clock, stretches, expect)
    expect(measurement.least_measured_s(step_s))
    progress(Phase.MEASURED)
    wanted = max(measurement.measured_steps, math.ceil(measurement.measured_s * MARGIN / step_s))
    measured = int(driver.agree(wanted))
    total = SETTLING_STEPS + measured
    stretches.append(Stretch(Phase.MEASURED, total, driver.run(total), leading=SETTLING_STEPS))
    if measurement.event_steps:
        progress(Phase.EVENTS)
        count = measurement.event_steps
        stretches.append(Stretch(Phase.EVENTS, count, driver.run(count, events=True)))
    return stretches


def _warm_up(
    driver: Driver[RowsT],
    measurement: Measurement,
    clock: Callable[[], float],
    stretches: list[Stretch[RowsT]],
    expect: Callable[[float], None],
) -> float:
    """Warm up until all workers have enough; return seconds per step of the last stretch.

    A single step comes first, for a first look.
    """
    elapsed, steps, chunk = 0.0, 0, 1
    while True:
        begin = clock()
        stretches.append(Stretch(Phase.WARMUP, chunk, driver.run(chunk)))
        taken = max(clock() - begin, 1e-9)
        elapsed, steps = elapsed + taken, steps + chunk
        step_s = taken / chunk
        if steps == 1:
            expect(measurement.least_warmup_s(step_s) + measurement.least_measured_s(step_s))
        left_s = measurement.warmup_s - elapsed
        # The first steps are a poor estimate: go half of a long way, then estimate again.
        by_time = math.ceil((left_s / 2 if left_s > 1.0 else left_s) / step_s)
        by_number = measurement.warmup_steps - steps
        chunk = int(driver.agree(by_number if by_number > 0 else max(by_time, 0)))
        if chunk == 0:
            return step_s
