"""Runs experiments on the hosts of a site: the launcher behind every name.

Decides what is asked of the hosts besides runs.  How a run is made is decided in `follow`, what it
came to in `conclude`; where the hosts come from is the site's business.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

from launchers.fork_servers.asking import ask_each
from launchers.fork_servers.host_servers import bring_copies
from launchers.run.conclude import LaunchedRun, conclude
from launchers.run.follow import make_run
from launchers.run.state import LaunchRequest, result_path
from launchers.site import Site, task_address
from ps_allreduce.environment import has_module
from ps_allreduce.errors import HostFault, UserError
from ps_allreduce.fork_server.messages import (
    CountRows,
    DescribeModel,
    InputPrepared,
    ModelDescribed,
    PrepareInput,
    RowsCounted,
)
from ps_allreduce.inspection.model_facts import FindModel, FoundModel, TriedModel, TryModel
from ps_allreduce.inspection.questions import Answer, Message
from ps_allreduce.point.cores import plan_cores, plan_gpus
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import most_together, refuse_large_batch
from ps_allreduce.point.models import Model
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.resources import Device
from ps_allreduce.point.strategies import AnyStrategy
from ps_allreduce.point.strategies.base import Servers
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.hosts import HostFacts
from ps_allreduce.record.records import Status
from ps_allreduce.record.variables import RowsAsked
from ps_allreduce.scratch import remove_left_overs, scratch_folder, scratch_parent
from ps_allreduce.tf_texts import PORT_TAKEN

JOB_DEADLINE_S = 300.0

A = TypeVar("A", bound=Answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a launcher's hosts offer to the axes of a sweep.

    Attributes:
        num_hosts: hosts that there are, without those named for servers.
        cores_per_host: of the one of them with the fewest.
        num_ps_hosts: hosts named for servers.
        shared_cores: of the machine that emulates all hosts; None where each has its own.
    """

    num_hosts: int
    cores_per_host: int
    num_ps_hosts: int = 0
    shared_cores: int | None = None


class HostsLauncher:
    """Runs experiments on the hosts of a site, one at a time.

    Used as a context: nothing it started outlives it.
    """

    def __init__(self, site: Site, data_dir: Path, *, mixed_hosts: bool = False) -> None:
        self._site = site
        self._data_dir = data_dir
        self._mixed_hosts = mixed_hosts
        self._described: dict[Model, ModelDescribed] = {}
        self._facts: dict[str, HostFacts] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        remove_left_overs(scratch_parent())
        self._stack.enter_context(self._site)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def job_id(self) -> str | None:
        """Of the scheduler's job; None without one."""
        return self._site.job_id

    @property
    def congestion(self) -> str:
        """This machine's TCP congestion control where tasks use it, as the site says."""
        return self._site.congestion

    def capacity(self) -> Capacity:
        """How far the axes of a sweep may reach."""
        cores, hosts = self._site.cores(), self._site.worker_hosts
        fewest = min(len(cores[host]) for host in hosts)
        shared = fewest if self._site.is_emulating else None
        return Capacity(
            num_hosts=len(hosts),
            cores_per_host=max(1, fewest // len(self._site.hosts)) if shared else fewest,
            num_ps_hosts=self._site.num_ps_hosts,
            shared_cores=shared,
        )

    def check(self, experiment: Experiment) -> None:
        """Refuse what does not fit on the hosts, or needs what they do not have.

        Whether their memory holds a batch is known of a model that was described.

        Raises:
            UserError: with the reason and what to do.
        """
        if missing := absence(experiment.strategy):
            raise UserError(missing)
        self._site.check(experiment)
        placed = self._site.place(experiment)
        if not self._site.is_emulating:
            plan_cores(experiment, placed, self._site.cores())
        if (described := self._described.get(experiment.workload.model)) is not None:
            together = most_together(placed, one_machine=self._site.one_machine)
            refuse_large_batch(experiment, together, described.kept_values, described.memory_bytes)
        if experiment.interface is None and experiment.resources.device is Device.CPU:
            return
        facts = self._look()
        plan_gpus(
            experiment,
            placed,
            {host: [gpu.identity for gpu in each.gpus] for host, each in facts.items()},
        )
        for host, each in facts.items():
            if experiment.interface is not None:
                task_address(host, each.interfaces, experiment.interface)

    def host_facts(self) -> tuple[HostFacts, ...]:
        """The hosts of a cluster, asked once; nothing of this machine, which provenance describes.

        Raises:
            UserError: the hosts differ and that was not asked for.
        """
        if self._site.one_machine:
            return ()
        facts = self._look()
        if not self._mixed_hosts:
            self._site.refuse_mixture(facts)
        return tuple(facts.values())

    def _look(self) -> Mapping[str, HostFacts]:
        """What every host found when it looked at itself; asked once."""
        if not self._facts:
            wanted = {host: len(cores) for host, cores in self._site.cores().items()}
            with self._site.servers(wanted, None) as servers:
                self._facts = {host: c.ready.facts for host, c in servers.clients.items()}
        return self._facts

    def time_left_s(self) -> float | None:
        """How long runs may still be made here; None for as long as one likes."""
        return self._site.time_left_s()

    def describe(self, workload: Workload) -> tuple[VariableSpec, ...]:
        """The model's variables in creation order; it is built once."""
        if workload.model not in self._described:
            request = DescribeModel(workload=workload, data_dir=str(self._data_dir))
            (answer,) = self._ask(ModelDescribed, request, model=workload.model)
            self._described[workload.model] = answer
        return self._described[workload.model].variables

    def count_rows(self, workload: Workload, ways: Sequence[Servers]) -> tuple[RowsAsked, ...]:
        """What a worker asks servers for, with each way to place rows of the model's tables."""
        request = CountRows(workload=workload, data_dir=str(self._data_dir), ways=tuple(ways))
        (answer,) = self._ask(RowsCounted, request, model=workload.model)
        return answer.asked

    def prepare(self, workload: Workload) -> None:
        """Make and check the input files, on every host that has files of its own.

        Those of a user's own model are sent there.

        Raises:
            UserError: the input is missing or damaged.
            HostFault: a host refuses the files.
        """
        request = PrepareInput(workload=workload, data_dir=str(self._data_dir))
        everywhere = not self._site.shares_files
        self._ask(InputPrepared, request, model=workload.model, everywhere=everywhere)

    def find_model(
        self, root: Path, module: str, function: str, arguments: Sequence[str], deadline_s: float
    ) -> FoundModel:
        """Import a user's module where it lies, and see what it is; as `FindModel` has it.

        Raises:
            UserError: it is no model that can be trained.
            TookTooLong: its function does not return.
            LaunchError: its process ended.
        """
        request = FindModel(
            root=str(root), module=module, function=function, arguments=tuple(arguments)
        )
        (found,) = self._ask(FoundModel, request, deadline_s=deadline_s)
        return found

    def try_model(self, workload: Workload, deadline_s: float) -> TriedModel:
        """Build a user's own model from the copies of its files, and make steps with one worker.

        Raises:
            UserError: it cannot be trained here.
            TookTooLong: a step does not end.
            LaunchError: its process ended.
        """
        request = TryModel(workload=workload, data_dir=str(self._data_dir))
        (tried,) = self._ask(TriedModel, request, deadline_s=deadline_s)
        return tried

    def _ask(
        self,
        kind: type[A],
        request: Message,
        *,
        model: Model | None = None,
        everywhere: bool = False,
        deadline_s: float = JOB_DEADLINE_S,
    ) -> list[A]:
        """Have a job done on the first host, or on every one, with the files of a model there."""
        hosts = self._site.hosts if everywhere else self._site.hosts[:1]
        with self._site.servers(dict.fromkeys(hosts, 1), None) as servers:
            if isinstance(model, OwnModel) and not self._site.shares_files:
                for client in servers.clients.values():
                    bring_copies(client, model, self._data_dir)
            return ask_each(servers, request, kind, deadline_s)

    def launch(
        self,
        experiment: Experiment,
        *,
        deadline_s: float,
        limit_s: float | None = None,
        progress: Callable[[str], None],
        weights: Path | None = None,
    ) -> LaunchedRun:
        """Run one experiment to its end; a port that was taken in spite of all is the host's fault.

        Args:
            deadline_s: a run that takes longer has timed out,
            limit_s: unless its steps need longer, and at the latest then; None: never later.
            progress: told what the run is doing, for a progress bar.
            weights: file that takes the trainable weights (`record.variables`).
        """
        request = LaunchRequest(
            experiment=experiment,
            deadline_s=deadline_s,
            limit_s=deadline_s if limit_s is None else limit_s,
            data_dir=self._data_dir,
            mixed_hosts=self._mixed_hosts,
            wants_weights=weights is not None,
        )
        try:
            run = self._launch_once(request, progress, weights)
        except HostFault as fault:
            reason = str(fault)
            return LaunchedRun(status=Status.INTERRUPTED, reason=reason, host_fault=reason)
        if any(trouble in run.reason for trouble in PORT_TAKEN):
            return replace(run, status=Status.INTERRUPTED, host_fault=run.reason)
        return run

    def _launch_once(
        self, request: LaunchRequest, progress: Callable[[str], None], weights: Path | None
    ) -> LaunchedRun:
        with scratch_folder(scratch_parent()) as folder:
            state = make_run(self._site, request, folder, progress)
            run = conclude(state)
            source = Path(f"{result_path(folder, state.monitor.drivers[0])}.weights.npz")
            if weights is not None and source.exists():
                run = _keep_weights(run, source, weights)
            return run


def _keep_weights(run: LaunchedRun, source: Path, target: Path) -> LaunchedRun:
    """Copy the weights to where somebody wants them; a disk that refuses costs no run."""
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        told = f"the weights could not be written to {target} ({error.strerror or error})"
        return replace(run, warnings=(*run.warnings, told))
    return run


def absence(strategy: AnyStrategy | type[AnyStrategy]) -> str:
    """Why a strategy cannot train here, a sentence; empty if it can.

    Hosts have the environment of this machine, so what is missing here is missing there.
    """
    if strategy.module is None or has_module(strategy.module):
        return ""
    return (
        f"strategy {strategy.kind} needs {strategy.label}, which this environment lacks: make "
        f"setup {strategy.module.upper()}=1 builds it (docs/setup.md)."
    )
