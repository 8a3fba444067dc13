"""Everything between fork servers that are ready and tasks that can be started, and the way back.

Decides ports, addresses and requests of a run's tasks, and which of their files are fetched.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from launchers.fork_servers.addresses import task_address
from launchers.fork_servers.host_servers import HostServers, measure_links
from launchers.run.conclude import RunState, log_path, result_path
from launchers.run.order import Order
from launchers.sites.protocol import Site
from ps_allreduce.cluster import TaskId, TaskType, TfConfig
from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.messages import PrepareRun, RunPrepared, StartTask
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import (
    CorePlan,
    cluster_of,
    drivers_of,
    plan_cores,
    plan_gpus,
    share_machine,
)
from ps_allreduce.record.hosts import HostRecord

#: What a task's process must know before TensorFlow looks around.
TASK_ENVIRONMENT = {"TF_GRPC_REUSE_PORT": "true", "GRPC_FAIL_FAST": "use_caller"}

#: Endings of the files that a driving task leaves.
RESULT_ENDINGS = ("json", "npz", "weights.npz")


def prepare_run(servers: HostServers, site: Site, order: Order, state: RunState) -> None:
    """Hold ports, look at clocks and links, and write the requests into the state.

    Raises:
        LaunchError: a host has no free port, or cannot be reached by another.
        UserError: a host has no such interface, or too few GPUs.
    """
    experiment = order.experiment
    state.cores = _plan_cores(servers, experiment, state)
    state.hosts = _host_records(servers, experiment, site)
    address_of = {host.name: host.address for host in state.hosts}
    hosts = list(servers.clients)
    if len(hosts) > 1:
        ring = list(zip(hosts, [*hosts[1:], hosts[0]], strict=True))
        begin = time.time()
        state.links = measure_links(servers, ring, address_of.__getitem__)
        state.launched_at += time.time() - begin  # measuring is no part of bringing tasks up
    places = {host: _place(servers, host, state) for host in hosts}
    state.remote = {host: place.folder for host, place in places.items()}
    free = {host: iter(place.ports) for host, place in places.items()}
    state.addresses = {
        task: f"{address_of[host]}:{next(free[host])}" for task, host in state.placed.items()
    }
    state.requests = _requests(order, state, _visible(servers, experiment, state))
    if order.wants_weights:
        state.ask_for_weights(drivers_of(experiment)[0])


def _plan_cores(servers: HostServers, experiment: Experiment, state: RunState) -> CorePlan:
    offered = {host: client.ready.facts.cores for host, client in servers.clients.items()}
    if state.one_machine:
        return share_machine(experiment, state.placed, next(iter(offered.values())))
    return plan_cores(experiment, state.placed, offered)


def _host_records(
    servers: HostServers,
    experiment: Experiment,
    site: Site,
) -> tuple[HostRecord, ...]:
    # Emulated hosts have this machine's clock.
    offsets = {} if site.one_machine else servers.clock_offsets()
    records = []
    for host, client in servers.clients.items():
        facts = client.ready.facts
        preset = site.preset_address(host)
        address = task_address(host, facts.interfaces, experiment.interface, preset)
        having = [one for one in facts.interfaces if one.address == address]
        records.append(
            HostRecord(
                name=host,
                address=address,
                interface=having[0] if having else None,
                clock_offset_s=offsets.get(host, 0.0),
                import_s=client.ready.import_s,
                facts=facts,
            )
        )
    return tuple(records)


def _place(servers: HostServers, host: str, state: RunState) -> RunPrepared:
    count = list(state.placed.values()).count(host)
    place = servers.clients[host].answer(PrepareRun(num_ports=count), RunPrepared)
    if place.problem:
        raise LaunchError(f"host {host}: {place.problem}.")
    return place


def _visible(servers: HostServers, experiment: Experiment, state: RunState) -> Mapping[TaskId, str]:
    gpus = {
        host: [gpu.identity for gpu in client.ready.facts.gpus]
        for host, client in servers.clients.items()
    }
    return plan_gpus(experiment, state.placed, gpus)


def _requests(order: Order, state: RunState, visible: Mapping[TaskId, str]) -> list[StartTask]:
    experiment = order.experiment
    cluster = cluster_of(list(state.placed), state.addresses)
    alone = experiment.traits.max_workers == 1
    own_name = {host.name: host.facts.name for host in state.hosts}
    return [
        StartTask(
            task=str(task),
            host=own_name[host],
            tf_config="" if alone else TfConfig(cluster, task).render(),
            experiment=experiment,
            cores=state.cores.cores[task],
            threads=_threads(experiment, task),
            environment=TASK_ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": visible[task]},
            data_dir=str(order.data_dir),
            log=str(log_path(state.remote[host], task)),
            result=str(result_path(state.remote[host], task)),
            recording_rounds=order.recording_rounds,
        )
        for task, host in state.placed.items()
    ]


def _threads(experiment: Experiment, task: TaskId) -> int:
    return 1 if task.type is TaskType.PS else experiment.resources.threads_per_worker


def gather(servers: HostServers, state: RunState) -> None:
    """Fetch logs and results from the hosts that can still be reached."""
    drivers = set(state.monitor.drivers)
    for task, host in state.placed.items():
        client = servers.clients[host]
        if host not in state.remote or client.lost:
            continue
        remote = state.remote[host]
        wanted = [(log_path(remote, task), log_path(state.folder, task))]
        if task in drivers:
            wanted += [
                (Path(f"{result_path(remote, task)}.{ending}"), _local_result(state, task, ending))
                for ending in RESULT_ENDINGS
            ]
        with suppress(LaunchError):
            for source, target in wanted:
                client.fetch(str(source), target)


def _local_result(state: RunState, task: TaskId, ending: str) -> Path:
    return Path(f"{result_path(state.folder, task)}.{ending}")
