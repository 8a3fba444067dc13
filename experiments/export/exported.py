"""What is exported: a measured setting, how the training is started, and its tasks (`tasks.json`).

Decides that tasks get the cores that they had in the measurement, counted from the first that a
host offers.  On one machine, tasks that were on emulated hosts get cores side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from analysis.planning.choice import MeasuredSetting
from experiments.export.taken.launch import PlannedTask
from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.errors import UserError
from ps_allreduce.exchange.stacking import Stack
from ps_allreduce.point.cores import cores_needed, plan_cores, share_machine
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import Placed, drivers_of, place_by_number
from ps_allreduce.point.models.recommenders import RecommenderModel
from ps_allreduce.point.optimizers import RateSchedule
from ps_allreduce.point.placement import Plan
from ps_allreduce.point.resources import Device, Spread
from ps_allreduce.point.strategies.stock import Stock
from ps_allreduce.record.records import RunRecord
from ps_allreduce.tf_texts import TASK_ENVIRONMENT

#: The one host of a machine.
HERE = "here"

#: Of what a task found, that is no variable of the environment.
NO_VARIABLE = "data_layout"


def task_lines(experiment: Experiment, *, one_machine: bool) -> tuple[PlannedTask, ...]:
    """All tasks of a training on one machine, or on as many hosts as the experiment is spread over.

    Raises:
        UserError: the experiment does not fit on hosts.
    """
    if not one_machine and experiment.spread is None:
        experiment = replace(experiment, spread=Spread())
    placed = place_by_number(experiment)
    cores = _cores(experiment, placed, one_machine=one_machine)
    drivers = drivers_of(experiment)
    return tuple(
        PlannedTask(
            kind=str(task.type),
            index=task.index,
            host=0 if one_machine else int(host),
            cores=cores[task],
            gpu=_gpu(experiment, task, placed, one_machine=one_machine),
            drives=task in drivers,
        )
        for task, host in placed.items()
    )


def _cores(
    experiment: Experiment, placed: Placed, *, one_machine: bool
) -> Mapping[TaskId, tuple[int, ...]]:
    needed = cores_needed(experiment, placed)
    if one_machine:
        return share_machine(experiment, placed, range(sum(needed.values()))).cores
    offered = {host: range(count) for host, count in needed.items()}
    return plan_cores(experiment, placed, offered).cores


def _gpu(experiment: Experiment, task: TaskId, placed: Placed, *, one_machine: bool) -> int | None:
    """Workers of a host take its GPUs in turn."""
    if experiment.resources.device is not Device.GPU or task.type is not TaskType.WORKER:
        return None
    workers = [each for each in placed if each.type is TaskType.WORKER]
    return [w for w in workers if one_machine or placed[w] == placed[task]].index(task)


def environment_of(record: RunRecord) -> dict[str, str]:
    """Variables that tasks had in the measurement because they change what is computed."""
    found = record.tasks[0].settings if record.tasks else {}
    settings = {name: text for name, text in found.items() if name != NO_VARIABLE}
    return {
        **settings,
        **TASK_ENVIRONMENT,
        "TF_CPP_MIN_LOG_LEVEL": "1",
        "KERAS_BACKEND": "tensorflow",
    }


class Start(StrEnum):
    """How the tasks of a training are started; emulated hosts become this machine."""

    LOCAL = "local"
    SSH = "ssh"
    SLURM = "slurm"

    @classmethod
    def of(cls, experiment: Experiment) -> Start:
        """As the experiment was launched."""
        return cls(experiment.launcher) if experiment.launcher in list(cls) else cls.LOCAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training that is to be written.

    Attributes:
        plan: which server holds which variable; None without servers.
        data_dir: where the copies of the user's own files, and input that the suite made, are.
        tasks: all of its processes.
        stack: where rows of tables are that are exchanged alone; None where servers hold none.
    """

    measured: MeasuredSetting
    start: Start
    plan: Plan | None
    tasks: tuple[PlannedTask, ...]
    data_dir: Path
    stack: Stack | None = None

    def __post_init__(self) -> None:
        strategy, workload = self.experiment.strategy, self.experiment.workload
        altered = Stock.export_refusal if strategy.is_altered else ""
        if refusal := strategy.export_refusal or altered:
            raise UserError(f"{strategy.label}: {refusal}")
        if strategy.columns().get("synchronous_steps") or workload.schedule != RateSchedule():
            raise UserError(
                f"{strategy.label}: a training that changes on the way, by --synchronous-steps "
                "or the learning rate, is measured and not written. Choose another setting."
            )
        if isinstance(workload.model, RecommenderModel):
            raise UserError(
                f"model {workload.model.name} is trained on ids that are made up, and there is "
                "nothing to be taken home: choose a setting of your own model."
            )
        if not workload.model.computes:
            raise UserError(
                f"model {workload.model.name} computes nothing, so there is nothing to train: "
                "choose a setting of a real model."
            )

    @property
    def experiment(self) -> Experiment:
        """The point that was measured."""
        return self.measured.record.experiment

    @property
    def num_hosts(self) -> int:
        """How many hosts the tasks need."""
        return max(task.host for task in self.tasks) + 1
