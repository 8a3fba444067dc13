"""Every check lets a good run pass and names what is wrong with a bad one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ps_allreduce.point.accelerators import Distribution, Floats, Jitter
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import FixedWarmup, WarmupEnd
from ps_allreduce.point.strategies import (
    AllReduce,
    AsynchronousServers,
    NoCommunication,
    StockAllReduce,
    SynchronousServers,
)
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.step_table import Phase, StepTable, concatenate
from ps_allreduce.record.variables import PlacementUsed, SparseGradient
from ps_allreduce.runner.validity import ClockPair, DriverResult, find_doubts, find_problems
from tests.fakes import make_experiment, make_steps
from tests.goldens import golden
from tests.pretend import FIVE_STEPS, SHORT, driver_result


def result(task: str, **changes: Any) -> DriverResult:
    return driver_result(0, task=task, **changes)


RESULTS = [result("worker:0"), result("worker:1")]

STEPS = concatenate([make_steps(index, [1, 2, 3, 4, 5], FIVE_STEPS) for index in (0, 1)])

REDUCED = make_experiment(AllReduce, measurement=SHORT)

SERVED = make_experiment(AsynchronousServers, measurement=SHORT)


def with_column(name: str, row: int, value: float) -> StepTable:
    """The good timings but for one value."""
    column = getattr(STEPS, name).copy()
    column[row] = value
    return replace(STEPS, **{name: column})


def without(row: int, steps: StepTable = STEPS) -> StepTable:
    """The timings but for one step."""
    return steps.select(np.arange(len(steps)) != row)


def uneven() -> StepTable:
    """The second worker makes more steps than the first."""
    slow = make_steps(0, [1, 3, 5, 7], [Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * 2])
    quick = make_steps(1, range(1, 7), [Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * 4])
    return concatenate([slow, quick])


def at_work(*seconds: float | Floats) -> StepTable:
    """The steps of two workers that compute for so long in each."""
    return concatenate(
        [make_steps(w, [1, 2, 3, 4, 5], FIVE_STEPS, compute_s=s) for w, s in enumerate(seconds)]
    )


def emulated(accumulation: int = 1, **changes: Any) -> Experiment:
    """Of 30 ms for each of the batches of a step, unless something else is stated."""
    settings: dict[str, Any] = {"forward_s": 0.01, "backward_s": 0.02} | changes
    compute = EmulatedCompute(**settings)
    workload = Workload(emulated=compute, accumulation=accumulation)
    return make_experiment(AllReduce, measurement=SHORT, workload=workload)


def warmed_up(least_steps: int, least_s: float) -> Experiment:
    longer = FixedWarmup(least_steps=least_steps, least_s=least_s)
    return make_experiment(AllReduce, measurement=replace(SHORT, warmup=longer))


def telling(**changes: Any) -> list[DriverResult]:
    """What a good run tells, but for what the second worker says of itself."""
    return [RESULTS[0], result("worker:1", **changes)]


CHIEF = [result("chief:0")]
FREE = make_experiment(NoCommunication, measurement=SHORT)
STOCK = make_experiment(StockAllReduce, measurement=SHORT)
BOUND = make_experiment(SynchronousServers, measurement=SHORT)
STALE = make_experiment(AsynchronousServers, measurement=SHORT, staleness=3)
THREE = concatenate([uneven(), make_steps(2, [1, 2, 3, 4, 5], FIVE_STEPS)])

ROWS = SparseGradient(variable="a", num_rows=10, row_bytes=8, looked_up=64)
REPEATED = [
    result("worker:0", sparse=(ROWS,)),
    result("worker:1", sparse=(ROWS,), checksums_after=(3, 5)),
]
IN_ORDER = replace(STOCK, workload=replace(STOCK.workload, deterministic=True))

ASTRAY = PlacementUsed(
    shards=(), variables=(), bytes_per_server=(1, 1), max_over_mean=1.0, deviations=("v: ps:1",)
)

JITTER = Jitter(distribution=Distribution.GAMMA, variation=0.5)
ONE, TWO = (0.030 * JITTER.factors(worker, np.arange(5)) for worker in (0, 1))
JITTERING, SLOW = emulated(jitter=JITTER), emulated(factors=(1.0, 1.5))

RUNS: Mapping[str, tuple[Experiment, Sequence[DriverResult], StepTable]] = {
    "a good run": (REDUCED, RESULTS, STEPS),
    "a good run with servers": (SERVED, CHIEF, STEPS),
    "a worker without a step": (REDUCED, RESULTS, STEPS.select(STEPS.worker == 0)),
    "no step at all": (REDUCED, RESULTS, STEPS.select(STEPS.worker > 1)),
    **{
        f"a loss of {value}": (REDUCED, RESULTS, with_column("loss", 7, value))
        for value in (np.nan, np.inf, -np.inf)
    },
    "weights that do not move": (FREE, telling(checksums_after=(1, 2)), STEPS),
    "replicas that differ": (REDUCED, telling(checksums_after=(3, 5)), STEPS),
    "workers alone that differ": (FREE, telling(checksums_after=(3, 5)), STEPS),
    "rows that TensorFlow adds up in any order": (STOCK, REPEATED, STEPS),
    "rows that the suite adds up": (REDUCED, REPEATED, STEPS),
    "rows that TensorFlow adds up in order": (IN_ORDER, REPEATED, STEPS),
    "a function that is traced again": (REDUCED, telling(traces_after=2), STEPS),
    **{
        f"a clock that is set to {wall}": (
            REDUCED,
            telling(clock_end=ClockPair(wall=wall, monotonic=1.001)),
            STEPS,
        )
        for wall in (1.1, 0.9)
    },
    "a step too few": (REDUCED, RESULTS, without(9)),
    "dealt steps": (SERVED, CHIEF, uneven()),
    "a dealt step too few": (SERVED, CHIEF, without(9, uneven())),
    "steps that are not dealt": (BOUND, CHIEF, uneven()),
    "steps within a bound": (STALE, CHIEF, uneven()),
    "three workers": (replace(BOUND, num_workers=3), CHIEF, THREE),
    "too few steps of warm-up": (warmed_up(3, 1.0), RESULTS, STEPS),
    "too short a warm-up": (warmed_up(2, 2.5), RESULTS, STEPS),
    "a steady warm-up": (REDUCED, telling(warmup_end=WarmupEnd.STEADY), STEPS),
    "a warm-up that its limit ends": (REDUCED, telling(warmup_end=WarmupEnd.LIMIT), STEPS),
    # Clocks are read a little late, which must not make short passes invalid.
    "accelerators a little early": (emulated(), RESULTS, at_work(0.0285, 0.0285)),
    "short passes": (
        emulated(4, forward_s=0.001, backward_s=0.002),
        RESULTS,
        at_work(0.0072, 0.0072),
    ),
    "an early accelerator": (emulated(), RESULTS, at_work(0.030, 0.0167)),
    "an early accelerator, two batches": (emulated(2), RESULTS, at_work(0.060, 0.0167)),
    "a late accelerator, within the limit": (emulated(), RESULTS, at_work(0.0308, 0.0292)),
    "a late accelerator, two batches": (emulated(2), RESULTS, at_work(0.0625, 0.0617)),
    "no accelerator": (REDUCED, RESULTS, at_work(0.5, 0.5)),
    "a factor": (SLOW, RESULTS, at_work(0.030, 0.045)),
    "a factor that does nothing": (SLOW, RESULTS, at_work(0.030, 0.030)),
    "late with a factor, the first by its share": (SLOW, RESULTS, at_work(0.033, 0.047)),
    "jitter": (JITTERING, RESULTS, at_work(ONE, TWO)),
    "jitter, and early": (JITTERING, RESULTS, at_work(ONE, TWO - 0.01)),
    "jitter, and late": (JITTERING, RESULTS, at_work(ONE + 0.01, TWO)),
    "a variable that is elsewhere": (SERVED, [result("chief:0", placement=ASTRAY)], STEPS),
    "a variable that is where it should be": (
        SERVED,
        [result("chief:0", placement=replace(ASTRAY, deviations=()))],
        STEPS,
    ),
    "two problems": (REDUCED, telling(traces_after=9), with_column("loss", 0, np.nan)),
}


def test_what_is_wrong_with_a_run_and_what_is_doubtful() -> None:
    lines = []
    for title, run in RUNS.items():
        problems = [f"problem: {text}" for text in find_problems(*run)]
        lines += [f"# {title}", *problems, *(f"doubt: {text}" for text in find_doubts(*run)), ""]
    golden.check({"sentences/validity.txt": "\n".join(lines)})


@pytest.mark.parametrize(
    ("backward_s", "groups", "releases"),
    [(0.001, 16, 1), (0.003, 16, 1), (0.02, 16, 10), (0.04, 16, 16), (1.0, 3, 3)],
)
def test_gradients_are_released_as_often_as_the_time_bears(
    backward_s: float, groups: int, releases: int
) -> None:
    compute = EmulatedCompute(forward_s=0.001, backward_s=backward_s, groups=groups)
    assert compute.releases == releases
