"""A single run: its experiment, and how it is made.

Decides that a setting which the strategy does not understand is refused, and that every call makes
one more repetition.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from experiments.cli.requests import RunRequest, SpreadRequest, WorkloadRequest
from experiments.studies.scope import Describe
from experiments.sweep.execute import RunListener, open_session, run_once_more
from experiments.sweep.folder import locked
from launchers.run.launcher import HostsLauncher
from launchers.settings import LauncherSettings
from launchers.sites import network_of
from ps_allreduce.errors import UserError
from ps_allreduce.point.architectures import SMALL_CNN
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy, default_split_bytes
from ps_allreduce.point.resources import Resources
from ps_allreduce.point.spread import workers_together
from ps_allreduce.point.strategies.base import StrategySettings
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import RunRecord

NAME = "run-one"


def single_experiment(
    request: RunRequest,
    settings: StrategySettings,
    workload_request: WorkloadRequest,
    spread_request: SpreadRequest,
    launcher: LauncherSettings,
    describe: Describe,
) -> Experiment:
    """The experiment that was asked for.

    Raises:
        UserError: what was asked for does not fit together.
    """
    workload = workload_request.workload(workload_request.model or SMALL_CNN)
    experiment = Experiment(
        strategy=request.strategy.of(_with_threshold(settings, workload, describe)),
        num_workers=request.num_workers,
        launcher=launcher.launcher,
        spread=spread_request.spread(launcher.launcher),
        network=network_of(launcher),
        interface=launcher.interface,
        workload=workload,
        resources=Resources(
            cores_per_worker=request.cores_per_worker,
            threads_per_worker=request.threads_per_worker,
            device=workload_request.device,
        ),
        measurement=request.profile.measurement,
    )
    _refuse_lonely_aggregation(experiment)
    return experiment


def _with_threshold(
    settings: StrategySettings, workload: Workload, describe: Describe
) -> StrategySettings:
    """Where variables are cut and nobody says above which size: the model's default."""
    if settings.placement is not Policy.PARTITIONED or settings.split_bytes is not None:
        return settings
    threshold = default_split_bytes(describe(workload), settings.num_ps or 1)
    return replace(settings, split_bytes=threshold)


def _refuse_lonely_aggregation(experiment: Experiment) -> None:
    together = workers_together(experiment.num_workers, experiment.spread)
    if experiment.strategy.host_aggregation and together < 2:
        raise UserError(
            "--host-aggregation adds up the gradients of workers that share a host, and here none "
            "do: leave it out, or take several workers on a host (--num-workers, "
            "--workers-per-host)."
        )


def make_one_run(
    experiment: Experiment,
    request: RunRequest,
    launcher: HostsLauncher,
    sweep_dir: Path,
    commit: str,
    listener: RunListener,
) -> RunRecord:
    """Run an experiment once more than before.

    Raises:
        UserError: it cannot be run here, or the folder cannot be used.
    """
    launcher.check(experiment)
    with locked(sweep_dir):
        session = open_session(launcher, NAME, sweep_dir, request.profile, commit, listener)
        launcher.prepare(experiment.workload)
        weights = request.weights and request.weights.resolve()
        return run_once_more(session, experiment, weights)
