"""What is exported: a measured setting, and how the training is started."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from analysis.planning.choice import MeasuredSetting
from experiments.export.tasks import TaskLine
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.recommenders import RecommenderModel
from ps_allreduce.point.placement import Plan


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
    """

    measured: MeasuredSetting
    start: Start
    plan: Plan | None
    tasks: tuple[TaskLine, ...]
    data_dir: Path

    def __post_init__(self) -> None:
        strategy, workload = self.experiment.strategy, self.experiment.workload
        if self.experiment.num_workers > 1 and not strategy.communicates():
            raise UserError(
                f"{strategy.label}: these workers do not train one model. Choose another setting."
            )
        if strategy.as_shipped and (strategy.uses_servers or strategy.is_altered):
            raise UserError(
                f"{strategy.label}: of plain TensorFlow only its all-reduce is written, as it "
                "ships. Choose another setting; the tutorials of TensorFlow have this training."
            )
        if strategy.module is not None:
            raise UserError(
                f"{strategy.label}: a training of your own would need a built {strategy.label}, "
                "which export does not take along. Choose another setting."
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
