"""Asynchronous steps, several in one dispatch or with a bound on how far workers run ahead."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.strategies import AsynchronousServers, Single
from ps_allreduce.point.workload import EmulatedCompute, Optimizer, Workload
from ps_allreduce.record.records import Status
from ps_allreduce.record.steps import StepTable
from tests.cluster import LocalLauncher
from tests.real.gate import (
    TOLERANCE,
    difference,
    single_with_whole_batch,
    train,
)
from tests.real.killing import kill_when_measured
from tests.real.points import BRIEF, LONG, launch, point

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("need_tensorflow", "two_cores")]

#: All gradients are equal, so weights tell how many were applied; the rate makes each step count.
CONSTANT = Workload(
    emulated=EmulatedCompute(forward_s=0.002, backward_s=0.002),
    batch_per_worker=2,
    optimizer=Optimizer(learning_rate=1000.0, momentum=0.0),
)

#: Enough for both workers to be measured, and the steps that they make.
FAIR = replace(BRIEF, measured_steps=50)
FAIR_STEPS = 2 * (1 + 1 + 3 + 50)

DEALT = [(None, 4), (1, 1), (4, 3)]


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


@pytest.mark.parametrize(
    ("staleness", "steps_per_dispatch", "accumulation"), [(None, 4, 3), (4, 3, 1)]
)
def test_one_worker_trains_like_a_single_one(
    staleness: int | None,
    steps_per_dispatch: int,
    accumulation: int,
    launcher: LocalLauncher,
    tmp_path: Path,
) -> None:
    workload = Workload(batch_per_worker=9 // accumulation, accumulation=accumulation)
    experiment = _dealt(1, staleness, steps_per_dispatch, workload)
    trained = train(launcher, experiment, tmp_path)
    reference = train(launcher, single_with_whole_batch(experiment), tmp_path)
    assert len(trained.losses) == 1 + 1 + 3 + 6
    assert difference(trained, reference) < TOLERANCE


def _launch(
    launcher: LocalLauncher, experiment: Experiment, folder: Path
) -> tuple[StepTable, list[npt.NDArray[np.float32]]]:
    """The steps of a run, and the weights after it."""
    path = folder / f"{experiment.experiment_id}.npz"
    run = launch(launcher, experiment, weights=path)
    assert run.status is Status.OK, f"{run.reason}\n{run.log[-3000:]}"
    assert run.steps is not None
    with np.load(path, allow_pickle=False) as archive:
        return run.steps, [archive[name] for name in sorted(archive.files)]


def _after_steps(
    launcher: LocalLauncher, count: int, folder: Path
) -> list[npt.NDArray[np.float32]]:
    """Weights of a single worker after so many steps with constant gradients."""
    measurement = replace(BRIEF, measured_steps=count - 5)
    steps, weights = _launch(
        launcher, point(Single, workload=CONSTANT, measurement=measurement), folder
    )
    assert len(steps) == count
    return weights


def _same(weights: list[npt.NDArray[np.float32]], other: list[npt.NDArray[np.float32]]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(weights, other, strict=True))


@pytest.fixture(scope="module")
def expected(
    launcher: LocalLauncher, tmp_path_factory: pytest.TempPathFactory
) -> list[npt.NDArray[np.float32]]:
    """Weights after each gradient of a fair run was applied once."""
    folder = tmp_path_factory.mktemp("expected")
    weights = _after_steps(launcher, FAIR_STEPS, folder)
    assert not _same(weights, _after_steps(launcher, FAIR_STEPS - 1, folder))
    return weights


@pytest.mark.parametrize(("staleness", "steps_per_dispatch"), DEALT)
def test_every_gradient_is_applied_exactly_once(
    staleness: int | None,
    steps_per_dispatch: int,
    launcher: LocalLauncher,
    expected: list[npt.NDArray[np.float32]],
    tmp_path: Path,
) -> None:
    experiment = _dealt(2, staleness, steps_per_dispatch, CONSTANT, FAIR)
    steps, weights = _launch(launcher, experiment, tmp_path)
    assert len(steps) == FAIR_STEPS
    assert _same(weights, expected)
    for worker in range(2):
        _assert_one_after_another(steps.of_worker(worker))


def _assert_one_after_another(steps: StepTable) -> None:
    assert (steps.start[1:] >= steps.end[:-1]).all()


@pytest.mark.parametrize(("staleness", "steps_per_dispatch"), [(1, 1), (5, 3)])
def test_nobody_runs_ahead_of_a_slow_worker(
    staleness: int,
    steps_per_dispatch: int,
    patched_launcher: Callable[[str], LocalLauncher],
    expected: list[npt.NDArray[np.float32]],
    tmp_path: Path,
) -> None:
    experiment = _dealt(2, staleness, steps_per_dispatch, CONSTANT, FAIR)
    steps, weights = _launch(patched_launcher("slow_asynchronous_worker"), experiment, tmp_path)
    assert _same(weights, expected)
    fast, slow = (steps.of_worker(worker) for worker in range(2))
    assert len(fast) == len(slow) == FAIR_STEPS / 2
    assert 1 <= _ahead(fast, slow).max() <= staleness
    assert _ahead(slow, fast).max() <= staleness


def _ahead(worker: StepTable, other: StepTable) -> npt.NDArray[np.int64]:
    """For each step, how many steps more the worker had ended when it began than the other."""
    ended = (other.end[np.newaxis, :] <= worker.start[:, np.newaxis]).sum(axis=1)
    return np.asarray(worker.step - ended)


def test_the_others_do_not_wait_for_a_worker_whose_dispatch_fails(
    patched_launcher: Callable[[str], LocalLauncher],
) -> None:
    local = patched_launcher("failing_dispatch")
    begin = time.monotonic()
    experiment = _dealt(2, 1, 1, CONSTANT, replace(LONG, warmup_steps=20))
    run = launch(local, experiment)
    assert (run.status, time.monotonic() - begin < 40) == (Status.FAILED, True)
    assert run.reason == "chief:0: RuntimeError: this dispatch was to fail"


@pytest.mark.parametrize("victim", ["worker:1"])
def test_a_killed_task_ends_a_bounded_run_with_its_name(
    victim: str, launcher: LocalLauncher
) -> None:
    begin = time.monotonic()
    run = launch(launcher, _dealt(2, 1, 1, CONSTANT, LONG), progress=kill_when_measured(victim))
    assert run.status is Status.FAILED
    assert run.reason == f"{victim} was killed by SIGKILL"
    assert time.monotonic() - begin < 40
