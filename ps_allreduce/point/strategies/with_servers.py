"""Strategies with parameter servers: gradients are applied where the variables live.

A hybrid has servers for tables alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

from ps_allreduce.errors import UserError, at_least
from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.point.placement import DEFAULT_SPLIT_BYTES, Policy
from ps_allreduce.point.resources import Resources, Spread, workers_together
from ps_allreduce.point.strategies.base import LookingUp, Servers, Strategy, StrategySide
from ps_allreduce.point.strategies.stated import Embeddings, StrategySettings
from ps_allreduce.point.wire import Wire
from ps_allreduce.serialization import LATER

if TYPE_CHECKING:
    from ps_allreduce.point.workload import Workload


#: Every way to put rows on servers.
_ROWS = tuple(StrategySettings(embeddings=Embeddings.SPARSE, table_rows=each) for each in RowRule)

#: More would only make a run's last dispatch longer than its window.
MOST_STEPS_PER_DISPATCH = 16


def check_steps_per_dispatch(steps: int) -> None:
    """Refuse what no dispatch can hold.

    Raises:
        UserError: it is too many, or none.
    """
    if not 1 <= steps <= MOST_STEPS_PER_DISPATCH:
        raise UserError(f"steps_per_dispatch must be 1 to {MOST_STEPS_PER_DISPATCH}, got {steps}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterServers(LookingUp):
    """What both kinds share: where variables live, and how gradients travel there."""

    side: ClassVar[StrategySide] = StrategySide.SERVERS
    implied: ClassVar[Mapping[str, object]] = {"host_aggregation": False}

    servers: Servers = field(default_factory=Servers)
    wire: Wire = field(default_factory=Wire)

    @classmethod
    def variants(cls) -> Sequence[StrategySettings]:
        """Every placement, of variables and of rows."""
        return [*(StrategySettings(placement=each) for each in Policy), *_ROWS]

    @classmethod
    def _made(cls, settings: StrategySettings) -> Self:
        """`split_bytes` counts for the placement `partitioned` only."""
        split_bytes = DEFAULT_SPLIT_BYTES if settings.split_bytes is None else settings.split_bytes
        is_cut = settings.placement is Policy.PARTITIONED
        settings = replace(settings, split_bytes=split_bytes if is_cut else None)
        if settings.embeddings is Embeddings.SPARSE and settings.table_rows is None:
            settings = replace(settings, table_rows=RowRule.MODULO)
        return settings.put_into(cls())

    def __post_init__(self) -> None:
        self._check_wire_of_rows()
        if (self.servers.table_rows is not None) != self.is_sparse:
            raise UserError("table_rows belongs to sparse embeddings, and only to them.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AsynchronousServers(ParameterServers):
    """Every worker's gradients are applied on their own, when they come.

    Attributes:
        staleness: no worker begins a step before every other one has ended all but so many of its
            steps, nor with values that lack those; None is no bound.  0 would be synchronous.
        steps_per_dispatch: a worker makes so many steps in one go.
        synchronous_steps: the first steps of every worker, in which the mean of all gradients is
            applied as synchronous servers do it.
    """

    kind: ClassVar[str] = "ps_async"
    label: ClassVar[str] = "parameter servers, asynchronous"
    synchronous: ClassVar[bool] = False
    deals_steps: ClassVar[bool] = True
    export_refusal: ClassVar[str] = ""

    staleness: int | None = None
    steps_per_dispatch: int = 1
    synchronous_steps: int = field(default=0, metadata=LATER)

    def __post_init__(self) -> None:
        ParameterServers.__post_init__(self)
        check_steps_per_dispatch(self.steps_per_dispatch)
        at_least(0, synchronous_steps=self.synchronous_steps)
        if self.staleness is None:
            return
        if self.staleness == 0:
            raise UserError("staleness 0 is synchronous: use strategy ps_sync.")
        at_least(1, staleness=self.staleness)
        if self.staleness < self.steps_per_dispatch:
            raise UserError(
                f"a staleness of {self.staleness} leaves no room for {self.steps_per_dispatch} "
                f"steps per dispatch: no worker could ever begin. Use a staleness of "
                f"{self.steps_per_dispatch} or more, and of {2 * self.steps_per_dispatch - 1} for "
                "workers to overlap."
            )

    @property
    def steps_may_differ(self) -> bool:
        """Without a bound, the fastest worker makes the most steps."""
        return self.staleness is None


@dataclass(frozen=True, slots=True, kw_only=True)
class SynchronousServers(ParameterServers):
    """The mean of all workers' gradients is applied, and every worker waits for it.

    Attributes:
        host_aggregation: workers of one host send the mean of their gradients once, and fetch new
            values once (what tf_cnn_benchmarks called distributed_replicated).
    """

    kind: ClassVar[str] = "ps_sync"
    label: ClassVar[str] = "parameter servers, synchronous"
    export_refusal: ClassVar[str] = ""
    #: Nobody is ever a step ahead.
    implied: ClassVar[Mapping[str, object]] = {"staleness": 0}

    host_aggregation: bool = False

    @classmethod
    def variants(cls) -> Sequence[StrategySettings]:
        """Aggregation on hosts as well."""
        adding_up = StrategySettings(placement=Policy.PARTITIONED, host_aggregation=True)
        return [*ParameterServers.variants(), adding_up]

    def __post_init__(self) -> None:
        ParameterServers.__post_init__(self)
        if self.host_aggregation and self.is_sparse:
            raise UserError(
                "host_aggregation adds up whole gradients: leave it or --embeddings sparse out."
            )

    def check_fits(self, num_workers: int, spread: Spread | None, resources: Resources) -> None:
        """Aggregation on hosts needs several workers on every host, and equally many."""
        Strategy.check_fits(self, num_workers, spread, resources)
        if not self.host_aggregation:
            return
        together = workers_together(num_workers, spread)
        if num_workers % together:
            raise UserError(
                "--host-aggregation needs equally many workers on every host: "
                f"{num_workers} is no multiple of the {together} that a host has."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid(LookingUp):
    """Rows of tables are on servers; all other gradients are averaged by the workers' ring.

    Both are synchronous (Kim et al., "Parallax: Sparsity-aware Data Parallel Training of Deep
    Neural Networks", EuroSys 2019).
    """

    kind: ClassVar[str] = "hybrid"
    label: ClassVar[str] = "hybrid: tables on servers, the rest by all-reduce"
    side: ClassVar[StrategySide] = StrategySide.HYBRID
    export_refusal: ClassVar[str] = (
        "a hybrid is compared and not written. Choose a setting of servers or of all-reduce."
    )
    fixed: ClassVar[frozenset[str]] = frozenset({"placement", "split_bytes"})
    implied: ClassVar[Mapping[str, object]] = {"staleness": 0, "host_aggregation": False}

    embeddings: Embeddings = Embeddings.SPARSE
    servers: Servers = field(default_factory=lambda: Servers(table_rows=RowRule.MODULO))
    wire: Wire = field(default_factory=Wire)

    def __post_init__(self) -> None:
        if not self.is_sparse:
            raise UserError(
                f"strategy {self.kind} has rows of tables on servers: leave --embeddings "
                f"{self.embeddings} out."
            )

    @classmethod
    def variants(cls) -> Sequence[StrategySettings]:
        """Every placement of rows."""
        return _ROWS

    @classmethod
    def refusal(cls, workload: Workload) -> str:
        """Why there are no rows to be put on servers."""
        return workload.sparse_refusal()

    def columns(self) -> dict[str, object]:
        """Without a placement: servers hold no whole variables."""
        return {**LookingUp.columns(self), "placement": None}
