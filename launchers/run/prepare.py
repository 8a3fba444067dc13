"""What a run needs from its hosts before its tasks start, and what is fetched from them afterwards.

Decides ports, addresses, cores and GPUs of a run's tasks, and which of their files are fetched.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from launchers.fork_servers.host_servers import HostServers, clock_offset, measure_links
from launchers.run.state import RunState, log_path, result_path
from launchers.site import Site
from ps_allreduce.cluster import TaskId, TaskType, TfConfig
from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.messages import PrepareRun, RunPrepared, StartTask
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import (
    CorePlan,
    cluster_of,
    plan_cores,
    plan_gpus,
    share_machine,
)
from ps_allreduce.record.hosts import HostRecord
from ps_allreduce.tf_internals.texts import TASK_ENVIRONMENT

#: Endings of the files that a driving task leaves.
RESULT_ENDINGS = ("json", "npz", "weights.npz")


def prepare_run(servers: HostServers, site: Site, state: RunState) -> None:
    """Hold ports, look at clocks and links, and note in the state how every task is started.

    Raises:
        LaunchError: a host has no free port, or cannot be reached by another.
        UserError: a host has no such interface, or too few GPUs.
    """
    experiment = state.request.experiment
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
    gpus = {
        host: [gpu.identity for gpu in client.ready.facts.gpus]
        for host, client in servers.clients.items()
    }
    state.tasks = _start_requests(state, plan_gpus(experiment, state.placed, gpus))


def _plan_cores(servers: HostServers, experiment: Experiment, state: RunState) -> CorePlan:
    offered = {host: client.ready.facts.cores for host, client in servers.clients.items()}
    if state.one_machine:
        return share_machine(experiment, state.placed, next(iter(offered.values())))
    return plan_cores(experiment, state.placed, offered)


def _host_records(
    servers: HostServers, experiment: Experiment, site: Site
) -> tuple[HostRecord, ...]:
    records = []
    for host, client in servers.clients.items():
        facts, address = client.ready.facts, site.address_of(client, experiment.interface)
        fitting = [each for each in facts.interfaces if each.address == address]
        records.append(
            HostRecord(
                name=host,
                address=address,
                interface=fitting[0] if fitting else None,
                # Emulated hosts have this machine's clock.
                clock_offset_s=0.0 if site.one_machine else clock_offset(client),
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


def _start_requests(state: RunState, visible: Mapping[TaskId, str]) -> list[StartTask]:
    request, experiment = state.request, state.request.experiment
    cluster = cluster_of(list(state.placed), state.addresses)
    alone = experiment.strategy.max_workers == 1
    hostnames = {host.name: host.facts.name for host in state.hosts}
    return [
        StartTask(
            task=str(task),
            host=hostnames[host],
            tf_config="" if alone else TfConfig(cluster, task).render(),
            experiment=experiment,
            cores=state.cores.cores[task],
            threads=1 if task.type is TaskType.PS else experiment.resources.threads_per_worker,
            environment=TASK_ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": visible[task]},
            data_dir=str(request.data_dir),
            log=str(log_path(state.remote[host], task)),
            result=str(result_path(state.remote[host], task)),
            weights=_weights_path(state, task),
        )
        for task, host in state.placed.items()
    ]


def _weights_path(state: RunState, task: TaskId) -> str | None:
    """The first driver writes the final weights, if somebody wants them."""
    if not state.request.wants_weights or task != state.drivers[0]:
        return None
    return f"{result_path(state.remote[state.placed[task]], task)}.weights.npz"


def fetch_files(servers: HostServers, state: RunState) -> None:
    """Fetch logs and results from the hosts that can still be reached."""
    for task, host in state.placed.items():
        client = servers.clients[host]
        if host not in state.remote or client.lost:
            continue
        files = [log_path("", task)]
        if task in state.drivers:
            files += [Path(f"{result_path('', task)}.{ending}") for ending in RESULT_ENDINGS]
        with suppress(LaunchError):
            for file in files:
                client.fetch(f"{state.remote[host]}/{file}", state.folder / file)
