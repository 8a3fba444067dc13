"""Which tasks a training has, where each belongs and what it gets there: `tasks.json`.

Decides that tasks get the cores that they had in the measurement, counted from the first that a
host offers.  On one machine, tasks that were on emulated hosts get cores side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.point.cores import cores_needed, plan_cores, share_machine
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import Placed, drivers_of, place_by_number
from ps_allreduce.point.resources import Device, Spread
from ps_allreduce.record.records import RunRecord
from ps_allreduce.tf_texts import TASK_ENVIRONMENT

#: The one host of a machine.
HERE = "here"

#: Of what a task found, that is no variable of the environment.
NO_VARIABLE = "data_layout"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLine:
    """One task; `host` counts along the list of hosts, `cores` along those of its host."""

    kind: str
    index: int
    host: int
    cores: tuple[int, ...]
    gpu: int | None
    drives: bool


def task_lines(experiment: Experiment, *, one_machine: bool) -> tuple[TaskLine, ...]:
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
        TaskLine(
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
