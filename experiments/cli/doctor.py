"""The command `doctor` with a model: tried here as before a sweep, then built on every host."""

from __future__ import annotations

from dataclasses import replace

import click

from experiments.cli.experiment_options import MODEL_ARGS
from experiments.models.settle_model import settle_model
from experiments.models.workload_request import WorkloadRequest
from experiments.sweep.progress import plain_console
from launchers.cli.options import LAUNCHER, BriefCommand
from launchers.doctor.command import look_at_hosts
from launchers.settings import LauncherSettings
from ps_allreduce.point.models import shipped_model
from ps_allreduce.point.workload import EmulatedCompute, Workload

#: Where weights alone are built: how long steps with them would take plays no part.
SOME_ACCELERATOR = EmulatedCompute(forward_s=0.02, backward_s=0.04)


@click.command(cls=BriefCommand)
@click.option("--model", required=True, help="A name (the command models lists all), or yours.")
@MODEL_ARGS
@LAUNCHER
def doctor(model: str, model_args: tuple[str, ...], launcher: LauncherSettings) -> int:
    """Find what is wrong with the hosts, and whether each of them can build a model.

    Your own model is tried on this machine first.  Exit status: 0 no failure, 1 a failure, 2 a
    mistake in the request or a model that cannot be trained.
    """
    asked = WorkloadRequest(model=model, model_args=model_args)
    asked = settle_model(asked, launcher.results, plain_console())
    return look_at_hosts(launcher, _workload(asked))


def _workload(asked: WorkloadRequest) -> Workload:
    model = asked.model
    assert model is not None
    if isinstance(model, str) and not shipped_model(model).computes:
        asked = replace(asked, emulate=SOME_ACCELERATOR)
    return asked.workload(model)
