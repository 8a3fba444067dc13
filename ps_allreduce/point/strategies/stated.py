"""What a user may state about a strategy: one declaration of each setting.

Options of the command line, their help, the columns of results, labels and titles follow from it.
Which strategy understands which setting is decided by the fields of the strategies (`base`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ps_allreduce.declared import DECLARED, Declared, setting
from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.point.placement import DEFAULT_SPLIT_BYTES, Policy
from ps_allreduce.point.resources import LayoutKind
from ps_allreduce.point.wire import Collective, WireType

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

DataclassT = TypeVar("DataclassT", bound="DataclassInstance")


class Altered(StrEnum):
    """What of plain TensorFlow is done as the suite does it; each holds those before it."""

    NOTHING = "nothing"
    OPTIMIZER = "optimizer"
    STATISTICS = "statistics"


class Embeddings(StrEnum):
    """What is exchanged of a table: all of it, or the rows that a step has looked up."""

    DENSE = "dense"
    SPARSE = "sparse"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySettings:
    """Everything that can be stated about some strategy; None leaves a setting at its default.

    The names are those of the command line (`--num-ps`) and of the columns of results.  Help begins
    with the strategies that understand a setting, and ends with the default that these declare.
    """

    num_ps: int | None = setting(
        "parameter servers.", usual=True, instead="", said="{} ps", exchange=False
    )
    placement: Policy | None = setting(
        "place of variables on servers.", usual=True, said="{}", exchange=False
    )
    layout: LayoutKind | None = setting(
        "servers beside workers, or on other hosts.", usual=True, said="{}", exchange=False
    )
    split_bytes: int | None = setting(
        "the placement partitioned cuts larger variables.",
        unit="size",
        instead=f"{DEFAULT_SPLIT_BYTES // 10**6}MB, less for small models",
        said="split {}",
        exchange=False,
    )
    group_bytes: int | None = setting(
        "most bytes of tensors that share a message; 0: none share.",
        unit="size",
        said="groups of {}",
        named={0: "ungrouped"},
    )
    cut_bytes: int | None = setting(
        "size of the messages into which larger tensors are cut; 0: never.",
        unit="size",
        said="cut at {}",
        named={0: "uncut"},
    )
    in_flight: int | None = setting(
        "messages in flight at once; 0: no bound.", said="{} in flight", named={0: "all in flight"}
    )
    gradients: WireType | None = setting("format on the wire.", said="{} gradients")
    host_aggregation: bool | None = setting(
        "workers of one host send one mean gradient.",
        named={True: "sent per host", False: "sent per worker"},
    )
    staleness: int | None = setting(
        "steps that a worker may be ahead.",
        instead="no bound",
        said="staleness of {} steps",
        named={1: "staleness of 1 step", None: "staleness unbounded"},
    )
    steps_per_dispatch: int | None = setting(
        "steps that a worker makes in one call.",
        said="{} steps per dispatch",
        named={1: "1 step per dispatch"},
    )
    synchronous_steps: int | None = setting(
        "a worker's first steps that are synchronous.",
        said="synchronous for {} steps",
        named={1: "synchronous for 1 step"},
    )
    join_rounds: bool | None = setting(
        "wait for all workers after every round of steps.",
        named={True: "joined rounds", False: "not joined"},
    )
    collective: Collective | None = setting(
        "algorithm of the collective.", instead="ring; as shipped auto", said="{}", exchange=False
    )
    bytes_per_pack: int | None = setting(
        "TensorFlow's packs, not buckets; 0: one pack.",
        unit="size",
        said="{} packs",
        named={0: "one pack", None: "buckets"},
    )
    altered: Altered | None = setting(
        "parts that are replaced by the suite's.",
        named={Altered.NOTHING: "as shipped"},
        exchange=False,
    )
    fusion_bytes: int | None = setting(
        "most bytes of gradients that travel together; 0: each alone.",
        unit="size",
        said="fusion of {}",
        named={0: "no fusion"},
    )
    cycle_ms: float | None = setting(
        "time between two checks for ready gradients.", unit="ms", said="cycles of {:g} ms"
    )
    embeddings: Embeddings | None = setting(
        "exchange whole tables, or only the rows looked up.",
        instead="dense; compare has both",
        said="{} embeddings",
        exchange=False,
    )
    table_rows: RowRule | None = setting(
        "rows of tables on servers, with sparse embeddings.",
        instead=RowRule.MODULO,
        said="rows by {}",
        named={RowRule.MODULO: "", RowRule.WHOLE: "whole tables"},
        exchange=False,
    )

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
        """The same value, with what is stated in the place of fields of these names, however deep.

        Raises:
            UserError: the value refuses it.
        """
        stated = set(self.stated)
        changed: dict[str, Any] = {}
        for name in (each.name for each in fields(default)):
            inside = getattr(default, name)
            if name in stated:
                changed[name] = getattr(self, name)
            elif is_dataclass(inside):
                changed[name] = self.put_into(cast(Any, inside))
        return replace(default, **changed)


#: What every setting says of itself, in their order.
DECLARATIONS: Mapping[str, Declared] = {
    each.name: each.metadata[DECLARED] for each in fields(StrategySettings)
}
