"""Runs experiments on the hosts of a site: the launcher behind every name.

Decides what is asked of the hosts besides runs, and when a run is tried again.  A run's course is
`course`, where the hosts come from is the site's business, and how a task trains is not known here.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from launchers.fork_servers.client import ForkServerClient
from launchers.protocol import Capacity, LaunchedRun
from launchers.run.conclude import RunState, conclude, failure_reason, result_path
from launchers.run.follow import follow_course
from launchers.run.host_kinds import refuse_mixture
from launchers.run.order import Order
from launchers.sites.protocol import Site
from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.messages import (
    ConvertImages,
    DescribeModel,
    Event,
    PrepareInput,
)
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import (
    drivers_of,
    place_tasks,
    plan_cores,
)
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.hosts import HostFacts
from ps_allreduce.record.records import Status
from ps_allreduce.runner.results import OverheadResult
from ps_allreduce.scratch import remove_left_overs, scratch_prefix
from ps_allreduce.serialization import from_json

JOB_DEADLINE_S = 300.0

CONVERT_DEADLINE_S = 24 * 3600.0

PORT_ATTEMPTS = 3

PORT_TROUBLE = ("Could not start gRPC server", "Address already in use")


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
            if not self._mixed_hosts:
                refuse_mixture(self._facts)
        return self._facts

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
        self,
        experiment: Experiment,
        *,
        progress: Callable[[str], None],
        weights: Path | None = None,
    ) -> LaunchedRun:
        """Run one experiment; a port that was taken in spite of everything is tried again."""
        for attempt in range(PORT_ATTEMPTS):
            with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as folder:
                order = self._order(experiment, wants_weights=bool(weights))
                state = follow_course(self._site, order, Path(folder), progress)
                run = conclude(experiment, state)
                if weights is not None:
                    _keep_weights(experiment, state, weights)
            if not any(trouble in run.reason for trouble in PORT_TROUBLE):
                break
            progress(f"port taken, attempt {attempt + 2}")
        return run

    def _order(self, experiment: Experiment, **wishes: Any) -> Order:
        return Order(
            experiment=experiment,
            data_dir=self._data_dir,
            mixed_hosts=self._mixed_hosts,
            **wishes,
        )

    def measure_recording(self, experiment: Experiment, rounds: int) -> OverheadResult:
        """Compare recorded with bare steps, in so many interleaved pairs of stretches.

        Raises:
            LaunchError: the run failed.
        """
        with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as folder:
            order = self._order(experiment, recording_rounds=rounds)
            state = follow_course(self._site, order, Path(folder), lambda _: None)
            if state.status is not Status.OK:
                raise LaunchError(failure_reason(experiment, state))
            path = Path(f"{result_path(folder, drivers_of(experiment)[0])}.json")
            return from_json(OverheadResult, json.loads(path.read_text(encoding="utf-8")))


def _keep_weights(experiment: Experiment, state: RunState, target: Path) -> None:
    source = Path(f"{result_path(state.folder, drivers_of(experiment)[0])}.weights.npz")
    if source.exists():
        shutil.copyfile(source, target)
