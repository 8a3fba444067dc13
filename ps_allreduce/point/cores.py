"""Tasks on the cores and GPUs of each host.  Pure.

Decides what a task gets on the host that `layout` placed it on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import Placed, is_apart, num_ps_hosts
from ps_allreduce.point.resources import Device


@dataclass(frozen=True, slots=True)
class CorePlan:
    """Cores of every task.

    Attributes:
        total: cores of all tasks together, each counted once.
        oversubscribed: tasks that compute share cores, so they have fewer than they use.
    """

    cores: Mapping[TaskId, tuple[int, ...]]
    total: int
    oversubscribed: bool


def cores_needed(
    experiment: Experiment, placed: Placed, offered: Mapping[str, Sequence[int]] | None = None
) -> dict[str, int]:
    """How many cores the tasks of each host take up.

    Args:
        offered: of hosts named for servers no more is needed than they have.
    """
    hosts = dict.fromkeys(placed.values())
    return {
        host: max(1, len(_slice_owners(experiment, placed, host)))
        * _slice_size(experiment, placed, host, None if offered is None else len(offered[host]))
        for host in hosts
    }


def _slice_size(experiment: Experiment, placed: Placed, host: str, offered: int | None) -> int:
    """Cores of a slice: of a host named for servers an equal part, if it has no more."""
    size = experiment.resources.cores_per_worker
    here = [task.type for task, where in placed.items() if where == host]
    if offered is None or not num_ps_hosts(experiment) or TaskType.WORKER in here:
        return size
    return max(1, min(size, offered // max(1, here.count(TaskType.PS))))


def plan_cores(
    experiment: Experiment, placed: Placed, offered: Mapping[str, Sequence[int]]
) -> CorePlan:
    """Deal the cores of every host.

    The workers of a host get a slice of `cores_per_worker` cores each.  Colocated servers share the
    workers' slices, in turn, so that both sides of a comparison use the same cores; those on hosts
    of their own get a slice each, and on hosts named for servers an equal part of what there is if
    that is less.  The chief, which only hands out work, may use all cores of the run on its
    host.

    Raises:
        UserError: there are not enough cores.
    """
    cores: dict[TaskId, tuple[int, ...]] = {}
    for host, needed in cores_needed(experiment, placed, offered).items():
        size = _slice_size(experiment, placed, host, len(offered[host]))
        if needed > len(offered[host]):
            raise UserError(
                f"{experiment.title}: {needed // size} x {size} cores are needed but host {host} "
                f"offers {len(offered[host])}. Ask for fewer workers or servers, fewer cores per "
                "worker, or the layout colocated."
            )
        cores |= _deal(experiment, placed, host, offered[host][:needed], size)
    used = {(placed[task], core) for task, dealt in cores.items() for core in dealt}
    return CorePlan(cores, len(used), _is_oversubscribed(experiment, placed, cores))


def share_machine(experiment: Experiment, placed: Placed, machine: Sequence[int]) -> CorePlan:
    """Deal the cores of one machine to all hosts that are emulated on it.

    Every host gets cores of its own where there are enough; else every task may use them all.
    """
    needed = cores_needed(experiment, placed)
    if sum(needed.values()) > len(machine):
        return CorePlan(dict.fromkeys(placed, tuple(machine)), len(machine), True)
    offered, first = {}, 0
    for host, count in needed.items():
        offered[host] = machine[first : first + count]
        first += count
    return plan_cores(experiment, placed, offered)


def _slice_owners(experiment: Experiment, placed: Placed, host: str) -> list[TaskId]:
    """Tasks of a host that have cores of their own: workers, then dedicated servers."""
    here = [task for task, where in placed.items() if where == host]
    owners = [task for task in here if task.type is TaskType.WORKER]
    if is_apart(experiment):
        owners += [task for task in here if task.type is TaskType.PS]
    return owners


def _deal(
    experiment: Experiment, placed: Placed, host: str, cores: Sequence[int], size: int
) -> dict[TaskId, tuple[int, ...]]:
    parts = [tuple(cores[i : i + size]) for i in range(0, len(cores), size)]
    dealt = dict(zip(_slice_owners(experiment, placed, host), parts, strict=False))
    here = [task for task, where in placed.items() if where == host]
    guests = [task for task in here if task.type is TaskType.PS and task not in dealt]
    for position, server in enumerate(guests):
        dealt[server] = parts[position % len(parts)]
    dealt |= {task: tuple(cores) for task in here if task.type is TaskType.CHIEF}
    return dealt


def _is_oversubscribed(
    experiment: Experiment, placed: Placed, cores: Mapping[TaskId, tuple[int, ...]]
) -> bool:
    """A worker uses its threads, a server one core; the chief waits most of the time."""
    threads_of = {TaskType.WORKER: experiment.resources.threads_per_worker, TaskType.PS: 1}
    wanted: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for task, dealt in cores.items():
        wanted[placed[task], dealt] += threads_of.get(task.type, 0)
    return any(threads > len(dealt) for (_, dealt), threads in wanted.items())


def plan_gpus(
    experiment: Experiment, placed: Placed, offered: Mapping[str, Sequence[str]]
) -> dict[TaskId, str]:
    """CUDA_VISIBLE_DEVICES of every task: workers share those of their host, others see none.

    Raises:
        UserError: a host has fewer GPUs than workers.
    """
    visible = dict.fromkeys(placed, "")
    if experiment.resources.device is not Device.GPU:
        return visible
    by_host: dict[str, list[TaskId]] = {}
    for task, host in placed.items():
        if task.type is TaskType.WORKER:
            by_host.setdefault(host, []).append(task)
    for host, workers in by_host.items():
        share = len(offered[host]) // len(workers)
        if share < 1:
            raise UserError(
                f"{experiment.title}: host {host} has {len(offered[host])} GPUs for "
                f"{len(workers)} workers. Ask for fewer workers per host, or the device cpu."
            )
        for position, worker in enumerate(workers):
            visible[worker] = ",".join(offered[host][position * share : (position + 1) * share])
    return visible
