"""What a study is to cover, and the experiments that it is made of.

Decides what all points of a sweep share, and that every strategy gets those stated settings that it
understands.  Which points there are is decided by each study.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from experiments.studies.scale import Scale
from experiments.sweep.definition import Choices
from ps_allreduce.errors import at_least
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import (
    Policy,
    VariableSpec,
    default_split_bytes,
    make_plan,
    suggest,
)
from ps_allreduce.point.resources import Device, Resources
from ps_allreduce.point.spread import LayoutKind, Spread, workers_together
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    NoCommunication,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.strategies.base import StrategySettings
from ps_allreduce.point.wire import WIRE_SETTINGS
from ps_allreduce.point.workload import Workload

SERVER_STRATEGIES = (AsynchronousServers, SynchronousServers)

#: Tells a model's variables, in creation order.
Describe = Callable[[Workload], Sequence[VariableSpec]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a study is to cover.

    Attributes:
        workloads: one per model.
        measurement: of every point for which the study has none of its own.
        device: where the workers of every point compute.
        spread, network, interface: of every point.
        settings: what was stated about strategies; a strategy gets what it understands of it.
        describe: used where a placement has to be chosen.
        choices: remembers what is decided automatically.
    """

    workloads: tuple[Workload, ...]
    measurement: Measurement
    scale: Scale
    launcher: str
    device: Device = Device.CPU
    spread: Spread | None = None
    network: EmulatedNetwork | None = None
    interface: str | None = None
    settings: StrategySettings = field(default_factory=StrategySettings)
    describe: Describe
    choices: Choices = field(default_factory=Choices)

    def __post_init__(self) -> None:
        if self.settings.num_ps is not None:
            at_least(1, num_ps=self.settings.num_ps)

    @property
    def num_ps(self) -> int | None:
        """A stated number of servers; None for the study's own choice."""
        return self.settings.num_ps

    def point(
        self,
        workload: Workload,
        strategy: type[AnyStrategy],
        workers: int,
        settings: StrategySettings | None = None,
    ) -> Experiment:
        """One experiment, with what all points of the study share.

        Args:
            settings: instead of those that were stated.
        """
        cores = self.scale.cores_per_worker
        stated = self._suited(settings or self.settings, workers)
        return Experiment(
            strategy=strategy.of(stated.only(strategy.understands)),
            num_workers=workers,
            launcher=self.launcher,
            spread=self.spread,
            network=self.network,
            interface=self.interface,
            workload=workload,
            resources=Resources(
                cores_per_worker=cores, threads_per_worker=max(1, cores - 1), device=self.device
            ),
            measurement=self.measurement,
        )

    def _suited(self, settings: StrategySettings, workers: int) -> StrategySettings:
        """A worker that is alone on its host has nobody to aggregate with."""
        if workers_together(workers, self.spread) > 1:
            return settings
        return settings.without(["host_aggregation"])

    def bases(self, workload: Workload) -> list[Experiment]:
        """A single worker, and workers that do not communicate."""
        free = [self.point(workload, NoCommunication, n) for n in self.scale.workers]
        return [self.point(workload, Single, 1), *free]

    def reduced(
        self, workload: Workload, workers: int, bytes_per_pack: int | None = None
    ) -> Experiment:
        """A point with all-reduce over the collective that servers can be compared with."""
        settings = self.settings
        if bytes_per_pack is not None:
            settings = replace(settings.without(WIRE_SETTINGS), bytes_per_pack=bytes_per_pack)
        return self.point(workload, AllReduce, workers, settings)

    def served(
        self,
        workload: Workload,
        strategy: type[AnyStrategy],
        workers: int,
        num_ps: int,
        policy: Policy,
    ) -> Experiment:
        """A point with parameter servers."""
        return self.point(workload, strategy, workers, self.of_servers(workload, num_ps, policy))

    def of_servers(self, workload: Workload, num_ps: int, policy: Policy) -> StrategySettings:
        """The settings of strategies with so many servers.

        Raises:
            UserError: the model has too few variables for so many.
        """
        split_bytes = None
        if policy is Policy.PARTITIONED:
            split_bytes = self._split_bytes(workload, num_ps)
            make_plan(policy, self.describe(workload), num_ps, split_bytes)
        else:
            make_plan(policy, self.describe(workload), num_ps)
        return replace(self.settings, num_ps=num_ps, placement=policy, split_bytes=split_bytes)

    def best_policy(self, workload: Workload, num_ps: int) -> Policy:
        """The placement that `placement` suggests; decided once per sweep."""

        def compute() -> Policy:
            variables, split_bytes = self.describe(workload), self._split_bytes(workload, num_ps)
            plans = [make_plan(policy, variables, num_ps, split_bytes) for policy in Policy]
            return suggest(plans).policy

        question = f"best placement of {workload.model.name} on {num_ps} servers"
        return self.choices.decide(question, Policy, compute)

    def _split_bytes(self, workload: Workload, num_ps: int) -> int:
        """Above so many bytes `partitioned` cuts a variable: as stated, or decided once."""
        if self.settings.split_bytes is not None:
            return self.settings.split_bytes
        return self.choices.decide(
            f"split_bytes of {workload.model.name} on {num_ps} servers",
            int,
            lambda: default_split_bytes(self.describe(workload), num_ps),
        )

    def has_room(self, workers: int, num_ps: int) -> bool:
        """More colocated servers than hosts of workers would only share these hosts' links."""
        dedicated = self.settings.layout is LayoutKind.DEDICATED
        if self.spread is None or dedicated or self.num_ps is not None:
            return True
        hosts = math.ceil(workers / self.spread.workers_per_host)
        return num_ps <= hosts * (self.spread.ps_per_host or 1)
