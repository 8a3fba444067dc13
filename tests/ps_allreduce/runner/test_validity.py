"""Every check lets a good run pass and names what is wrong with a bad one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    NoCommunication,
)
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.records import PlacementUsed
from ps_allreduce.record.steps import Phase, StepTable, concatenate
from ps_allreduce.runner.results import ClockPair, DriverResult
from ps_allreduce.runner.validity import find_problems
from tests.fakes import make_experiment, make_steps

MEASUREMENT = Measurement(warmup_steps=2, warmup_s=1.5, measured_steps=3)

PHASES = [Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * 3]


def result(task: str, **changes: Any) -> DriverResult:
    good = DriverResult(
        task=task,
        connected_at=1.0,
        built_at=2.0,
        first_step_at=3.0,
        warm_at=4.0,
        measured_at=8.0,
        checksums_before=(1, 2),
        checksums_after=(3, 4),
        traces_before=1,
        traces_after=1,
        requested_steps=5,
        clock_start=ClockPair(wall=1000.0, monotonic=10.0),
        clock_end=ClockPair(wall=1005.0, monotonic=15.001),
        gradient_bytes=8,
        num_messages=2,
    )
    return replace(good, **changes)


RESULTS = [result("worker:0"), result("worker:1")]

STEPS = concatenate([make_steps(index, [1, 2, 3, 4, 5], PHASES) for index in (0, 1)])

REDUCED = make_experiment(AllReduce, measurement=MEASUREMENT)

SERVED = make_experiment(AsynchronousServers, measurement=MEASUREMENT)


def with_column(name: str, row: int, value: float) -> StepTable:
    """The good timings but for one value."""
    column = getattr(STEPS, name).copy()
    column[row] = value
    return replace(STEPS, **{name: column})


def test_a_good_run_has_no_problem() -> None:
    assert find_problems(REDUCED, RESULTS, STEPS) == []
    assert find_problems(SERVED, [result("chief:0")], STEPS) == []


def test_a_worker_without_a_step_is_named() -> None:
    only = STEPS.select(STEPS.worker == 0)
    assert "no step was recorded of worker:1" in find_problems(REDUCED, RESULTS, only)


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
            {"clock_end": ClockPair(wall=1005.1, monotonic=15.001)},
            ["the wall clock of worker:1 was set by +0.099 s"],
        ),
        (
            AllReduce,
            {"clock_end": ClockPair(wall=1004.9, monotonic=15.001)},
            ["the wall clock of worker:1 was set by -0.101 s"],
        ),
    ],
)
def test_what_a_worker_tells_of_itself_is_judged(
    strategy: type[AnyStrategy], change: dict[str, Any], problems: list[str]
) -> None:
    experiment = make_experiment(strategy, measurement=MEASUREMENT)
    told = [RESULTS[0], result("worker:1", **change)]
    assert find_problems(experiment, told, STEPS) == problems


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
    bound = make_experiment(measurement=MEASUREMENT, **changes)
    (problem,) = find_problems(bound, [result("chief:0")], uneven())
    assert "the workers made [4, 6]" in problem


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"warmup_steps": 3}, "worker:0 warmed up for 2 steps and 2.0 s, not for 3 steps and"),
        ({"warmup_s": 2.5}, "worker:0 warmed up for 2 steps and 2.0 s, not for 2 steps and 2.5 s"),
    ],
)
def test_a_short_warm_up_is_told(changes: dict[str, Any], told: str) -> None:
    demanding = make_experiment(AllReduce, measurement=replace(MEASUREMENT, **changes))
    (problem,) = find_problems(demanding, RESULTS, STEPS)
    assert problem.startswith(told)


def emulated(accumulation: int, forward_s: float) -> Experiment:
    compute = EmulatedCompute(forward_s=forward_s, backward_s=2 * forward_s)
    workload = Workload(emulated=compute, accumulation=accumulation)
    return make_experiment(AllReduce, measurement=MEASUREMENT, workload=workload)


@pytest.mark.parametrize("taken_s", [0.0285, 0.030, 0.5])
def test_an_emulated_accelerator_may_be_slow_and_a_little_early(taken_s: float) -> None:
    steps = [make_steps(w, [1, 2, 3, 4, 5], PHASES, compute_s=taken_s) for w in (0, 1)]
    assert find_problems(emulated(1, 0.010), RESULTS, concatenate(steps)) == []


def test_an_emulated_accelerator_that_is_faster_than_stated_is_told() -> None:
    right = make_steps(0, [1, 2, 3, 4, 5], PHASES, compute_s=0.030)
    early = make_steps(1, [1, 2, 3, 4, 5], PHASES, compute_s=0.0167)
    assert find_problems(emulated(1, 0.010), RESULTS, concatenate([right, early])) == [
        "the emulated accelerator of worker:1 took 16.7 ms for a step of 30.0 ms"
    ]
    twice = emulated(2, 0.010)
    assert find_problems(twice, RESULTS, concatenate([right, early]))[0].endswith("of 60.0 ms")


def test_clocks_read_a_little_late_do_not_make_short_passes_invalid() -> None:
    for batches in (1, 4):
        taken_s = 0.0018 * batches
        steps = [make_steps(w, [1, 2, 3, 4, 5], PHASES, compute_s=taken_s) for w in (0, 1)]
        assert find_problems(emulated(batches, 0.001), RESULTS, concatenate(steps)) == []


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


def test_an_empty_run_is_told_without_a_crash() -> None:
    problems = find_problems(REDUCED, RESULTS, STEPS.select(np.zeros(len(STEPS), dtype=bool)))
    assert "no step was recorded of worker:0, worker:1" in problems
