"""Asynchronous steps: several in one dispatch, with a bound, or after synchronous ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.optimizers import Sgd
from ps_allreduce.point.strategies import AsynchronousServers, Single
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.records import Status
from ps_allreduce.record.step_table import StepTable
from ps_allreduce.record.variables import Values
from tests.cluster import LocalLauncher
from tests.real.gate import Patched, Trained, train
from tests.real.points import BRIEF, LONG, kill_when_measured, launch, point

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("two_cores")]

#: All gradients are equal, so weights tell how many were applied; the rate makes each step count.
CONSTANT = Workload(
    emulated=EmulatedCompute(forward_s=0.002, backward_s=0.002),
    batch_per_worker=2,
    optimizer=Sgd(learning_rate=1000.0),
)

#: Enough for both workers to be measured, and the steps that they make.
FAIR = replace(BRIEF, measured_steps=50)
FAIR_STEPS = 2 * (1 + 1 + 3 + 50)

#: Of which an update takes the gradients of both workers, and the steps that they make beside.
SYNCHRONOUS = 10
SWITCHED = replace(FAIR, measured_steps=FAIR.measured_steps + SYNCHRONOUS // 2)

DEALT = [(None, 4), (4, 3)]


def _dealt(
    workers: int,
    staleness: int | None,
    steps_per_dispatch: int,
    workload: Workload,
    measurement: Measurement = BRIEF,
) -> Experiment:
    return point(
        AsynchronousServers,
        workers,
        workload=workload,
        measurement=measurement,
        staleness=staleness,
        steps_per_dispatch=steps_per_dispatch,
    )


def _same(weights: Values, other: Values) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(weights, other, strict=True))


@pytest.fixture(scope="module")
def expected(single_run: Callable[[Experiment], Trained]) -> Values:
    """Weights after each gradient of a fair run was applied once."""
    last, last_but_one = (
        single_run(
            point(Single, workload=CONSTANT, measurement=replace(BRIEF, measured_steps=count - 5))
        )
        for count in (FAIR_STEPS, FAIR_STEPS - 1)
    )
    assert (len(last.steps), len(last_but_one.steps)) == (FAIR_STEPS, FAIR_STEPS - 1)
    assert not _same(last.weights.final, last_but_one.weights.final)
    return last.weights.final


@pytest.mark.parametrize(("staleness", "steps_per_dispatch"), DEALT)
def test_every_gradient_is_applied_exactly_once(
    staleness: int | None,
    steps_per_dispatch: int,
    launcher: LocalLauncher,
    expected: Values,
    tmp_path: Path,
) -> None:
    experiment = _dealt(2, staleness, steps_per_dispatch, CONSTANT, FAIR)
    trained = train(launcher, experiment, tmp_path)
    assert len(trained.steps) == FAIR_STEPS
    assert _same(trained.weights.final, expected)
    for worker in range(2):
        steps = trained.steps.of_worker(worker)
        assert (steps.start[1:] >= steps.end[:-1]).all()


def test_synchronous_steps_apply_each_mean_once_and_those_after_them_each_gradient(
    launcher: LocalLauncher, expected: Values, tmp_path: Path
) -> None:
    experiment = point(
        AsynchronousServers,
        2,
        workload=CONSTANT,
        measurement=SWITCHED,
        synchronous_steps=SYNCHRONOUS,
    )
    trained = train(launcher, experiment, tmp_path)
    assert len(trained.steps) == FAIR_STEPS + SYNCHRONOUS
    assert _same(trained.weights.final, expected)
    first, second = (trained.steps.of_worker(worker) for worker in range(2))
    # While they are synchronous, nobody ends a step that the other has not begun.
    for one, other in ((first, second), (second, first)):
        assert (one.end[:SYNCHRONOUS] > other.start[:SYNCHRONOUS]).all()


@pytest.mark.parametrize(("staleness", "steps_per_dispatch"), [(1, 1), (5, 3)])
def test_nobody_runs_ahead_of_a_slow_worker(
    staleness: int,
    steps_per_dispatch: int,
    patched_launcher: Patched,
    expected: Values,
    tmp_path: Path,
) -> None:
    experiment = _dealt(2, staleness, steps_per_dispatch, CONSTANT, FAIR)
    trained = train(patched_launcher("slow_asynchronous_worker"), experiment, tmp_path)
    assert _same(trained.weights.final, expected)
    fast, slow = (trained.steps.of_worker(worker) for worker in range(2))
    assert len(fast) == len(slow) == FAIR_STEPS / 2
    assert 1 <= _ahead(fast, slow).max() <= staleness
    assert _ahead(slow, fast).max() <= staleness


def _ahead(worker: StepTable, other: StepTable) -> npt.NDArray[np.int64]:
    """For each step, how many steps more the worker had ended when it began than the other."""
    ended = (other.end[np.newaxis, :] <= worker.start[:, np.newaxis]).sum(axis=1)
    return np.asarray(worker.step - ended)


def test_the_others_do_not_wait_for_a_worker_whose_dispatch_fails(
    patched_launcher: Patched,
) -> None:
    experiment = _dealt(
        2, 1, 1, CONSTANT, replace(LONG, warmup=FixedWarmup(least_steps=20, least_s=0.0))
    )
    run = launch(patched_launcher("failing_dispatch"), experiment)
    assert run.status is Status.FAILED
    assert run.reason == "chief:0: RuntimeError: this dispatch was to fail"


def test_a_killed_task_ends_a_bounded_run_with_its_name(launcher: LocalLauncher) -> None:
    experiment = _dealt(2, 1, 1, CONSTANT, LONG)
    run = launch(launcher, experiment, kill_when_measured("worker:1"))
    assert (run.status, run.reason) == (Status.FAILED, "worker:1 was killed by SIGKILL")
