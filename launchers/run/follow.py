"""Makes one run: prepares its hosts, starts its tasks, follows them to their end, fetches files.

Decides ports, addresses, cores and GPUs of the tasks, that a run is watched against its deadline,
that nothing of it survives it, and that its state tells whatever happened.  Where the hosts come
from is the site's business; how a task trains is not known here.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from launchers.fork_servers.asking import clock_offset, measure_links
from launchers.fork_servers.host_servers import HostServers
from launchers.run.state import LaunchRequest, RunMonitor, RunState, log_path, result_path
from launchers.run.traffic import start_traffic, streams_of
from launchers.site import Site
from ps_allreduce.cluster import MEETING_TOKEN, TaskId, TaskType, TfConfig
from ps_allreduce.errors import HostFault, LaunchError
from ps_allreduce.fork_server.messages import (
    EndAll,
    FinishRun,
    PrepareRun,
    RunPrepared,
    StartTask,
    TimeNeeded,
)
from ps_allreduce.point.cores import CorePlan, cores_needed, plan_cores, plan_gpus, share_machine
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import cluster_of, drivers_of
from ps_allreduce.record.hosts import HostRecord
from ps_allreduce.record.provenance import computing
from ps_allreduce.record.records import PortRecord, Status
from ps_allreduce.tf_texts import TASK_ENVIRONMENT

#: How long after a first failure other tasks may still tell the better reason.
GRACE_S = 0.5

REAP_DEADLINE_S = 20.0

#: Endings of the files that a driving task leaves.
RESULT_ENDINGS = ("json", "npz", "weights.npz")

Progress = Callable[[str], None]


def make_run(site: Site, request: LaunchRequest, folder: Path, progress: Progress) -> RunState:
    """Make one run, from its fork servers to its files in `folder`.

    Raises:
        UserError: the experiment does not fit, or hosts differ.
    """
    experiment = request.experiment
    placed = site.place(experiment)
    streams = streams_of(experiment, site.hosts)
    state = RunState(
        request=request,
        placed=placed,
        folder=folder,
        monitor=RunMonitor(list(placed), drivers_of(experiment), streams=streams),
        one_machine=site.is_emulating,
        job_id=site.job_id,
        launched_at=time.time(),
    )
    needed = cores_needed(experiment, placed, site.cores() if site.num_ps_hosts else None)
    used = [host for host in site.hosts if host in needed]
    carrying = {host for stream in streams for host in stream.hosts.values()}
    cores = {host: needed.get(host, 0) for host in site.hosts if host in {*used, *carrying}}
    try:
        progress("starting on " + ", ".join(used) if len(used) > 1 else "starting")
        with site.servers(cores, experiment) as servers:
            _run_on(servers, site, state, progress)
    except (LaunchError, OSError) as error:
        state.fail(error)
    except KeyboardInterrupt:
        state.status = Status.INTERRUPTED
    _ask_scheduler(site, state)
    state.ended_at = time.time()
    return state


def _ask_scheduler(site: Site, state: RunState) -> None:
    """Why the run ended, if it did not end well; a job that is over interrupts a sweep."""
    failed = state.status is Status.FAILED or state.is_host_fault
    if failed and site.is_over():
        state.status, state.is_host_fault = Status.INTERRUPTED, False
    if state.status in (Status.FAILED, Status.INTERRUPTED):
        state.post_mortem = site.post_mortem()


def _run_on(servers: HostServers, site: Site, state: RunState, progress: Progress) -> None:
    """Start all tasks on servers that are ready, follow them to the end, fetch the files."""
    if not site.one_machine and not state.request.mixed_hosts:
        site.refuse_mixture({host: c.ready.facts for host, c in servers.clients.items()})
    with_tasks = [host for host in servers.clients if host in state.placed.values()]
    # Other hosts only carry background traffic.
    prepare_run(servers.only(with_tasks), site, state, _fork_servers(servers))
    dropped_before = site.dropped()
    try:
        state.launched_at += start_traffic(servers, site, state.monitor)  # as for links
        for task, request in state.tasks.items():
            servers.clients[state.placed[task]].send(request)
        state.status = _watch(servers, state, progress)
        _blame_host(servers, state)
        state.ports = tuple(
            PortRecord(host=host, dropped=dropped - dropped_before[host])
            for host, dropped in site.dropped().items()
        )
    except LaunchError as error:
        state.fail(error)
    except KeyboardInterrupt:
        state.status = Status.INTERRUPTED  # the run is recorded, and the sweep ends
    finally:
        _end_tasks(servers, state)
        fetch_files(servers, state)
        servers.send_all(FinishRun())


def _watch(servers: HostServers, state: RunState, progress: Progress) -> Status:
    """Follow the run until it is complete, fails, or its time is up."""
    monitor = state.monitor
    begin = time.monotonic()
    while (left := begin + state.deadline_s - time.monotonic()) > 0:
        match _take(servers, monitor, min(left, 0.5)):
            case TimeNeeded(seconds=seconds):
                state.give_time(time.monotonic() - begin, seconds)
        state.launcher_s[time.time()] = time.process_time()
        progress(monitor.stage)
        if monitor.is_complete:
            return Status.OK
        if monitor.has_failed:
            servers.hear(GRACE_S, lambda: servers.clients, lambda _, told: monitor.take(told))
            return Status.FAILED
    return Status.TIMED_OUT


def _blame_host(servers: HostServers, state: RunState) -> None:
    """See whether a run did not come to its end through a fault of a host.

    Raises:
        HostFault: it did.
    """
    if state.status is Status.OK:
        return
    if trouble := state.monitor.host_trouble:
        raise HostFault(trouble)
    if silent := servers.give_up_silent(state.monitor.take):
        raise HostFault(f"the fork server on {', '.join(silent)} does not answer any more.")


def _end_tasks(servers: HostServers, state: RunState) -> None:
    """Kill what is left, and wait until it is gone, wherever a host can still be reached."""
    monitor = state.monitor
    servers = replace(servers, without={})  # tasks are ended even if their network is gone
    ended_before = set(monitor.exited)
    if state.status is Status.INTERRUPTED:  # for other ends it has been found out
        with suppress(LaunchError):
            servers.give_up_silent(monitor.take)
    servers.send_all(EndAll())
    # One more host may be lost; the others have tasks to end.
    servers.hear(
        REAP_DEADLINE_S,
        waiting=lambda: _hosts_with_tasks(servers, state),
        take=lambda _, told: monitor.take(told),
        lost=lambda *_: None,
    )
    # What we killed ourselves is no failure, but its processor time and memory count.
    monitor.ended_by_us.update(set(monitor.exited) - ended_before)


def _hosts_with_tasks(servers: HostServers, state: RunState) -> set[str]:
    """The hosts that can be reached and have not told the end of all their tasks."""
    hosts = {state.host_of(name) for name in state.monitor.alive}
    return {host for host in hosts if not servers.clients[host].lost}


def _take(servers: HostServers, monitor: RunMonitor, timeout_s: float) -> object:
    heard = servers.receive(timeout_s)
    if heard is None:
        return None
    monitor.take(heard[1])
    return heard[1]


def prepare_run(
    servers: HostServers, site: Site, state: RunState, fork_servers: Mapping[str, tuple[int, ...]]
) -> None:
    """Hold ports, look at clocks and links, and note in the state how every task is started.

    Args:
        fork_servers: of hosts without tasks as well, by machine.

    Raises:
        HostFault: a host has no free port, or cannot be reached by another.
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
    unseen = dict(fork_servers)  # one host of each machine looks at all its processes
    places = {
        host: _place(servers, host, state, unseen.pop(client.ready.facts.machine, ()))
        for host, client in servers.clients.items()
    }
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
                # What an emulated network states is no fact of its hosts.
                facts=facts if experiment.network is None else replace(facts, congestion=""),
            )
        )
    return tuple(records)


def _fork_servers(servers: HostServers) -> dict[str, tuple[int, ...]]:
    """Their process numbers, by machine."""
    found: dict[str, tuple[int, ...]] = {}
    for ready in (client.ready for client in servers.clients.values()):
        found[ready.facts.machine] = (*found.get(ready.facts.machine, ()), ready.pid)
    return found


def _place(servers: HostServers, host: str, state: RunState, seen: tuple[int, ...]) -> RunPrepared:
    count = list(state.placed.values()).count(host)
    request = PrepareRun(num_ports=count, fork_servers=seen)
    place = servers.clients[host].answer(request, RunPrepared)
    if place.problem:
        raise HostFault(f"host {host}: {place.problem}.")
    return place


def _start_requests(state: RunState, visible: Mapping[TaskId, str]) -> dict[TaskId, StartTask]:
    request, experiment = state.request, state.request.experiment
    cluster = cluster_of(list(state.placed), state.addresses)
    alone = experiment.strategy.max_workers == 1
    settings = computing(os.environ) | TASK_ENVIRONMENT
    token = secrets.token_hex(16)
    hostnames = {host.name: host.facts.name for host in state.hosts}
    return {
        task: StartTask(
            task=str(task),
            host=hostnames[host],
            tf_config="" if alone else TfConfig(cluster, task).render(),
            experiment=experiment,
            cores=state.cores.cores[task],
            threads=1 if task.type is TaskType.PS else experiment.resources.threads_per_worker,
            environment=settings | {"CUDA_VISIBLE_DEVICES": visible[task], MEETING_TOKEN: token},
            data_dir=str(request.data_dir),
            log=str(log_path(state.remote[host], task)),
            result=str(result_path(state.remote[host], task)),
            weights=_weights_path(state, task),
        )
        for task, host in state.placed.items()
    }


def _weights_path(state: RunState, task: TaskId) -> str | None:
    """The first driver writes the weights, if somebody wants them."""
    if not state.request.wants_weights or task != state.monitor.drivers[0]:
        return None
    return f"{result_path(state.remote[state.placed[task]], task)}.weights.npz"


def fetch_files(servers: HostServers, state: RunState) -> None:
    """Fetch logs and results from the hosts that can still be reached."""
    for task, host in state.placed.items():
        client = servers.clients[host]
        if host not in state.remote or client.lost:
            continue
        files = [log_path("", task)]
        if task in state.monitor.drivers:
            files += [Path(f"{result_path('', task)}.{ending}") for ending in RESULT_ENDINGS]
        try:
            for file in files:
                client.fetch(f"{state.remote[host]}/{file}", state.folder / file)
        except LaunchError as error:
            if state.status is Status.OK:
                state.fail(error)
