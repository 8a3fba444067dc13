"""The course of one run: fork servers, tasks, the end of all of it, and its files.

Decides that a run is watched against its deadline, that nothing of it survives it, and that
whatever happens is in its state.  Where the hosts come from is the site's business; how a task
trains is not known here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from launchers.fork_servers.host_servers import HostServers
from launchers.run.conclude import RunState
from launchers.run.host_kinds import refuse_mixture
from launchers.run.monitor import RunMonitor
from launchers.run.order import Order
from launchers.run.prepare import gather, prepare_run
from launchers.sites.protocol import Site
from ps_allreduce.cluster import TaskId
from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.messages import EndAll, FinishRun
from ps_allreduce.point.layout import cores_needed, drivers_of, place_tasks
from ps_allreduce.record.records import Status

#: How long after a first failure other tasks may still tell the better reason.
GRACE_S = 0.5

REAP_DEADLINE_S = 20.0

Progress = Callable[[str], None]


def follow_course(site: Site, order: Order, folder: Path, progress: Progress) -> RunState:
    """Make one run, from its fork servers to its files in `folder`.

    Raises:
        UserError: the experiment does not fit, or hosts differ.
    """
    experiment = order.experiment
    placed = place_tasks(experiment, site.hosts)
    state = RunState(
        placed=placed,
        folder=folder,
        monitor=RunMonitor(list(placed), drivers_of(experiment)),
        one_machine=site.one_machine and len(site.hosts) > 1,
        job_id=site.job_id,
        launched_at=time.time(),
    )
    needed = cores_needed(experiment, placed)
    cores = {host: needed[host] for host in site.hosts if host in needed}
    try:
        progress("starting on " + ", ".join(cores) if len(cores) > 1 else "starting")
        with site.servers(cores, experiment) as servers:
            _run_on(servers, site, order, state, progress)
    except LaunchError as error:
        state.monitor.lost_contact = state.monitor.lost_contact or str(error).splitlines()[0]
        state.status = Status.FAILED
    except KeyboardInterrupt:
        state.status = Status.INTERRUPTED
    _ask_scheduler(site, state)
    state.ended_at = time.time()
    return state


def _ask_scheduler(site: Site, state: RunState) -> None:
    """Why the run ended, if it did not end well; a job that is over interrupts a sweep."""
    if state.status is Status.FAILED and site.is_over():
        state.status = Status.INTERRUPTED
    if state.status in (Status.FAILED, Status.INTERRUPTED):
        state.post_mortem = site.post_mortem()


def _run_on(
    servers: HostServers, site: Site, order: Order, state: RunState, progress: Progress
) -> None:
    """Start all tasks on servers that are ready, follow them to the end, fetch the files."""
    if not site.one_machine and not order.mixed_hosts:
        refuse_mixture([client.ready.facts for client in servers.clients.values()])
    prepare_run(servers, site, order, state)
    try:
        for request in state.requests:
            servers.clients[state.host_of(request)].send(request)
        state.status = _watch(servers, state, order.experiment.profile.deadline_s, progress)
    except LaunchError as error:
        state.monitor.lost_contact = str(error).splitlines()[0]
        state.status = Status.FAILED
    except KeyboardInterrupt:
        state.status = Status.INTERRUPTED  # the run is recorded, and the sweep ends
    finally:
        _end_tasks(servers, state)
        gather(servers, state)
        servers.send_all(FinishRun())


def _watch(servers: HostServers, state: RunState, deadline_s: float, progress: Progress) -> Status:
    """Follow the run until it is complete, fails, or its time is up."""
    monitor = state.monitor
    deadline = time.monotonic() + deadline_s
    while (left := deadline - time.monotonic()) > 0:
        _take(servers, monitor, min(left, 0.5))
        progress(monitor.stage)
        if monitor.is_complete:
            return Status.OK
        if monitor.has_failed:
            end = time.monotonic() + GRACE_S
            while (left := end - time.monotonic()) > 0:
                _take(servers, monitor, left)
            return Status.FAILED
    return Status.TIMED_OUT


def _end_tasks(servers: HostServers, state: RunState) -> None:
    """Kill what is left, and wait until it is gone, wherever a host can still be reached."""
    monitor = state.monitor
    failed_before = dict(monitor.exited)
    servers.send_all(EndAll())
    deadline = time.monotonic() + REAP_DEADLINE_S
    while _any_left(servers, state) and (left := deadline - time.monotonic()) > 0:
        with suppress(LaunchError):  # one more host is lost; the others have tasks to end
            _take(servers, monitor, left)
    # What we killed ourselves is no failure, but its processor time and memory count.
    monitor.ended_by_us.update(set(monitor.exited) - set(failed_before))


def _any_left(servers: HostServers, state: RunState) -> bool:
    hosts = {state.placed[TaskId.parse(name)] for name in state.monitor.alive}
    return any(not servers.clients[host].lost for host in hosts)


def _take(servers: HostServers, monitor: RunMonitor, timeout_s: float) -> None:
    heard = servers.receive(timeout_s)
    if heard is not None:
        monitor.take(heard[1])
