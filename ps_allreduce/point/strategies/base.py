"""What every strategy has: traits, the settings that it understands, and columns.

Decides how a strategy is made from settings that a user stated, and that a setting which a strategy
does not understand is refused.  Which settings there are for one strategy is decided in its class;
the two strategies in which no gradient leaves its worker have none, and stand here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

from ps_allreduce.errors import UserError
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import LayoutKind, Resources, Spread
from ps_allreduce.point.wire import Collective, Wire, WireType

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from ps_allreduce.point.workload import Workload

DataclassT = TypeVar("DataclassT", bound="DataclassInstance")


class Altered(StrEnum):
    """What of plain TensorFlow is done as the suite does it; each holds those before it."""

    NOTHING = "nothing"
    OPTIMIZER = "optimizer"
    STATISTICS = "statistics"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySettings:
    """Everything that can be stated about some strategy; None leaves a setting at its default.

    The names are those of the command line (`--num-ps`) and of the columns of results.
    """

    num_ps: int | None = None
    placement: Policy | None = None
    layout: LayoutKind | None = None
    split_bytes: int | None = None
    group_bytes: int | None = None
    cut_bytes: int | None = None
    in_flight: int | None = None
    gradients: WireType | None = None
    host_aggregation: bool | None = None
    staleness: int | None = None
    steps_per_dispatch: int | None = None
    join_rounds: bool | None = None
    collective: Collective | None = None
    bytes_per_pack: int | None = None
    altered: Altered | None = None
    fusion_bytes: int | None = None
    cycle_ms: float | None = None

    @property
    def stated(self) -> tuple[str, ...]:
        """The names of the settings that are stated."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name) is not None)

    def without(self, names: Collection[str]) -> StrategySettings:
        """The same with some settings at their default."""
        return replace(self, **dict.fromkeys(names))

    def only(self, names: Collection[str]) -> StrategySettings:
        """Some of the settings, the others at their default."""
        return self.without([name for name in self.stated if name not in names])

    def changed_by(self, other: StrategySettings) -> StrategySettings:
        """The same, with what another states in the place of it."""
        return replace(self, **{name: getattr(other, name) for name in other.stated})

    def put_into(self, default: DataclassT) -> DataclassT:
        """The same value, with what is stated in the place of its fields of these names.

        Raises:
            UserError: the value refuses it.
        """
        names = {each.name for each in fields(default)} & set(self.stated)
        return replace(default, **{name: getattr(self, name) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Parameter servers, and where variables go.

    Attributes:
        num_ps: number of servers.
        split_bytes: variables above it are cut by the placement `partitioned`; None otherwise.
    """

    num_ps: int = 1
    placement: Policy = Policy.ROUND_ROBIN
    split_bytes: int | None = None
    layout: LayoutKind = LayoutKind.COLOCATED

    def __post_init__(self) -> None:
        if not 1 <= self.num_ps <= 65535:
            raise UserError(f"num_ps must be 1 to 65535, got {self.num_ps}.")
        if (self.split_bytes is not None) != (self.placement is Policy.PARTITIONED):
            raise UserError("split_bytes belongs to the placement partitioned, and only to it.")
        if self.split_bytes is not None and self.split_bytes < 1:
            raise UserError(f"split_bytes must be at least 1, got {self.split_bytes}.")


class Strategy:
    """One way to combine the workers' gradients.

    Attributes:
        kind: the name that users and records give the strategy.
        label: for figures and tables.
        understands: names of the `StrategySettings` that it has.
        uses_servers: variables live on parameter servers, driven by a chief; otherwise every
            worker drives itself.
        uses_collective: gradients are combined by a collective of the workers.
        synchronous: all workers apply the same update in every step.
        deals_steps: a step goes to whichever worker is free, so workers may make different numbers.
        replicated: every worker ends with the same trainable weights of its own.
        as_shipped: TensorFlow as its tutorials write it, with Keras' optimizer and nothing of the
            suite's exchange: of a step of a real model only its begin and end are known.
        max_workers: the largest number of workers; None for no bound.
        module: what an environment may lack and the strategy needs; None for nothing.
    """

    __slots__ = ()

    kind: ClassVar[str]
    label: ClassVar[str]
    understands: ClassVar[frozenset[str]] = frozenset()
    uses_servers: ClassVar[bool] = False
    uses_collective: ClassVar[bool] = False
    synchronous: ClassVar[bool] = True
    deals_steps: ClassVar[bool] = False
    replicated: ClassVar[bool] = False
    as_shipped: ClassVar[bool] = False
    max_workers: ClassVar[int | None] = None
    module: ClassVar[str | None] = None

    @classmethod
    def of(cls, settings: StrategySettings) -> Self:
        """The strategy with those settings.

        Raises:
            UserError: a setting is not one of this strategy's, or has no valid value.
        """
        known = ", ".join(sorted(cls.understands))
        for name in settings.stated:
            if name not in cls.understands:
                raise UserError(
                    f"strategy {cls.kind} has no setting {name}: leave it out "
                    f"(--{name.replace('_', '-')}). "
                    + (f"Its settings: {known}." if known else "It has no settings.")
                )
        return cls._made(settings)

    @classmethod
    def _made(cls, settings: StrategySettings) -> Self:
        """An instance; every stated setting is understood."""
        return cls()

    @classmethod
    def communicates(cls) -> bool:
        """Gradients leave the worker."""
        return cls.uses_servers or cls.uses_collective

    @property
    def servers(self) -> Servers | None:
        """Parameter servers; None without them."""
        return None

    @property
    def num_ps(self) -> int:
        """Number of parameter servers."""
        return 0 if self.servers is None else self.servers.num_ps

    @property
    def wire(self) -> Wire | None:
        """How gradients travel in buckets; None where nothing travels, or not in buckets."""
        return None

    @property
    def steps_may_differ(self) -> bool:
        """Workers may end with different numbers of steps."""
        return False

    @property
    def is_altered(self) -> bool:
        """Plain TensorFlow with a part of the suite's, which is not as shipped any more."""
        return False

    @property
    def host_aggregation(self) -> bool:
        """Workers of one host send the mean of their gradients once."""
        return False

    @property
    def transport(self) -> str | None:
        """What carries the gradients, and as what if not float32; None where nothing is carried."""
        return None

    def check_fits(self, num_workers: int, spread: Spread | None, resources: Resources) -> None:
        """See that the strategy can run on so many workers, spread and equipped like this.

        Raises:
            UserError: it cannot.
        """
        if self.max_workers is not None and num_workers > self.max_workers:
            raise UserError(
                f"strategy {self.kind} runs on {self.max_workers} worker, got num_workers "
                f"{num_workers}."
            )

    @classmethod
    def refusal(cls, workload: Workload) -> str:
        """Why the strategy cannot train this, in a sentence; empty if it can."""
        return ""

    def columns(self) -> dict[str, object]:
        """The settings by the name of their column; those of other strategies are left out."""
        return {
            "strategy": self.kind,
            "num_ps": self.num_ps,
            "transport": self.transport,
            "gradients_on_wire": WireType.FLOAT32.value if self.communicates() else None,
        }

    def title_parts(self) -> list[str]:
        """What a short line says about the settings: the number of servers, and what is changed."""
        return []

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Single(Strategy):
    """One worker, without any strategy of TensorFlow's."""

    kind: ClassVar[str] = "single"
    label: ClassVar[str] = "single worker, no strategy"
    max_workers: ClassVar[int | None] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCommunication(Strategy):
    """Workers that each train for themselves: the upper bound of every strategy."""

    kind: ClassVar[str] = "no_communication"
    label: ClassVar[str] = "no communication (upper bound)"
    synchronous: ClassVar[bool] = False
