"""Tasks on hosts.  Pure.

Decides which tasks an experiment consists of, on which host each of them belongs, and how large
hosts make it.  Hosts are used in the order in which they are given, which is the scheduler's; they
are told apart by their whole name.  Decides also when workers certainly have too little memory for
their batches: what a step keeps between its passes is more than their host has.  What a task gets
on its host is decided in `cores`, ports and processes elsewhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from ps_allreduce.cluster import ClusterSpec, TaskId, TaskType
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.resources import Coordinator, Device, LayoutKind, Spread
from ps_allreduce.point.workload import Precision

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
    """How many hosts hold only servers, or only the chief; also where tasks find no room."""
    spread = experiment.spread
    if spread is None or not experiment.strategy.uses_servers:
        return 0
    of_chief = int(spread.coordinator is Coordinator.OWN_HOST)
    of_servers = math.ceil(experiment.num_ps / (spread.ps_per_host or 1))
    return of_chief + (of_servers if is_apart(experiment) else 0)


def room_for_workers(experiment: Experiment) -> int:
    """How many workers all-reduce would have on the same hosts, where it fills those of servers.

    Experiments with the same room need the same number of hosts.  Servers beside workers take no
    host, so there it is the number of workers.
    """
    per_host = 0 if experiment.spread is None else experiment.spread.workers_per_host
    return experiment.num_workers + hosts_without_workers(experiment) * per_host


def num_ps_hosts(experiment: Experiment) -> int:
    """How many of the hosts have to be of those that are named for servers."""
    if _layout_of(experiment) is not LayoutKind.PS_HOSTS:
        return 0
    per_host = experiment.num_ps if experiment.spread is None else experiment.spread.ps_per_host
    return math.ceil(experiment.num_ps / (per_host or 1))


def too_few_hosts(experiment: Experiment, available: int, for_servers: int = 0) -> str:
    """Why the tasks do not fit on so many hosts; empty if they do.

    Args:
        available: without those that are named for servers.
    """
    names = [str(number) for number in range(available + for_servers)]
    try:
        place_tasks(experiment, names[:available], names[available:])
    except UserError as error:
        return str(error)
    return ""


def place_by_number(experiment: Experiment) -> Placed:
    """The hosts by their numbers, just as many as are needed; those named for servers come last."""
    count, for_servers = num_hosts(experiment), num_ps_hosts(experiment)
    names = [str(number) for number in range(count)]
    return place_tasks(experiment, names[: count - for_servers], names[count - for_servers :])


def place_tasks(
    experiment: Experiment, hosts: Sequence[str], ps_hosts: Sequence[str] = ()
) -> Placed:
    """The host of every task.

    Args:
        ps_hosts: those that are named for servers, which no worker gets.

    Raises:
        UserError: there are too few hosts, or one of them is there twice.
    """
    every = [*hosts, *ps_hosts]
    if len(set(every)) != len(every):
        twice = next(host for host in every if every.count(host) > 1)
        raise UserError(f"host {twice} is listed more than once; every host is used once.")
    for_servers = num_ps_hosts(experiment)
    needed = num_hosts(experiment) - for_servers
    if needed > len(hosts):
        raise UserError(_too_few_text(experiment, needed, len(hosts)))
    if for_servers > len(ps_hosts):
        raise UserError(_too_few_for_servers_text(experiment, for_servers, len(ps_hosts)))
    # Positions count hosts of workers, then those of servers, then that of a chief alone.
    before = hosts_of_workers(experiment)
    used = (*hosts[:before], *ps_hosts[:for_servers], *hosts[before:])
    return {task: used[position] for task, position in _positions(experiment).items()}


def _too_few_text(experiment: Experiment, needed: int, available: int) -> str:
    layout = _layout_of(experiment)
    servers = f", {experiment.num_ps} ps {layout}" if layout else ""
    ways = ["fewer workers", "more of them per host"]
    if layout is LayoutKind.DEDICATED:
        ways += ["fewer servers", "the layout colocated"]
    return (
        f"{experiment.num_workers} workers{servers}: {needed} hosts are needed but there are "
        f"{available}. Take more hosts, or ask for {', '.join(ways[:-1])} or {ways[-1]}."
    )


def _too_few_for_servers_text(experiment: Experiment, needed: int, available: int) -> str:
    return (
        f"{experiment.num_ps} ps on hosts named for servers: {needed} such hosts are needed but "
        f"there are {available}. Name more (--ps-hosts; ssh: 'ps' in the host file), or ask for "
        "fewer servers, more of them per host (--ps-per-host) or another layout."
    )


def _layout_of(experiment: Experiment) -> LayoutKind | None:
    servers = experiment.strategy.servers
    return None if servers is None else servers.layout


def is_apart(experiment: Experiment) -> bool:
    """Its servers share no host with workers."""
    layout = _layout_of(experiment)
    return layout is not None and layout.is_apart


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
    if is_apart(experiment):
        return worker_hosts + index // (spread.ps_per_host or 1)
    most = spread.ps_per_host
    if most is not None and experiment.num_ps > most * worker_hosts:
        raise UserError(
            f"{experiment.title}: {experiment.num_ps} colocated servers do not fit on "
            f"{worker_hosts} hosts of workers, {most} on each. Ask for fewer servers, more of them "
            "per host, or the layout dedicated."
        )
    return index % worker_hosts


def _position_of_chief(spread: Spread, positions: Mapping[TaskId, int]) -> int:
    if spread.coordinator is Coordinator.OWN_HOST:
        return max(positions.values()) + 1
    kind = TaskType.PS if spread.coordinator is Coordinator.FIRST_SERVER else TaskType.WORKER
    return positions[TaskId(kind, 0)]


GB = 1e9


def most_together(placed: Placed, *, one_machine: bool) -> int:
    """How many workers share the memory of a host, where most do."""
    hosts = [host for task, host in placed.items() if task.type is TaskType.WORKER]
    return len(hosts) if one_machine else max(Counter(hosts).values())


def refuse_large_batch(
    experiment: Experiment, together: int, kept_values: int, memory_bytes: int
) -> None:
    """See that workers that share a memory may have room in it.

    Args:
        together: workers that share it.
        kept_values: numbers that a step keeps of an example, at least.

    Raises:
        UserError: they certainly have not.
    """
    load = experiment.of_each
    if load.emulated is not None or experiment.resources.device is not Device.CPU:
        return
    value_bytes = 4 if load.precision is Precision.FLOAT32 else 2
    each_bytes = load.batch_per_worker * kept_values * value_bytes
    if together * each_bytes <= memory_bytes:
        return
    workers = f"each of {together} workers, which share" if together > 1 else "a worker, which has"
    raise UserError(
        f"{experiment.title}: a step keeps at least {each_bytes / GB:.1f} GB in {workers} "
        f"{memory_bytes / GB:.1f} GB of memory. Use a smaller --batch-per-worker or --image-size, "
        "or fewer workers on a host."
    )
