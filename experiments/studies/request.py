"""What a study is asked to cover, and the points that it is made of.

Decides what all points of a sweep share and which settings belong to which strategy.  Which points
there are is decided in `studies` and `tuning`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from experiments.sweep.profiles import Scale
from experiments.sweep.sweep import expand
from ps_allreduce.errors import at_least
from ps_allreduce.point.experiment import (
    Collective,
    Device,
    Experiment,
    Profile,
    Resources,
    server_settings,
)
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy, VariableSpec, make_plan, suggest, usual_split_bytes
from ps_allreduce.point.spread import LayoutKind, Spread, workers_together
from ps_allreduce.point.strategies import TRAITS, Strategy
from ps_allreduce.point.wire import Wire
from ps_allreduce.point.workload import Workload

SERVER_STRATEGIES = (Strategy.PS_ASYNC, Strategy.PS_SYNC)

Describe = Callable[[Workload], Sequence[VariableSpec]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a study is asked to cover.

    Attributes:
        workloads: one per model.
        device: where the workers of every point compute.
        spread, network, interface: of every point.
        wire: of every point that communicates; host aggregation of those that can.
        dealing: staleness and steps per dispatch, as far as they were asked for, of every point
            that deals steps.
        num_ps: a fixed number of servers, None for the study's own choice.
        split_bytes: the threshold of `partitioned`, None for the model's usual one.
        describe: tells a model's variables; used where a placement has to be chosen.
    """

    workloads: tuple[Workload, ...]
    profile: Profile
    scale: Scale
    launcher: str
    device: Device = Device.CPU
    spread: Spread | None = None
    network: EmulatedNetwork | None = None
    interface: str | None = None
    wire: Wire = field(default_factory=Wire)
    dealing: Mapping[str, int] = field(default_factory=dict)
    num_ps: int | None
    layout: LayoutKind
    split_bytes: int | None
    describe: Describe

    def __post_init__(self) -> None:
        if self.num_ps is not None:
            at_least(1, num_ps=self.num_ps)

    def point(
        self, workload: Workload, strategy: Strategy, workers: int, **settings: object
    ) -> Experiment:
        """One experiment with what all points of the request share."""
        cores = self.scale.cores_per_worker
        resources = Resources(
            cores_per_worker=cores, threads_per_worker=max(1, cores - 1), device=self.device
        )
        traits = TRAITS[strategy]
        if traits.communicates:
            together = workers_together(workers, self.spread)
            aggregates = traits.aggregates and together > 1 and self.wire.host_aggregation
            settings = {"wire": replace(self.wire, host_aggregation=aggregates)} | settings
        if traits.deals_steps:
            settings = {**self.dealing, **settings}
        return Experiment(
            strategy=strategy,
            num_workers=workers,
            launcher=self.launcher,
            spread=self.spread,
            network=self.network,
            interface=self.interface,
            workload=workload,
            resources=resources,
            profile=self.profile,
            **settings,  # type: ignore[arg-type]
        )

    def has_room(self, workers: int, num_ps: int) -> bool:
        """More colocated servers than hosts of workers would only share these hosts' links."""
        if self.spread is None or self.layout is LayoutKind.DEDICATED or self.num_ps is not None:
            return True
        hosts = math.ceil(workers / self.spread.workers_per_host)
        return num_ps <= hosts * (self.spread.ps_per_host or 1)

    def served(
        self, workload: Workload, strategy: Strategy, workers: int, num_ps: int, policy: Policy
    ) -> Experiment:
        """A point with parameter servers; refused here if the model has too few variables."""
        split_bytes = self.threshold(workload, num_ps)
        make_plan(policy, self.describe(workload), num_ps, split_bytes)
        settings = server_settings(num_ps, policy, self.layout, split_bytes)
        return self.point(workload, strategy, workers, **settings)

    def threshold(self, workload: Workload, num_ps: int) -> int:
        """Above so many bytes `partitioned` cuts a variable."""
        if self.split_bytes is not None:
            return self.split_bytes
        return usual_split_bytes(self.describe(workload), num_ps)

    def reduced(
        self, workload: Workload, workers: int, bytes_per_pack: int | None = None
    ) -> Experiment:
        """A point with all-reduce over RING, the transport that both sides have."""
        return self.point(
            workload,
            Strategy.ALLREDUCE,
            workers,
            collective=Collective.RING,
            bytes_per_pack=bytes_per_pack,
            **({} if bytes_per_pack is None else {"wire": Wire()}),
        )

    def baselines(self, workload: Workload) -> tuple[Experiment, ...]:
        """A single worker, and workers that do not communicate."""
        free = expand(
            {"workers": self.scale.workers},
            lambda workers: self.point(workload, Strategy.NO_COMMUNICATION, workers),
        )
        return (self.point(workload, Strategy.SINGLE, 1), *free)

    def best_policy(self, workload: Workload, num_ps: int) -> Policy:
        """The policy that the dry run suggests."""
        variables, split_bytes = self.describe(workload), self.threshold(workload, num_ps)
        return suggest(
            [make_plan(policy, variables, num_ps, split_bytes) for policy in Policy]
        ).policy
