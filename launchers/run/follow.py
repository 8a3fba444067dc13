"""Makes one run: starts its tasks, follows them to their end, and fetches their files.

Decides that a run is watched against its deadline, that nothing of it survives it, and that its
state tells whatever happened.  Where the hosts come from is the site's business; how a task trains
is not known here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from launchers.fork_servers.host_servers import HostServers
from launchers.run.prepare import fetch_files, prepare_run
from launchers.run.state import LaunchRequest, RunMonitor, RunState
from launchers.site import Site
from ps_allreduce.cluster import TaskId
from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.messages import EndAll, FinishRun
from ps_allreduce.point.layout import cores_needed, drivers_of, place_tasks
from ps_allreduce.record.records import Status

#: How long after a first failure other tasks may still tell the better reason.
GRACE_S = 0.5

REAP_DEADLINE_S = 20.0

Progress = Callable[[str], None]


def make_run(site: Site, request: LaunchRequest, folder: Path, progress: Progress) -> RunState:
    """Make one run, from its fork servers to its files in `folder`.

    Raises:
        UserError: the experiment does not fit, or hosts differ.
    """
    experiment = request.experiment
    placed = place_tasks(experiment, site.hosts)
    state = RunState(
        request=request,
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
            _run_on(servers, site, state, progress)
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


def _run_on(servers: HostServers, site: Site, state: RunState, progress: Progress) -> None:
    """Start all tasks on servers that are ready, follow them to the end, fetch the files."""
    if not site.one_machine and not state.request.mixed_hosts:
        site.refuse_mixture([client.ready.facts for client in servers.clients.values()])
    prepare_run(servers, site, state)
    try:
        for task in state.tasks:
            host = state.placed[TaskId.parse(task.task)]
            servers.clients[host].send(task)
        state.status = _watch(servers, state, progress)
    except LaunchError as error:
        state.monitor.lost_contact = str(error).splitlines()[0]
        state.status = Status.FAILED
    except KeyboardInterrupt:
        state.status = Status.INTERRUPTED  # the run is recorded, and the sweep ends
    finally:
        _end_tasks(servers, state)
        fetch_files(servers, state)
        servers.send_all(FinishRun())


def _watch(servers: HostServers, state: RunState, progress: Progress) -> Status:
    """Follow the run until it is complete, fails, or its time is up."""
    monitor = state.monitor
    deadline = time.monotonic() + state.request.deadline_s
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
    ended_before = set(monitor.exited)
    servers.send_all(EndAll())
    deadline = time.monotonic() + REAP_DEADLINE_S
    while _any_left(servers, state) and (left := deadline - time.monotonic()) > 0:
        with suppress(LaunchError):  # one more host is lost; the others have tasks to end
            _take(servers, monitor, left)
    # What we killed ourselves is no failure, but its processor time and memory count.
    monitor.ended_by_us.update(set(monitor.exited) - ended_before)


def _any_left(servers: HostServers, state: RunState) -> bool:
    hosts = {state.placed[TaskId.parse(name)] for name in state.monitor.alive}
    return any(not servers.clients[host].lost for host in hosts)


def _take(servers: HostServers, monitor: RunMonitor, timeout_s: float) -> None:
    heard = servers.receive(timeout_s)
    if heard is not None:
        monitor.take(heard[1])
