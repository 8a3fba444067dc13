"""What a study is to cover, and the experiments that it is made of.

Decides what all points of a sweep share, and that every strategy gets those stated settings that it
understands.  Which points there are is decided by each study, in a module beside this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from experiments.studies.defaults import default_num_ps
from experiments.sweep.definition import Choices
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import (
    DEFAULT_SPLIT_BYTES,
    Plan,
    Policy,
    VariableSpec,
    default_split_bytes,
    make_plan,
    possible_plans,
    suggest,
    without_tables,
)
from ps_allreduce.point.resources import (
    Device,
    LayoutKind,
    Resources,
    Spread,
    default_threads,
    workers_together,
)
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    NoCommunication,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.strategies.base import Servers
from ps_allreduce.point.strategies.stated import Altered, Embeddings, StrategySettings
from ps_allreduce.point.wire import WIRE_SETTINGS, WireType
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.choices import EXCHANGES, ExchangeChoice, ExchangeMode, rate_question

SERVER_STRATEGIES = (AsynchronousServers, SynchronousServers)

#: Every gradient on its own, and all at once; of all-reduce one pack stands for it.
UNBUCKETED = StrategySettings(group_bytes=0, cut_bytes=0, in_flight=0, gradients=WireType.FLOAT32)

#: Tells a model's variables, in creation order.
Describe = Callable[[Workload], Sequence[VariableSpec]]


def check_servers(points: Iterable[Experiment], describe: Describe) -> None:
    """See that every server gets something, before one of many servers is started.

    Raises:
        UserError: some server would get nothing.
    """
    for point in points:
        servers = point.strategy.servers
        if servers is not None and servers.num_ps > 1:
            variables = describe(point.workload)
            tables = [spec for spec in variables if spec.is_table]
            servers.plan(variables if point.strategy.places_variables else tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads:
    """TensorFlow's threads of a worker on either side; None is one less than its cores.

    Attributes:
        allreduce: where no server wants a core, so of the bases as well.
        ps: of strategies with parameter servers.
    """

    allreduce: int | None = None
    ps: int | None = None

    def of(self, strategy: type[AnyStrategy], cores: int) -> int:
        """Those of a worker with so many cores; as it ships, TensorFlow takes one for each core."""
        if strategy.as_shipped:
            return cores
        stated = self.ps if strategy.uses_servers else self.allreduce
        return default_threads(cores) if stated is None else stated


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How far the axes of a study reach.

    Attributes:
        workers: numbers of workers, ascending.
        cores_per_worker: the same for every point, so that efficiency has one base.
    """

    workers: tuple[int, ...]
    cores_per_worker: int
    threads: Threads = field(default_factory=Threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a study is to cover.

    Attributes:
        workloads: one per model.
        measurement: of every point for which the study has none of its own.
        device: where the workers of every point compute.
        spread, interface: of every point.
        network: of every point; where its links have no rate, that which was chosen for the model.
        settings: what was stated about strategies; a strategy gets what it understands of it, and
            a study chooses the number of servers where none is stated.
        describe: used where a placement has to be chosen.
        choices: remembers what is decided automatically.
        brief: one worker and the most are enough.
        num_ps_hosts: hosts that are named for servers.
        host_cores: of a host that shares them with no other.
        exchange: how gradients travel; `auto` is buckets until it is chosen.
        tuned: settings that a tuning has found, which a study may measure as well.
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
    brief: bool = False
    num_ps_hosts: int = 0
    host_cores: int = 1
    exchange: ExchangeMode = ExchangeMode.BUCKETS
    tuned: tuple[Experiment, ...] = ()

    def __post_init__(self) -> None:
        if self.settings.num_ps is not None:
            Servers(num_ps=self.settings.num_ps)  # before a study loops over them

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
        stated = settings or self.settings
        if workers_together(workers, self.spread) == 1:  # it has nobody to aggregate with
            stated = stated.without(["host_aggregation"])
        return Experiment(
            strategy=strategy.of(
                self._sent(workload, strategy, stated).only(strategy.understands())
            ),
            num_workers=workers,
            launcher=self.launcher,
            spread=self.spread,
            network=self._network_of(workload),
            interface=self.interface,
            workload=workload,
            resources=Resources(
                cores_per_worker=cores,
                threads_per_worker=self.scale.threads.of(strategy, cores),
                device=self.device,
            ),
            measurement=self._measured(strategy),
        )

    def _sent(
        self, workload: Workload, strategy: type[AnyStrategy], stated: StrategySettings
    ) -> StrategySettings:
        """The settings, with how gradients travel if not in buckets, as they do beside rows."""
        if stated.embeddings is Embeddings.SPARSE:
            return stated
        mode = self.exchange
        if mode is ExchangeMode.AUTO:
            chosen = self.choices.answer(EXCHANGES, tuple[ExchangeChoice, ...]) or ()
            wanted = (workload.model.name, strategy.kind)
            mode = next((c.mode for c in chosen if (c.model, c.strategy) == wanted), mode)
        if mode is not ExchangeMode.WHOLE:
            return stated
        whole = StrategySettings(bytes_per_pack=0) if strategy.uses_collective else UNBUCKETED
        return stated.changed_by(whole)

    def _measured(self, strategy: type[AnyStrategy] | AnyStrategy) -> Measurement:
        """Of plain TensorFlow only training is measured."""
        if strategy.as_shipped:
            return replace(self.measurement, evaluation=None)
        return self.measurement

    def _network_of(self, workload: Workload) -> EmulatedNetwork | None:
        rate = self.choices.answer(rate_question(workload.model.name), float)
        if self.network is None or rate is None or not self.network.is_unlimited:
            return self.network
        return replace(self.network, bits_per_s=rate)

    def tuned_of(self, workload: Workload) -> list[Experiment]:
        """The settings that were tuned for a workload, measured as all points are.

        The tuning had a first look of its own, which may have chosen another batch.
        """
        batch = workload.batch_per_worker
        return [
            replace(
                point,
                workload=workload,
                network=self._network_of(workload),
                measurement=self._measured(point.strategy),
            )
            for point in self.tuned
            if replace(point.workload, batch_per_worker=batch) == workload
        ]

    def bases(self, workload: Workload) -> list[Experiment]:
        """A single worker, and workers that do not communicate.

        Briefly, the single worker; where workers share cores it is no fair base, and the most that
        do not communicate are.
        """
        bounded = self.scale.workers
        if self.brief:
            bounded = bounded[-1:] if self._shares_cores(workload) else ()
        free = [self.point(workload, NoCommunication, n) for n in bounded]
        return [self.point(workload, Single, 1), *free]

    def sizes(self, workload: Workload) -> tuple[int, ...]:
        """Numbers of workers of points that exchange gradients.

        Briefly, where workers share cores, only several: a single worker has a core to itself, so
        a point with one worker tells nothing of the others.
        """
        several = tuple(number for number in self.scale.workers if number > 1)
        brief = self.brief and self._shares_cores(workload)
        return several if brief and several else self.scale.workers

    def _shares_cores(self, workload: Workload) -> bool:
        """The most workers that compute have less than their cores on one machine."""
        if self.network is None or workload.emulated is not None:
            return False
        return max(self.scale.workers) * self.scale.cores_per_worker > self.host_cores

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
        is_cut = policy is Policy.PARTITIONED
        split_bytes = self.split_bytes(workload, num_ps) if is_cut else None
        make_plan(policy, self.describe(workload), num_ps, split_bytes or DEFAULT_SPLIT_BYTES)
        return replace(self.settings, num_ps=num_ps, placement=policy, split_bytes=split_bytes)

    def beside_rows(self, workload: Workload, num_ps: int) -> StrategySettings:
        """Those of so many servers with rows: the most balanced placement of all but tables.

        Variables may be fewer than servers, each of which has rows; then as TensorFlow places them.
        """
        bare = replace(self, describe=lambda each: without_tables(self.describe(each)))
        try:
            return bare.of_servers(workload, num_ps, bare.balanced_policy(workload, num_ps))
        except UserError:
            return replace(self.settings, num_ps=num_ps)

    def alterations(self, workload: Workload) -> list[Altered]:
        """What makes a difference to plain TensorFlow: not all models keep statistics."""
        trained = all(spec.trainable for spec in self.describe(workload))
        left_out = Altered.STATISTICS if trained or workload.emulated else None
        return [each for each in Altered if each is not left_out]

    def balanced_policy(self, workload: Workload, num_ps: int) -> Policy:
        """The most balanced placement, as `placement` suggests it; decided once per sweep.

        On one server every placement is the same.
        """
        if num_ps == 1:
            return Policy.ROUND_ROBIN

        def compute() -> Policy:
            return suggest(self._possible_plans(workload, num_ps)).policy

        question = f"most balanced placement of {workload.model.name} on {num_ps} servers"
        return self.choices.decide(question, Policy, compute)

    def telling_policies(self, workload: Workload, num_ps: int) -> list[Policy]:
        """Round robin and the most balanced placement; where that is round robin, the next one.

        Without round robin where variables are fewer than servers.
        """
        if num_ps == 1:
            return [Policy.ROUND_ROBIN]
        balanced = self.balanced_policy(workload, num_ps)
        other = balanced if balanced is not Policy.ROUND_ROBIN else Policy.LARGEST_FIRST
        return [p for p in self.policies(workload, num_ps) if p in (Policy.ROUND_ROBIN, other)]

    def policies(self, workload: Workload, num_ps: int) -> list[Policy]:
        """Those under which every server gets something: whole variables may be too few.

        Raises:
            UserError: there is none.
        """
        return [plan.policy for plan in self._possible_plans(workload, num_ps)]

    def _possible_plans(self, workload: Workload, num_ps: int) -> list[Plan]:
        split_bytes = self.split_bytes(workload, num_ps)
        return possible_plans(self.describe(workload), num_ps, split_bytes)

    def split_bytes(self, workload: Workload, num_ps: int) -> int:
        """Above so many bytes `partitioned` cuts a variable: as stated, or decided once."""
        if self.settings.split_bytes is not None:
            return self.settings.split_bytes
        return self.choices.decide(
            f"split_bytes of {workload.model.name} on {num_ps} servers",
            int,
            lambda: default_split_bytes(self.describe(workload), num_ps),
        )

    def servers_for(self, workers: int) -> int:
        """How many servers a study takes where the number is not varied.

        As stated; else as many as the hosts hold that are named for servers, or as workers.
        """
        return default_num_ps(self.settings, self.spread, self.num_ps_hosts) or workers

    def shipped_servers_for(self, workload: Workload, workers: int) -> int:
        """How many of TensorFlow's own servers: these cut no variable, so each needs a whole one.

        As stated, even where the variables are too few, which is told.
        """
        if self.settings.num_ps is not None:
            return self.settings.num_ps
        trained = sum(spec.trainable for spec in self.describe(workload))
        return max(1, min(self.servers_for(workers), trained))

    def has_room(self, workers: int, num_ps: int) -> bool:
        """More colocated servers than hosts of workers would only share these hosts' links."""
        layout = self.settings.layout or LayoutKind.COLOCATED
        if self.spread is None or layout.is_apart or self.settings.num_ps is not None:
            return True
        hosts = math.ceil(workers / self.spread.workers_per_host)
        return num_ps <= hosts * (self.spread.ps_per_host or 1)
