"""The correctness gate: do strategies train the same model?

A run of n workers is compared with a single worker that gets the whole batch: the mean of the
workers' losses in every step, which follows from the weights before that step, and the weights
after the last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from launchers.protocol import LaunchedRun
from launchers.run.launcher import HostsLauncher
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import Single
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import Status
from ps_allreduce.record.steps import StepTable
from tests.cluster import LocalLauncher
from tests.real.points import launch, point

#: Makes a launcher whose tasks are changed by the patch that is named.
Patched = Callable[[str], LocalLauncher]

#: How far an experiment on a launcher is from the single worker that it must agree with.
Compare = Callable[[HostsLauncher, Experiment], float]

#: Sums in another order differ by rounding; a wrong mean differs by far more.
TOLERANCE = 2e-5


@dataclass(frozen=True, slots=True)
class Trained:
    """What training came to.

    Attributes:
        run: that went well.
        steps: of all workers.
        weights: trainable variables in creation order.
    """

    run: LaunchedRun
    steps: StepTable
    weights: list[npt.NDArray[np.float32]]

    @property
    def losses(self) -> npt.NDArray[np.float64]:
        """Of every step, the mean over the workers [steps], which made as many steps each."""
        workers = np.unique(self.steps.worker)
        losses = np.stack([self.steps.of_worker(index).loss for index in workers])
        return np.asarray(losses.mean(axis=0))


def train(launcher: HostsLauncher, experiment: Experiment, folder: Path) -> Trained:
    """Run an experiment for real and fetch its steps and weights."""
    weights = folder / f"{experiment.experiment_id}.npz"
    run = launch(launcher, experiment, weights=weights)
    assert run.status is Status.OK, f"{run.reason}\n{run.log[-3000:]}"
    assert run.steps is not None
    with np.load(weights, allow_pickle=False) as archive:
        return Trained(run, run.steps, [archive[name] for name in sorted(archive.files)])


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
