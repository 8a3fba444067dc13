"""Tasks on hosts, and tasks on the cores and GPUs of each host.  Pure.

Decides which tasks an experiment consists of, on which host each of them belongs, and what it gets
there.  Hosts are used in the order in which they are given, which is the scheduler's; they are told
apart by their whole name.  Ports and processes are decided elsewhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ps_allreduce.cluster import ClusterSpec, TaskId, TaskType
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.resources import Device
from ps_allreduce.point.spread import Coordinator, LayoutKind, Spread

Placed = Mapping[TaskId, str]


def tasks_of(experiment: Experiment) -> tuple[TaskId, ...]:
    """All tasks: servers first, then workers, then the chief that drives them."""
    workers = [TaskId(TaskType.WORKER, i) for i in range(experiment.num_workers)]
    servers = [TaskId(TaskType.PS, i) for i in range(experiment.num_ps)]
    chief = [TaskId(TaskType.CHIEF, 0)] if experiment.strategy.uses_servers else []
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


def num_hosts(experiment: Experiment) -> int:
    """How many hosts the tasks need."""
    return max(_positions(experiment).values()) + 1


def hosts_of_workers(experiment: Experiment) -> int:
    """How many hosts hold workers."""
    if experiment.spread is None:
        return 1
    return math.ceil(experiment.num_workers / experiment.spread.workers_per_host)


def hosts_without_workers(experiment: Experiment) -> int:
    """How many hosts hold only servers, or only the chief."""
    return num_hosts(experiment) - hosts_of_workers(experiment)


def room_for_workers(experiment: Experiment) -> int:
    """How many workers all-reduce would have on the same hosts, where it fills those of servers.

    Experiments with the same room need the same number of hosts.  Servers beside workers take no
    host, so there it is the number of workers.
    """
    per_host = 0 if experiment.spread is None else experiment.spread.workers_per_host
    return experiment.num_workers + hosts_without_workers(experiment) * per_host


def too_few_hosts(experiment: Experiment, available: int) -> str:
    """Why the tasks do not fit on so many hosts; empty if they do."""
    try:
        place_tasks(experiment, [str(number) for number in range(available)])
    except UserError as error:
        return str(error)
    return ""


def place_tasks(experiment: Experiment, hosts: Sequence[str]) -> Placed:
    """The host of every task.

    Raises:
        UserError: there are too few hosts, or one of them is there twice.
    """
    if len(set(hosts)) != len(hosts):
        twice = next(host for host in hosts if list(hosts).count(host) > 1)
        raise UserError(f"host {twice} is listed more than once; every host is used once.")
    needed = num_hosts(experiment)
    if needed > len(hosts):
        layout = _layout_of(experiment)
        servers = f", {experiment.num_ps} ps {layout}" if layout else ""
        ways = ["fewer workers", "more of them per host"]
        if layout is LayoutKind.DEDICATED:
            ways += ["fewer servers", "the layout colocated"]
        raise UserError(
            f"{experiment.num_workers} workers{servers}: {needed} hosts are needed but there are "
            f"{len(hosts)}. Take more hosts, or ask for {', '.join(ways[:-1])} or {ways[-1]}."
        )
    return {task: hosts[position] for task, position in _positions(experiment).items()}


def _layout_of(experiment: Experiment) -> LayoutKind | None:
    servers = experiment.strategy.servers
    return None if servers is None else servers.layout


def _positions(experiment: Experiment) -> dict[TaskId, int]:
    """The host of every task by its position."""
    if experiment.spread is None:
        return dict.fromkeys(tasks_of(experiment), 0)
    spread = experiment.spread
    worker_hosts = hosts_of_workers(experiment)
    positions: dict[TaskId, int] = {}
    for task in tasks_of(experiment):
        if task.type is TaskType.WORKER:
            positions[task] = task.index // spread.workers_per_host
        elif task.type is TaskType.PS:
            positions[task] = _position_of_server(experiment, spread, task.index, worker_hosts)
        else:
            positions[task] = _position_of_chief(spread, positions)
    return positions


def _position_of_server(
    experiment: Experiment, spread: Spread, index: int, worker_hosts: int
) -> int:
    if _layout_of(experiment) is LayoutKind.DEDICATED:
        return worker_hosts + index // (spread.ps_per_host or 1)
    most = spread.ps_per_host
    if most is not None and experiment.num_ps > most * worker_hosts:
        raise UserError(
            f"{experiment.title}: {experiment.num_ps} colocated servers do not fit on "
            f"{worker_hosts} hosts of workers with ps_per_host {most}. Ask for fewer servers, more "
            "of them per host, or the layout dedicated."
        )
    return index % worker_hosts


def _position_of_chief(spread: Spread, positions: Mapping[TaskId, int]) -> int:
    if spread.coordinator is Coordinator.OWN_HOST:
        return max(positions.values()) + 1
    kind = TaskType.PS if spread.coordinator is Coordinator.FIRST_SERVER else TaskType.WORKER
    return positions[TaskId(kind, 0)]


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


def cores_needed(experiment: Experiment, placed: Placed) -> dict[str, int]:
    """How many cores the tasks of each host take up."""
    size = experiment.resources.cores_per_worker
    hosts = dict.fromkeys(placed.values())
    return {host: max(1, len(_slice_owners(experiment, placed, host))) * size for host in hosts}


def plan_cores(
    experiment: Experiment, placed: Placed, offered: Mapping[str, Sequence[int]]
) -> CorePlan:
    """Deal the cores of every host.

    The workers of a host get a slice of `cores_per_worker` cores each.  Colocated servers share the
    workers' slices, in turn, so that both sides of a comparison use the same cores; dedicated ones
    get a slice each.  The chief, which only hands out work, may use all cores of the run on its
    host.

    Raises:
        UserError: there are not enough cores.
    """
    cores: dict[TaskId, tuple[int, ...]] = {}
    for host, needed in cores_needed(experiment, placed).items():
        if needed > len(offered[host]):
            size = experiment.resources.cores_per_worker
            raise UserError(
                f"{experiment.title}: {needed // size} x {size} cores are needed but host {host} "
                f"offers {len(offered[host])}. Ask for fewer workers or servers, fewer cores per "
                "worker, or the layout colocated."
            )
        cores |= _deal(experiment, placed, host, offered[host][:needed])
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
    if _layout_of(experiment) is LayoutKind.DEDICATED:
        owners += [task for task in here if task.type is TaskType.PS]
    return owners


def _deal(
    experiment: Experiment, placed: Placed, host: str, cores: Sequence[int]
) -> dict[TaskId, tuple[int, ...]]:
    size = experiment.resources.cores_per_worker
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
