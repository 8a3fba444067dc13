"""Tasks on hosts, and tasks on the cores of one host.  Pure.

Decides which tasks an experiment consists of and which cores each of them gets.  Ports and
processes are the launchers' business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ps_allreduce.cluster import ClusterSpec, TaskId, TaskType
from ps_allreduce.errors import UserError
from ps_allreduce.experiment import Experiment, LayoutKind


def tasks_of(experiment: Experiment) -> tuple[TaskId, ...]:
    """All tasks: servers first, then workers, then the chief that drives them."""
    workers = [TaskId(TaskType.WORKER, i) for i in range(experiment.num_workers)]
    servers = [TaskId(TaskType.PS, i) for i in range(experiment.num_ps)]
    chief = [TaskId(TaskType.CHIEF, 0)] if experiment.traits.uses_servers else []
    return (*servers, *workers, *chief)


def drivers_of(experiment: Experiment) -> tuple[TaskId, ...]:
    """The tasks that run the timed loop: the chief, or every worker."""
    tasks = tasks_of(experiment)
    chiefs = tuple(task for task in tasks if task.type is TaskType.CHIEF)
    return chiefs or tuple(task for task in tasks if task.type is TaskType.WORKER)


def cluster_of(tasks: Sequence[TaskId], addresses: Mapping[TaskId, str]) -> ClusterSpec:
    """The cluster specification, every type's tasks in order of their index."""
    kinds = dict.fromkeys(task.type for task in tasks)
    return ClusterSpec(
        {kind: tuple(addresses[task] for task in tasks if task.type is kind) for kind in kinds}
    )


@dataclass(frozen=True, slots=True)
class CorePlan:
    """Cores of every task.

    Attributes:
        oversubscribed: tasks that compute share cores, so they have fewer than they use.
    """

    cores: Mapping[TaskId, tuple[int, ...]]
    oversubscribed: bool

    @property
    def total(self) -> int:
        """Cores of all tasks together, each counted once."""
        return len({core for cores in self.cores.values() for core in cores})


def plan_cores(experiment: Experiment, available: Sequence[int]) -> CorePlan:
    """Deal the cores of one machine.

    Worker i gets slice i of `cores_per_worker` cores.  Colocated servers share the workers'
    slices, in turn, so that both sides of a comparison use the same cores; dedicated ones get a
    slice each.  The chief, which only hands out work, may use all cores of the run.

    Raises:
        UserError: there are not enough cores.
    """
    size = experiment.resources.cores_per_worker
    dedicated = experiment.layout is LayoutKind.DEDICATED
    slices = experiment.num_workers + (experiment.num_ps if dedicated else 0)
    if slices * size > len(available):
        raise UserError(
            f"{experiment.title}: {slices} x {size} cores are needed but this machine offers "
            f"{len(available)}. Ask for fewer workers or servers, fewer cores per worker, or the "
            "layout colocated."
        )
    parts = [tuple(available[i * size : (i + 1) * size]) for i in range(slices)]
    cores: dict[TaskId, tuple[int, ...]] = {}
    for task in tasks_of(experiment):
        if task.type is TaskType.CHIEF:
            cores[task] = tuple(core for part in parts for core in part)
        elif task.type is TaskType.WORKER:
            cores[task] = parts[task.index]
        else:
            position = experiment.num_workers + task.index if dedicated else task.index
            cores[task] = parts[position % slices]
    return CorePlan(cores, _is_oversubscribed(experiment, cores))


def _is_oversubscribed(experiment: Experiment, cores: Mapping[TaskId, tuple[int, ...]]) -> bool:
    """A worker uses its threads, a server one core; the chief waits most of the time."""
    wanted: dict[tuple[int, ...], int] = {}
    for task, mine in cores.items():
        if task.type is not TaskType.CHIEF:
            worker = task.type is TaskType.WORKER
            threads = experiment.resources.threads_per_worker if worker else 1
            wanted[mine] = wanted.get(mine, 0) + threads
    return any(threads > len(mine) for mine, threads in wanted.items())
