"""Plain TensorFlow as its tutorials write it: what people have who do not use the suite.

Decides which of TensorFlow's own settings such a training has, and which of its parts can be
altered, so that it is seen what each part of the suite brings.  Variables go where TensorFlow puts
them: round robin.  Its partitioners cannot be chosen, because Keras 3 does not know the variables
that they make (a `ShardedVariable` has no `handle`).

From there a ladder leads to the suite's defaults: one change per rung, which is compared with the
one before it.  A study decides at which points rungs are measured, and leaves out those that change
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from ps_allreduce.errors import UserError
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Device, Resources, Spread
from ps_allreduce.point.strategies.all_reduce import AllReduce
from ps_allreduce.point.strategies.base import Servers, Strategy, StrategySide
from ps_allreduce.point.strategies.stated import Altered, Embeddings, StrategySettings
from ps_allreduce.point.strategies.with_servers import AsynchronousServers, check_steps_per_dispatch
from ps_allreduce.point.wire import UNBUCKETED, Collective, Wire, carrier_of
from ps_allreduce.point.workload import Precision, Workload
from ps_allreduce.serialization import LATER

if TYPE_CHECKING:
    from ps_allreduce.point.experiment import Experiment
    from ps_allreduce.point.strategies import AnyStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock(Strategy):
    """What both kinds share: what can be altered, and what they cannot train.

    Attributes:
        altered: only nothing is as shipped.  The optimizer is applied by one operation to each
            variable; then batch norm's statistics, and all else that is not trained, stay on the
            worker, which changes nothing for models that have or compute no such thing.
    """

    as_shipped: ClassVar[bool] = True
    export_refusal: ClassVar[str] = (
        "of plain TensorFlow only its all-reduce is written, as it ships. Choose another setting; "
        "the tutorials of TensorFlow have this training."
    )

    altered: Altered = field(default=Altered.NOTHING, metadata=LATER)

    @classmethod
    def variants(cls) -> Sequence[StrategySettings]:
        """Every alteration."""
        return [StrategySettings(altered=each) for each in Altered]

    @property
    def is_altered(self) -> bool:
        """A part is done as the suite does it."""
        return self.altered is not Altered.NOTHING

    @classmethod
    def refusal(cls, workload: Workload) -> str:
        """Why TensorFlow as it ships does not train this as the suite does."""
        if workload.accumulation > 1:
            return (
                f"strategy {cls.kind} has no accumulation: Keras' own exchanges gradients after "
                f"every batch all the same. Leave accumulation {workload.accumulation} out."
            )
        if workload.precision is Precision.MIXED_FLOAT16:
            return (
                f"strategy {cls.kind} does not train in {workload.precision}: Keras adapts the "
                "scale of the loss and leaves out steps, and the suite does not. Use "
                f"{Precision.MIXED_BFLOAT16} or {Precision.FLOAT32}."
            )
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StockServers(Stock):
    """ParameterServerStrategy with a ClusterCoordinator, which is asynchronous.

    Attributes:
        steps_per_dispatch: a function that the coordinator schedules makes so many steps.
        join_rounds: the coordinator waits for all workers after as many functions as there are
            workers.  That averages nothing: each worker's gradients are applied on their own.
        embeddings: sparse ones look rows up by `tf.nn.embedding_lookup`; Keras' layers read whole
            tables.  Their gradients are of rows either way.
    """

    kind: ClassVar[str] = "stock_ps"
    label: ClassVar[str] = "TensorFlow's parameter servers as shipped, asynchronous"
    side: ClassVar[StrategySide] = StrategySide.SERVERS
    fixed: ClassVar[frozenset[str]] = frozenset({"placement", "split_bytes", "table_rows"})
    synchronous: ClassVar[bool] = False
    deals_steps: ClassVar[bool] = True

    servers: Servers = field(default_factory=Servers)
    steps_per_dispatch: int = 1
    join_rounds: bool = False
    embeddings: Embeddings = field(default=Embeddings.DENSE, metadata=LATER)

    @classmethod
    def variants(cls) -> Sequence[StrategySettings]:
        """Rows as well."""
        return [*Stock.variants(), StrategySettings(embeddings=Embeddings.SPARSE)]

    @property
    def is_sparse(self) -> bool:
        """Only the rows that a step looks up are fetched."""
        return self.embeddings is Embeddings.SPARSE

    def __post_init__(self) -> None:
        check_steps_per_dispatch(self.steps_per_dispatch)
        if self.servers.placement is not Policy.ROUND_ROBIN:
            raise UserError(f"strategy {self.kind} places variables {Policy.ROUND_ROBIN} only.")

    @property
    def steps_may_differ(self) -> bool:
        """The fastest worker makes the most steps; of a round, too, it may take two."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class StockAllReduce(Stock):
    """MultiWorkerMirroredStrategy, which is synchronous.

    Attributes:
        collective: AUTO is TensorFlow's default.
    """

    kind: ClassVar[str] = "stock_allreduce"
    label: ClassVar[str] = "TensorFlow's all-reduce as shipped"
    side: ClassVar[StrategySide] = StrategySide.ALL_REDUCE
    #: Keras sums all gradients in one pack.
    implied: ClassVar[Mapping[str, object]] = {"bytes_per_pack": 0, "host_aggregation": False}
    replicated: ClassVar[bool] = True
    export_refusal: ClassVar[str] = ""

    collective: Collective = Collective.AUTO

    def transport_on(self, device: Device) -> str:
        """That of the collective."""
        return carrier_of(self.collective, device)

    @property
    def packed_bytes(self) -> int | None:
        """One pack."""
        return 0

    def check_fits(self, num_workers: int, spread: Spread | None, resources: Resources) -> None:
        """NCCL is what AUTO takes on GPUs."""
        Strategy.check_fits(self, num_workers, spread, resources)
        if self.collective is Collective.NCCL:
            raise UserError(
                f"strategy {self.kind} uses collective {Collective.AUTO}, which takes NCCL where "
                f"it can, or {Collective.RING}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One step on the way.

    Attributes:
        name: what is changed, for figures.
        settings: by these it is told from the other rungs of its strategy.
    """

    name: str
    strategy: type[AnyStrategy]
    settings: StrategySettings

    def holds(self, point: Experiment) -> bool:
        """The point stands on this rung."""
        stated, columns = self.settings, point.columns()
        return isinstance(point.strategy, self.strategy) and all(
            columns.get(name) == getattr(stated, name) for name in stated.stated
        )


def _sizes(wire: Wire) -> StrategySettings:
    return StrategySettings(
        group_bytes=wire.group_bytes, cut_bytes=wire.cut_bytes, in_flight=wire.in_flight
    )


def _rungs(
    stock: type[AnyStrategy], own: type[AnyStrategy], name: str, unbucketed: StrategySettings
) -> tuple[Rung, ...]:
    """From a strategy of TensorFlow's to that of the suite in its place."""
    named = {
        "as shipped": Altered.NOTHING,
        "fused optimizer": Altered.OPTIMIZER,
        "statistics on the worker": Altered.STATISTICS,
    }
    limited = Wire()
    bucketed = replace(limited, in_flight=0)
    return (
        *(
            Rung(name=text, strategy=stock, settings=StrategySettings(altered=altered))
            for text, altered in named.items()
        ),
        Rung(name=name, strategy=own, settings=unbucketed),
        Rung(name="buckets", strategy=own, settings=_sizes(bucketed)),
        Rung(
            name=f"{limited.in_flight} messages in flight", strategy=own, settings=_sizes(limited)
        ),
    )


#: The rungs of each side, by its name.
LADDERS: Mapping[str, tuple[Rung, ...]] = {
    "parameter servers": _rungs(
        StockServers, AsynchronousServers, "the suite's step, unbucketed", _sizes(UNBUCKETED)
    ),
    "all-reduce": _rungs(
        StockAllReduce, AllReduce, "the suite's step, one pack", StrategySettings(bytes_per_pack=0)
    ),
}
