"""Every check lets a good run pass and names what is wrong with a bad one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ps_allreduce.point.accelerators import Distribution, Floats, Jitter
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import FixedWarmup, WarmupEnd
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    NoCommunication,
    StockAllReduce,
)
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.step_table import Phase, StepTable, concatenate
from ps_allreduce.record.variables import PlacementUsed, SparseGradient
from ps_allreduce.runner.validity import ClockPair, DriverResult, find_doubts, find_problems
from tests.fakes import make_experiment, make_steps
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


def test_a_good_run_has_no_problem() -> None:
    assert find_problems(REDUCED, RESULTS, STEPS) == []
    assert find_problems(SERVED, [result("chief:0")], STEPS) == []


def test_workers_without_a_step_are_named() -> None:
    only = STEPS.select(STEPS.worker == 0)
    assert "no step was recorded of worker:1" in find_problems(REDUCED, RESULTS, only)
    problems = find_problems(REDUCED, RESULTS, STEPS.select(STEPS.worker > 1))
    assert "no step was recorded of worker:0, worker:1" in problems


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_not_finite_is_placed(value: float) -> None:
    steps = with_column("loss", 7, value)
    assert find_problems(REDUCED, RESULTS, steps) == ["loss is not finite from step 2 of worker:1"]


@pytest.mark.parametrize(
    ("strategy", "change", "problems"),
    [
        (
            NoCommunication,
            {"checksums_after": (1, 2)},
            ["the weights did not move (worker:1)"],
        ),
        (
            AllReduce,
            {"checksums_after": (3, 5)},
            ["trainable weights of worker:1 differ from worker:0"],
        ),
        (NoCommunication, {"checksums_after": (3, 5)}, []),
        (AllReduce, {"traces_after": 2}, ["a step function was traced again (worker:1)"]),
        (
            AllReduce,
            {"clock_end": ClockPair(wall=1.1, monotonic=1.001)},
            ["the wall clock of worker:1 was set by +0.099 s"],
        ),
        (
            AllReduce,
            {"clock_end": ClockPair(wall=0.9, monotonic=1.001)},
            ["the wall clock of worker:1 was set by -0.101 s"],
        ),
    ],
)
def test_what_a_worker_tells_of_itself_is_judged(
    strategy: type[AnyStrategy], change: dict[str, Any], problems: list[str]
) -> None:
    experiment = make_experiment(strategy, measurement=SHORT)
    told = [RESULTS[0], result("worker:1", **change)]
    assert find_problems(experiment, told, STEPS) == problems


def test_replicas_of_plain_tensorflow_that_add_rows_in_any_order_are_a_doubt() -> None:
    rows = SparseGradient(variable="a", num_rows=10, row_bytes=8, looked_up=64)
    told = [
        result("worker:0", sparse=(rows,)),
        result("worker:1", sparse=(rows,), checksums_after=(3, 5)),
    ]
    stock = make_experiment(StockAllReduce, measurement=SHORT)
    assert find_problems(stock, told, STEPS) == []
    assert find_doubts(stock, told, STEPS) == [
        "trainable weights of worker:1 differ from worker:0: plain TensorFlow adds up repeated "
        "rows in no fixed order"
    ]
    assert find_problems(REDUCED, told, STEPS) != []
    in_order = replace(stock, workload=replace(stock.workload, deterministic=True))
    assert find_problems(in_order, told, STEPS) != []


def test_steps_that_do_not_add_up_are_counted() -> None:
    fewer = STEPS.select(np.arange(len(STEPS)) != 9)
    assert find_problems(REDUCED, RESULTS, fewer) == [
        "5 steps per worker were asked for but the workers made [5, 4]"
    ]


def uneven() -> StepTable:
    slow = make_steps(0, [1, 3, 5, 7], [Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * 2])
    quick = make_steps(1, range(1, 7), [Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * 4])
    return concatenate([slow, quick])


def test_workers_of_dealt_steps_may_make_different_numbers_but_not_fewer() -> None:
    assert find_problems(SERVED, [result("chief:0")], uneven()) == []
    (problem,) = find_problems(SERVED, [result("chief:0")], uneven().select(np.arange(10) != 9))
    assert "5 steps per worker were asked for but the workers made [4, 5]" in problem


@pytest.mark.parametrize("changes", [{}, {"strategy": AsynchronousServers, "staleness": 3}])
def test_workers_that_are_bound_to_each_other_may_not(changes: dict[str, Any]) -> None:
    bound = make_experiment(measurement=SHORT, **changes)
    (problem,) = find_problems(bound, [result("chief:0")], uneven())
    assert "the workers made [4, 6]" in problem
    three = concatenate([uneven(), make_steps(2, [1, 2, 3, 4, 5], FIVE_STEPS)])
    (problem,) = find_problems(replace(bound, num_workers=3), [result("chief:0")], three)
    assert "the workers made [4, 6, 5]" in problem


@pytest.mark.parametrize(
    ("least", "told"),
    [
        ((3, 1.0), "worker:0 warmed up for 2 steps and 2.0 s, not for 3 steps and"),
        ((2, 2.5), "worker:0 warmed up for 2 steps and 2.0 s, not for 2 steps and 2.5 s"),
    ],
)
def test_a_short_warm_up_is_told(least: tuple[int, float], told: str) -> None:
    longer = FixedWarmup(least_steps=least[0], least_s=least[1])
    demanding = make_experiment(AllReduce, measurement=replace(SHORT, warmup=longer))
    (problem,) = find_problems(demanding, RESULTS, STEPS)
    assert problem.startswith(told)


def test_a_warm_up_that_only_its_limit_has_ended_is_a_doubt() -> None:
    drivers = [result("worker:0", warmup_end=WarmupEnd.STEADY)]
    assert find_doubts(REDUCED, drivers, STEPS) == []
    drivers.append(result("worker:1", warmup_end=WarmupEnd.LIMIT))
    assert find_problems(REDUCED, drivers, STEPS) == []
    assert find_doubts(REDUCED, drivers, STEPS) == [
        "step times were not steady after 4.0 s of warm-up, which ended all the same"
    ]


def at_work(*seconds: float | Floats) -> StepTable:
    """The steps of two workers that compute for so long in each."""
    return concatenate(
        [make_steps(w, [1, 2, 3, 4, 5], FIVE_STEPS, compute_s=s) for w, s in enumerate(seconds)]
    )


def emulated(accumulation: int, forward_s: float, **changes: Any) -> Experiment:
    compute = EmulatedCompute(forward_s=forward_s, backward_s=2 * forward_s, **changes)
    workload = Workload(emulated=compute, accumulation=accumulation)
    return make_experiment(AllReduce, measurement=SHORT, workload=workload)


@pytest.mark.parametrize(
    ("batches", "forward_s", "taken_s"),
    [
        *((1, 0.010, taken_s) for taken_s in (0.0285, 0.030, 0.5)),
        # Clocks are read a little late, which must not make short passes invalid.
        *((batches, 0.001, 0.0018 * batches) for batches in (1, 4)),
    ],
)
def test_an_emulated_accelerator_may_be_slow_and_a_little_early(
    batches: int, forward_s: float, taken_s: float
) -> None:
    steps = at_work(taken_s, taken_s)
    assert find_problems(emulated(batches, forward_s), RESULTS, steps) == []


def test_an_emulated_accelerator_that_is_faster_than_stated_is_told() -> None:
    early = at_work(0.030, 0.0167)
    assert find_problems(emulated(1, 0.010), RESULTS, early) == [
        "the emulated accelerator of worker:1 took 16.7 ms for a step of 30.0 ms"
    ]
    assert find_problems(emulated(2, 0.010), RESULTS, early)[0].endswith("of 60.0 ms")


def test_an_emulated_accelerator_that_is_slower_than_stated_is_a_doubt() -> None:
    assert find_doubts(emulated(1, 0.010), RESULTS, at_work(0.0308, 0.0292)) == []
    assert find_doubts(REDUCED, RESULTS, at_work(0.5, 0.5)) == []
    assert find_doubts(emulated(2, 0.010), RESULTS, at_work(0.0625, 0.0617)) == [
        "1 of 2 emulated accelerators were slower than stated: that of worker:0 took 62.5 ms for a "
        "step of 60.0 ms"
    ]


def test_a_worker_with_a_factor_is_held_against_its_own_time() -> None:
    slow = emulated(1, 0.010, factors=(1.0, 1.5))
    assert find_problems(slow, RESULTS, at_work(0.030, 0.045)) == []
    assert find_doubts(slow, RESULTS, at_work(0.030, 0.045)) == []
    assert find_problems(slow, RESULTS, at_work(0.030, 0.030)) == [
        "the emulated accelerator of worker:1 took 30.0 ms for a step of 45.0 ms"
    ]
    # By its share the first is later than the second.
    assert find_doubts(slow, RESULTS, at_work(0.033, 0.047)) == [
        "2 of 2 emulated accelerators were slower than stated: that of worker:0 took 33.0 ms for a "
        "step of 30.0 ms"
    ]


def test_a_worker_that_jitters_is_held_against_what_it_drew() -> None:
    jitter = Jitter(distribution=Distribution.GAMMA, variation=0.5)
    uneven = emulated(1, 0.010, jitter=jitter)
    one, two = (0.030 * jitter.factors(worker, np.arange(5)) for worker in (0, 1))
    assert find_problems(uneven, RESULTS, at_work(one, two)) == []
    assert find_doubts(uneven, RESULTS, at_work(one, two)) == []
    (problem,) = find_problems(uneven, RESULTS, at_work(one, two - 0.01))
    assert problem.startswith("the emulated accelerator of worker:1 took ")
    (doubt,) = find_doubts(uneven, RESULTS, at_work(one + 0.01, two))
    assert doubt.startswith(
        "1 of 2 emulated accelerators were slower than stated: that of worker:0"
    )


@pytest.mark.parametrize(
    ("backward_s", "groups", "releases"),
    [(0.001, 16, 1), (0.003, 16, 1), (0.02, 16, 10), (0.04, 16, 16), (1.0, 3, 3)],
)
def test_gradients_are_released_as_often_as_the_time_bears(
    backward_s: float, groups: int, releases: int
) -> None:
    compute = EmulatedCompute(forward_s=0.001, backward_s=backward_s, groups=groups)
    assert compute.releases == releases


def test_a_variable_that_is_elsewhere_is_told() -> None:
    used = PlacementUsed(
        shards=(), variables=(), bytes_per_server=(1, 1), max_over_mean=1.0, deviations=("v: ps:1",)
    )
    placed = [result("chief:0", placement=replace(used, deviations=()))]
    assert find_problems(SERVED, placed, STEPS) == []
    assert find_problems(SERVED, [result("chief:0", placement=used)], STEPS) == ["v: ps:1"]


def test_all_problems_are_told() -> None:
    bad = [result(f"worker:{index}", traces_after=9) for index in (0, 1)]
    assert len(find_problems(REDUCED, bad, with_column("loss", 0, float("nan")))) == 2
