"""The correctness gate: do strategies train the same model?

A run of n workers is compared with a single worker that gets the whole batch: the mean of the
workers' losses in every step, which follows from the weights before that step, and the weights
after the last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from launchers.run.launcher import HostsLauncher
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import Single
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import Status
from tests.real.points import launch, point

#: Sums in another order differ by rounding; a wrong mean differs by far more.
TOLERANCE = 2e-5


@dataclass(frozen=True, slots=True)
class Trained:
    """What training came to.

    Attributes:
        losses: of every step, the mean over the workers [steps].
        weights: trainable variables in creation order.
    """

    losses: npt.NDArray[np.float64]
    weights: list[npt.NDArray[np.float32]]


def train(launcher: HostsLauncher, experiment: Experiment, folder: Path) -> Trained:
    """Run an experiment for real and fetch its losses and weights."""
    weights = folder / f"{experiment.experiment_id}.npz"
    run = launch(launcher, experiment, weights=weights)
    assert run.status is Status.OK, f"{run.reason}\n{run.log[-3000:]}"
    assert run.steps is not None
    workers = [run.steps.of_worker(index).loss for index in range(experiment.num_workers)]
    with np.load(weights, allow_pickle=False) as archive:
        return Trained(np.mean(workers, axis=0), [archive[name] for name in sorted(archive.files)])


def single_with_whole_batch(experiment: Experiment) -> Experiment:
    """The single worker that an experiment must agree with."""
    whole: Workload = replace(
        experiment.workload, batch_per_worker=experiment.global_batch, accumulation=1
    )
    return point(Single, workload=whole, measurement=experiment.measurement)


def difference(trained: Trained, reference: Trained) -> float:
    """The largest difference of a loss or a weight, relative to the largest of its kind."""
    assert len(trained.losses) == len(reference.losses)
    losses = np.abs(trained.losses - reference.losses).max() / np.abs(reference.losses).max()
    weights = max(
        np.abs(a - b).max() / max(np.abs(b).max(), 1e-3)
        for a, b in zip(trained.weights, reference.weights, strict=True)
    )
    return float(max(losses, weights))


def difference_from_single(
    launcher: HostsLauncher, experiment: Experiment, folder: Path, single: HostsLauncher
) -> float:
    """How far an experiment is from the single worker that it must agree with.

    Args:
        single: the launcher that runs the single worker.
    """
    trained = train(launcher, experiment, folder)
    return difference(trained, train(single, single_with_whole_batch(experiment), folder))
