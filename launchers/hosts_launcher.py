"""Runs experiments on the hosts of a site: the launcher behind every name.

Decides a run's course: tasks to hosts, ports, addresses, what is measured of the network, watching
against the deadline, and that nothing of the run survives it.  Where the hosts come from is the
site's business; how a task trains is not known here.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from launchers.conclude import RunState, conclude, failure_reason, result_path
from launchers.fork_server import ForkServerClient
from launchers.host_servers import HostServers
from launchers.layout import (
    CorePlan,
    cores_needed,
    drivers_of,
    place_tasks,
    plan_cores,
    share_machine,
)
from launchers.prepare import gather, prepare_run
from launchers.protocol import Capacity, LaunchedRun
from launchers.run_monitor import RunMonitor
from launchers.site import Site
from ps_allreduce.cluster import TaskId
from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.experiment import Experiment, Workload
from ps_allreduce.hosts import HostFacts, describe_difference, kinds
from ps_allreduce.placement import VariableSpec
from ps_allreduce.records import Status
from ps_allreduce.runner.messages import (
    ConvertImages,
    DescribeModel,
    EndAll,
    Event,
    FinishRun,
    PrepareInput,
)
from ps_allreduce.runner.results import OverheadResult
from ps_allreduce.scratch import remove_left_overs, scratch_prefix
from ps_allreduce.serialization import from_json

JOB_DEADLINE_S = 300.0

CONVERT_DEADLINE_S = 24 * 3600.0

#: How long after a first failure other tasks may still tell the better reason.
GRACE_S = 0.5

REAP_DEADLINE_S = 20.0

PORT_ATTEMPTS = 3

PORT_TROUBLE = ("Could not start gRPC server", "Address already in use")

Progress = Callable[[str], None]


class HostsLauncher:
    """Runs experiments on the hosts of a site, one at a time."""

    def __init__(self, site: Site, data_dir: Path, *, mixed_hosts: bool = False) -> None:
        self._site = site
        self._data_dir = data_dir
        self._mixed_hosts = mixed_hosts
        self._described: dict[tuple[str, int, int], tuple[VariableSpec, ...]] = {}
        self._facts: tuple[HostFacts, ...] = ()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        remove_left_overs(Path(tempfile.gettempdir()))
        self._stack.enter_context(self._site)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def job_id(self) -> str | None:
        """Of the scheduler's job; None without one."""
        return self._site.job_id

    def capacity(self) -> Capacity:
        """How far the axes of a sweep may reach."""
        cores = self._site.cores()
        fewest = min(len(numbers) for numbers in cores.values())
        if self._is_emulating:
            fewest = max(1, fewest // len(self._site.hosts))
        return Capacity(num_hosts=len(self._site.hosts), cores_per_host=fewest)

    def check(self, experiment: Experiment) -> None:
        """Refuse what does not fit on the hosts."""
        self._site.check(experiment)
        placed = place_tasks(experiment, self._site.hosts)
        if not self._is_emulating:
            plan_cores(experiment, placed, self._site.cores())

    @property
    def _is_emulating(self) -> bool:
        """Several hosts share the cores of this machine."""
        return self._site.one_machine and len(self._site.hosts) > 1

    def host_facts(self) -> tuple[HostFacts, ...]:
        """The hosts of a cluster, asked once; nothing of this machine, which provenance describes.

        Raises:
            UserError: the hosts differ and that was not asked for.
        """
        if not self._site.one_machine and not self._facts:
            wanted = {host: len(cores) for host, cores in self._site.cores().items()}
            with self._site.servers(wanted, None) as servers:
                self._facts = tuple(c.ready.facts for c in servers.clients.values())
            self._refuse_mixture(self._facts)
        return self._facts

    def _refuse_mixture(self, facts: Sequence[HostFacts]) -> None:
        found = kinds(facts)
        if len(found) > 1 and not self._mixed_hosts:
            (one, *_), (two, *_) = list(found.values())[:2]
            by_name = {fact.name: fact for fact in facts}
            raise UserError(
                f"the hosts are of {len(found)} kinds: {one} and {two} differ in "
                f"{describe_difference(by_name[one], by_name[two])}. Ask for hosts that are alike "
                "(--constraint, --exclude), or overrule with --mixed-hosts."
            )

    def time_left_s(self) -> float | None:
        """How long runs may still be made here."""
        return self._site.time_left_s()

    def describe(self, workload: Workload) -> tuple[VariableSpec, ...]:
        """The model's variables in creation order; built once per model, size and classes."""
        key = (workload.model, workload.image_size, workload.num_classes)
        if key not in self._described:
            (answer,) = self._ask(
                lambda client: DescribeModel(
                    workload=workload, log=f"{client.ready.scratch}/describe.log"
                )
            )
            self._described[key] = answer.variables
        return self._described[key]

    def prepare(self, workload: Workload) -> None:
        """Make and check the input files, on every host that has files of its own."""
        self._ask(
            lambda client: PrepareInput(
                workload=workload,
                data_dir=str(self._data_dir),
                log=f"{client.ready.scratch}/prepare.log",
            ),
            everywhere=not self._site.shares_files,
        )

    def _ask(
        self, request_for: Callable[[ForkServerClient], object], *, everywhere: bool = False
    ) -> list[Event]:
        """Have a job done on the first host, or on every one."""
        hosts = self._site.hosts if everywhere else self._site.hosts[:1]
        with self._site.servers(dict.fromkeys(hosts, 1), None) as servers:
            return [
                client.ask(request_for(client), JOB_DEADLINE_S)
                for client in servers.clients.values()
            ]

    def convert(
        self, source: Path, target: Path, progress: Callable[[int, int], None]
    ) -> Mapping[str, int]:
        """Write the images below `source/<class>/` as TFRecord files into `target`.

        Args:
            progress: told how many images are done, of how many.

        Returns:
            The number of images per class.

        Raises:
            UserError: there are no images, or one cannot be read.
        """

        def hear(event: Event) -> None:
            if event.event == "progress":
                progress(event.counts["done"], event.counts["total"])

        host = self._site.hosts[0]
        with self._site.servers({host: 1}, None) as servers:
            client = servers.clients[host]
            log = f"{client.ready.scratch}/convert.log"
            request = ConvertImages(source=str(source), target=str(target), log=log)
            return client.ask(request, CONVERT_DEADLINE_S, hear).counts

    def launch(
        self, experiment: Experiment, *, progress: Progress, weights: Path | None = None
    ) -> LaunchedRun:
        """Run one experiment; a port that was taken in spite of everything is tried again."""
        for attempt in range(PORT_ATTEMPTS):
            with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as folder:
                state = self._run(experiment, Path(folder), progress, wants_weights=bool(weights))
                run = conclude(experiment, state)
                if weights is not None:
                    _keep_weights(experiment, state, weights)
            if not any(trouble in run.reason for trouble in PORT_TROUBLE):
                break
            progress(f"port taken, attempt {attempt + 2}")
        return run

    def measure_recording(self, experiment: Experiment, rounds: int) -> OverheadResult:
        """Compare recorded with bare steps, in so many interleaved pairs of stretches.

        Raises:
            LaunchError: the run failed.
        """
        with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as folder:
            state = self._run(experiment, Path(folder), lambda _: None, recording_rounds=rounds)
            if state.status is not Status.OK:
                raise LaunchError(failure_reason(experiment, state))
            path = Path(f"{result_path(folder, drivers_of(experiment)[0])}.json")
            return from_json(OverheadResult, json.loads(path.read_text(encoding="utf-8")))

    def _run(
        self,
        experiment: Experiment,
        folder: Path,
        progress: Progress,
        *,
        wants_weights: bool = False,
        recording_rounds: int = 0,
    ) -> RunState:
        """One run from its fork servers to its files in `folder`; whatever happens is in the state.

        Raises:
            UserError: the experiment does not fit, or hosts differ.
        """
        placed = place_tasks(experiment, self._site.hosts)
        state = RunState(
            placed=placed,
            folder=folder,
            monitor=RunMonitor(list(placed), drivers_of(experiment)),
            one_machine=self._is_emulating,
            job_id=self._site.job_id,
            launched_at=time.time(),
        )
        needed = cores_needed(experiment, placed)
        cores = {host: needed[host] for host in self._site.hosts if host in needed}
        try:
            progress("starting on " + ", ".join(cores) if len(cores) > 1 else "starting")
            with self._site.servers(cores, experiment) as servers:
                self._run_on(servers, experiment, state, progress, wants_weights, recording_rounds)
        except LaunchError as error:
            state.monitor.lost_contact = state.monitor.lost_contact or str(error).splitlines()[0]
            state.status = Status.FAILED
        except KeyboardInterrupt:
            state.status = Status.INTERRUPTED
        if state.status is Status.FAILED and self._site.is_over():
            state.status = Status.INTERRUPTED
        if state.status in (Status.FAILED, Status.INTERRUPTED):
            state.post_mortem = self._site.post_mortem()
        state.ended_at = time.time()
        return state

    def _run_on(
        self,
        servers: HostServers,
        experiment: Experiment,
        state: RunState,
        progress: Progress,
        wants_weights: bool,
        recording_rounds: int,
    ) -> None:
        """Start all tasks on servers that are ready, follow them to the end, fetch the files."""
        facts = [client.ready.facts for client in servers.clients.values()]
        if not self._site.one_machine:
            self._refuse_mixture(facts)
        prepare_run(
            servers,
            experiment,
            state,
            cores=_plan_cores(servers, experiment, state),
            data_dir=self._data_dir,
            preset=self._site.preset_address,
            one_machine=self._site.one_machine,
            wants_weights=wants_weights,
            recording_rounds=recording_rounds,
        )
        try:
            for request in state.requests:
                servers.clients[state.host_of(request)].send(request)
            state.status = self._watch(servers, state.monitor, experiment, progress)
        except LaunchError as error:
            state.monitor.lost_contact = str(error).splitlines()[0]
            state.status = Status.FAILED
        except KeyboardInterrupt:
            state.status = Status.INTERRUPTED  # the run is recorded, and the sweep ends
        finally:
            self._end_tasks(servers, state)
            gather(servers, state)
            servers.send_all(FinishRun())

    def _watch(
        self,
        servers: HostServers,
        monitor: RunMonitor,
        experiment: Experiment,
        progress: Progress,
    ) -> Status:
        """Follow the run until it is complete, fails, or its time is up."""
        deadline = time.monotonic() + experiment.profile.deadline_s
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

    def _end_tasks(self, servers: HostServers, state: RunState) -> None:
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


def _plan_cores(servers: HostServers, experiment: Experiment, state: RunState) -> CorePlan:
    offered = {host: client.ready.facts.cores for host, client in servers.clients.items()}
    if state.one_machine:
        return share_machine(experiment, state.placed, next(iter(offered.values())))
    return plan_cores(experiment, state.placed, offered)


def _any_left(servers: HostServers, state: RunState) -> bool:
    hosts = {state.placed[TaskId.parse(name)] for name in state.monitor.alive}
    return any(not servers.clients[host].lost for host in hosts)


def _take(servers: HostServers, monitor: RunMonitor, timeout_s: float) -> None:
    heard = servers.receive(timeout_s)
    if heard is not None:
        monitor.take(heard[1])


def _keep_weights(experiment: Experiment, state: RunState, target: Path) -> None:
    source = Path(f"{result_path(state.folder, drivers_of(experiment)[0])}.weights.npz")
    if source.exists():
        shutil.copyfile(source, target)
