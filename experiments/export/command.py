"""The command `export`: from a record to a folder, and what is said about it."""

from __future__ import annotations

import shlex
from pathlib import Path

from analysis.planning.choice import MeasuredSetting, choose
from experiments.export.folder import check_free, write_training
from experiments.export.render import STARTS
from experiments.export.tasks import task_lines
from experiments.export.training import Start, Training
from experiments.surroundings import this_machine
from launchers.settings import LauncherSettings
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import DEFAULT_SPLIT_BYTES, Plan, make_plan


def export(results: Path, setting: str, model: str | None, start: Start | None, into: Path) -> str:
    """Write the training of a setting; return what to do with it.

    Raises:
        UserError: there is no such setting, or it cannot be written as a training.
    """
    check_free(into)
    measured = choose(results, setting, model)
    experiment = measured.record.experiment
    start = start or Start.of(experiment)
    training = Training(
        measured=measured,
        start=start,
        plan=_plan(experiment, measured.sweep.parent),
        tasks=task_lines(experiment, one_machine=start is Start.LOCAL),
        data_dir=LauncherSettings(results=measured.sweep.parent).data_dir,
    )
    write_training(training, into)
    return "\n".join([f"Written: {into}", *_told(measured), _next(training, into)])


def _plan(experiment: Experiment, results: Path) -> Plan | None:
    """Where variables go; the model is built once to see which there are."""
    servers = experiment.strategy.servers
    if servers is None:
        return None
    with this_machine(results) as launcher:
        variables = launcher.describe(experiment.workload)
    split_bytes = servers.split_bytes or DEFAULT_SPLIT_BYTES
    return make_plan(servers.placement, variables, servers.num_ps, split_bytes)


def _told(measured: MeasuredSetting) -> list[str]:
    experiment = measured.record.experiment
    lines = [
        f"{experiment.title} ({experiment.experiment_id}): {measured.rate.mean:.1f} "
        f"{measured.unit}/s in {measured.launches_text}.",
        *([measured.better_alone] if measured.better_alone else ()),
    ]
    if experiment.workload.emulated is not None:
        lines.append(
            "An accelerator was emulated in the measurement: the model really computes in this "
            "training, so its rate will be another."
        )
    return lines


def _next(training: Training, into: Path) -> str:
    hosts = " hosts.txt" if training.start is Start.SSH else ""
    begin = "sbatch " if training.start is Start.SLURM else "./"
    return f"Start it: cd {shlex.quote(str(into))} && {begin}{STARTS[training.start]}{hosts}"
