"""What every strategy has: traits, servers, the settings that it understands, and columns.

Decides how a strategy is made from settings that a user stated, and that a setting which a strategy
does not understand is refused.  Which settings there are for one strategy is decided by the fields
of its class; the two strategies in which no gradient leaves its worker have none, and stand here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Flag
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast, get_args, get_type_hints

from ps_allreduce.declared import typed
from ps_allreduce.errors import UserError
from ps_allreduce.exchange.stacking import RowRule, Stack
from ps_allreduce.point.placement import (
    DEFAULT_SPLIT_BYTES,
    Plan,
    Policy,
    VariableSpec,
    make_plan,
    servers_of_tables,
    without_tables,
)
from ps_allreduce.point.resources import Device, LayoutKind, Resources, Spread
from ps_allreduce.point.strategies.stated import DECLARATIONS, Embeddings, StrategySettings
from ps_allreduce.point.wire import TCP, UNBUCKETED, WIRE_SETTINGS, Wire, WireType, transport_text
from ps_allreduce.serialization import LATER, Columns

if TYPE_CHECKING:
    from ps_allreduce.point.workload import Workload


class StrategySide(Flag):
    """What carries gradients; strategies of two sides are compared, and a hybrid is on both."""

    NONE = 0
    SERVERS = 1
    ALL_REDUCE = 2
    HYBRID = SERVERS | ALL_REDUCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers(Columns):
    """Parameter servers, and where variables go.

    Attributes:
        num_ps: number of servers.
        split_bytes: variables above it are cut by the placement `partitioned`; None otherwise.
        table_rows: which server has which row of a table with sparse embeddings; None otherwise.
    """

    num_ps: int = 1
    placement: Policy = Policy.ROUND_ROBIN
    split_bytes: int | None = None
    layout: LayoutKind = LayoutKind.COLOCATED
    table_rows: RowRule | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        if not 1 <= self.num_ps <= 65535:
            raise UserError(f"num_ps must be 1 to 65535, got {self.num_ps}.")
        if (self.split_bytes is not None) != (self.placement is Policy.PARTITIONED):
            raise UserError("split_bytes belongs to the placement partitioned, and only to it.")
        if self.split_bytes is not None and self.split_bytes < 1:
            raise UserError(f"split_bytes must be at least 1, got {self.split_bytes}.")

    def plan(self, variables: Sequence[VariableSpec]) -> Plan:
        """Where variables go that are exchanged whole; `variables` are all of a model.

        Raises:
            UserError: some server would get nothing, no row of a table either.
        """
        split_bytes = self.split_bytes or DEFAULT_SPLIT_BYTES
        stack = self.stack(variables)
        if stack is None:
            return make_plan(self.placement, variables, self.num_ps, split_bytes)
        plan = make_plan(
            self.placement,
            without_tables(variables),
            self.num_ps,
            split_bytes,
            leaves_servers_empty=True,
        )
        held = zip(plan.shards_per_server(), stack.rows_by_server(), strict=True)
        used = sum(shards + rows > 0 for shards, rows in held)
        if used < self.num_ps:
            raise UserError(
                f"{self.num_ps} parameter servers but only {used} would hold a variable or a row "
                f"of a table (--table-rows {self.table_rows}, policy {self.placement}): choose "
                f"--num-ps up to {used}."
            )
        return plan

    def stack(self, variables: Sequence[VariableSpec]) -> Stack | None:
        """Where rows of tables are; None where tables are exchanged whole."""
        if self.table_rows is None:
            return None
        rows = tuple(spec.shape[0] for spec in variables if spec.is_table)
        at = servers_of_tables(self.placement, variables, self.num_ps)
        whole = tuple(at) if self.table_rows is RowRule.WHOLE else ()
        return Stack(rows=rows, num_servers=self.num_ps, rule=self.table_rows, servers=whole)


class Strategy(Columns):
    """One way to combine the workers' gradients.

    Attributes:
        kind: the name that users and records give the strategy.
        label: for figures and tables.
        side: what carries gradients.
        fixed: settings of its fields that cannot be stated.
        implied: columns that are the same whatever is stated.
        uses_servers: variables live on parameter servers, driven by a chief; otherwise every
            worker drives itself.  It follows from the side.
        uses_collective: gradients are combined by a collective of the workers; so does this.
        places_variables: a plan says which server has which variable; so does this.
        synchronous: all workers apply the same update in every step.
        deals_steps: a step goes to whichever worker is free, so workers may make different numbers.
        replicated: every worker ends with the same trainable weights of its own.
        as_shipped: TensorFlow as its tutorials write it, with Keras' optimizer and nothing of the
            suite's exchange: of a step of a real model only its begin and end are known.
        export_refusal: why no training of the user's own is written of it; empty if one is.  Every
            strategy says so itself, so that none is written as another one.
        max_workers: the largest number of workers; None for no bound.
        module: what an environment may lack and the strategy needs; None for nothing.
    """

    __slots__ = ()

    kind: ClassVar[str]
    kind_column: ClassVar[str | None] = "strategy"
    label: ClassVar[str]
    side: ClassVar[StrategySide] = StrategySide.NONE
    fixed: ClassVar[frozenset[str]] = frozenset()
    implied: ClassVar[Mapping[str, object]] = {}
    uses_servers: ClassVar[bool]
    uses_collective: ClassVar[bool]
    places_variables: ClassVar[bool]
    synchronous: ClassVar[bool] = True
    deals_steps: ClassVar[bool] = False
    replicated: ClassVar[bool] = False
    as_shipped: ClassVar[bool] = False
    export_refusal: ClassVar[str] = "it is compared and not written. Choose another setting."
    max_workers: ClassVar[int | None] = None
    module: ClassVar[str | None] = None

    def __init_subclass__(cls) -> None:
        cls.uses_servers = StrategySide.SERVERS in cls.side
        cls.uses_collective = StrategySide.ALL_REDUCE in cls.side
        cls.places_variables = cls.side is StrategySide.SERVERS

    @classmethod
    def understands(cls) -> frozenset[str]:
        """Names of the `StrategySettings` that it has."""
        return _names_in(cast(Any, cls)) - cls.fixed

    @classmethod
    def of(cls, settings: StrategySettings) -> Self:
        """The strategy with those settings.

        Raises:
            UserError: a setting is not one of this strategy's, or has no valid value.
        """
        known = ", ".join(map(typed, sorted(cls.understands())))
        for name in settings.stated:
            if name not in cls.understands():
                raise UserError(
                    f"strategy {cls.kind} has no setting {typed(name)}: leave it out. "
                    + (f"Its settings: {known}." if known else "It has no settings.")
                )
        return cls._made(settings)

    @classmethod
    def _made(cls, settings: StrategySettings) -> Self:
        """An instance; every stated setting is understood."""
        return cast(Self, settings.put_into(cast(Any, cls())))

    @classmethod
    def variants(cls) -> Sequence[StrategySettings]:
        """Settings that take ways of their own through the code: the gate trains each."""
        return [StrategySettings()]

    @classmethod
    def communicates(cls) -> bool:
        """Gradients leave the worker."""
        return cls.side is not StrategySide.NONE

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
    def is_sparse(self) -> bool:
        """Of tables only the rows that a step has looked up are exchanged."""
        return False

    @property
    def host_aggregation(self) -> bool:
        """Workers of one host send the mean of their gradients once."""
        return False

    @property
    def packed_bytes(self) -> int | None:
        """Of packs that a library makes of gradients, 0 for one pack; None where it makes none."""
        return None

    def transport_on(self, device: Device) -> str | None:
        """What carries the gradients, and as what if not float32; None where nothing is carried.

        TensorFlow's gRPC, if the strategy does not say otherwise.
        """
        gradients = self.wire.gradients if self.wire else WireType.FLOAT32
        return transport_text(TCP, gradients) if self.communicates() else None

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

    def check_trains(self, workload: Workload) -> None:
        """See that the strategy, as it is set, can train this.

        Raises:
            UserError: it cannot.
        """
        refusal = self.refusal(workload) or (workload.sparse_refusal() if self.is_sparse else "")
        if refusal:
            raise UserError(refusal)

    def columns(self) -> dict[str, object]:
        """The settings by the name of their column; those of other strategies are left out."""
        return {
            "num_ps": self.num_ps,
            "gradients_on_wire": WireType.FLOAT32.value if self.communicates() else None,
            **self.implied,
            **Columns.columns(self),
        }

    def title_parts(self) -> list[str]:
        """What a short line says: servers, placement, and what else is not at its default."""
        usual, known = type(self)(), self.understands() - {"split_bytes"}
        values = {name: value_of(name, self) for name in DECLARATIONS if name in known}
        told = {
            name: DECLARATIONS[name].phrase(name, value)
            for name, value in values.items()
            if name in ("num_ps", "placement") or value != value_of(name, usual)
        }
        if self.wire == UNBUCKETED:
            told |= {**dict.fromkeys(WIRE_SETTINGS, ""), "group_bytes": "unbucketed"}
        return [part for part in told.values() if part]

    def __str__(self) -> str:
        return self.kind


@cache
def _names_in(kind: Any) -> frozenset[str]:
    """The fields of a dataclass, and in the place of those that are dataclasses, or one of several,
    the fields of these.
    """
    names: set[str] = set()
    hints = get_type_hints(kind)
    for each in fields(kind):
        hint = hints[each.name]
        inside = [one for one in (hint, *get_args(hint)) if is_dataclass(one)]
        names |= (
            set[str]().union(*(_names_in(cast(Any, one)) for one in inside))
            if inside
            else {each.name}
        )
    return frozenset(names)


def value_of(name: str, settings: Any) -> object:
    """The field of that name of a dataclass, however deep; None if there is none."""
    inside = [getattr(settings, each.name) for each in fields(settings)]
    if name in (each.name for each in fields(settings)):
        return getattr(settings, name)
    found = (value_of(name, each) for each in inside if is_dataclass(each))
    return next((each for each in found if each is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookingUp(Strategy):
    """A strategy that can exchange rows of tables alone."""

    embeddings: Embeddings = field(default=Embeddings.DENSE, metadata=LATER)

    @classmethod
    def variants(cls) -> Sequence[StrategySettings]:
        """Whole tables, and rows."""
        return [StrategySettings(), StrategySettings(embeddings=Embeddings.SPARSE)]

    @property
    def is_sparse(self) -> bool:
        """Of tables only the rows that a step has looked up are exchanged."""
        return self.embeddings is Embeddings.SPARSE

    def _check_wire_of_rows(self) -> None:
        """Rows travel in float32, and so do the gradients beside them.

        Raises:
            UserError: others are to travel in 16 bits.
        """
        if self.is_sparse and self.wire and self.wire.gradients is not WireType.FLOAT32:
            raise UserError(
                f"rows of tables travel in {WireType.FLOAT32}: leave --gradients "
                f"{self.wire.gradients} or --embeddings sparse out."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Single(LookingUp):
    """One worker, without any strategy of TensorFlow's."""

    kind: ClassVar[str] = "single"
    label: ClassVar[str] = "single worker, no strategy"
    export_refusal: ClassVar[str] = ""
    max_workers: ClassVar[int | None] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCommunication(LookingUp):
    """Workers that each train for themselves: the upper bound of every strategy."""

    kind: ClassVar[str] = "no_communication"
    label: ClassVar[str] = "no communication (upper bound)"
    export_refusal: ClassVar[str] = "these workers do not train one model. Choose another setting."
    synchronous: ClassVar[bool] = False
