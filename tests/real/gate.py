"""The correctness gate: do strategies train the same model?

A run is compared with the single worker of `make gate`: the mean of the workers' losses in every
step, which follows from the weights before that step, and the weights after the last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from experiments.suite.gate_arms import compare, reference_of
from launchers.run.conclude import LaunchedRun
from launchers.run.launcher import HostsLauncher
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import Single
from ps_allreduce.record.records import Status
from ps_allreduce.record.step_table import StepTable
from ps_allreduce.record.variables import RunWeights, load_weights
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
    """

    run: LaunchedRun
    steps: StepTable
    weights: RunWeights

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
    return Trained(run, run.steps, load_weights(weights))


def single_for(experiment: Experiment) -> Experiment:
    """The single worker that an experiment must agree with, on this machine's processors."""
    reference = reference_of(experiment)
    own = point(Single, workload=reference.workload, measurement=experiment.measurement)
    return replace(own, strategy=reference.strategy)


def distance(trained: Trained, reference: Trained) -> float:
    """How far the weights are from the reference's, relative to the distance that it trained."""
    final = trained.weights.final
    return compare(final, reference.weights, [""] * len(final)).distance


def difference(trained: Trained, reference: Trained) -> float:
    """That, or the largest difference of a loss, relative to the largest loss."""
    assert len(trained.losses) == len(reference.losses)
    losses = np.abs(trained.losses - reference.losses).max() / np.abs(reference.losses).max()
    return max(float(losses), distance(trained, reference))
