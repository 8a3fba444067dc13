"""Settings: the ways to train that a case compares, and how they are called.

Decides what makes two points one setting at different numbers of workers, and that a label says
only what tells a setting from its rivals.  What may be compared at all is decided in `points`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any

from ps_allreduce.point.experiment import Collective, Experiment
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.spread import Coordinator, LayoutKind
from ps_allreduce.point.strategies import TRAITS, Strategy, StrategyTraits
from ps_allreduce.point.wire import STOCK, Wire, WireType

#: What can be set of messages, and of strategies that deal steps, with its default.
_WIRE = {each.name: getattr(Wire(), each.name) for each in fields(Wire)}
_DEALING = {"staleness": None, "steps_per_dispatch": 1}

#: Everything that can be set about the exchange of gradients, in the order in which it is sorted.
_EXCHANGE: dict[str, object] = {"bytes_per_pack": None, **_WIRE, **_DEALING}

#: What makes messages those of TensorFlow itself.
_STOCK = {"group_bytes", "cut_bytes", "in_flight"}

#: How the setting is called that leaves at its default whatever differs among its rivals.
DEFAULTS = "defaults"

#: More settings than this cannot be told apart in one axes.
MAX_TOGETHER = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A way to train, whatever the number of workers.

    Attributes:
        num_ps: None where the number of servers follows the number of workers.
        split_bytes: None where it follows the number of servers.
        ps_per_host, coordinator: of the spread; None where all tasks share one host.
        bytes_per_pack: of TensorFlow's own packs; None sends buckets as `wire` says.
        label: short, and different from that of every other setting of its case.
        variant: the label without strategy and number of servers, for figures that show those
            otherwise.
        exchange: the part of the label that is about the exchange of gradients.
    """

    strategy: Strategy
    num_ps: int | None
    placement: Policy | None
    split_bytes: int | None
    layout: LayoutKind | None
    ps_per_host: int | None
    coordinator: Coordinator | None
    collective: Collective | None
    bytes_per_pack: int | None
    wire: Wire
    staleness: int | None
    steps_per_dispatch: int
    label: str
    variant: str
    exchange: str

    @property
    def traits(self) -> StrategyTraits:
        """What sets its strategy apart."""
        return TRAITS[self.strategy]


def settings_of(experiments: Sequence[Experiment]) -> list[Setting]:
    """The setting of each of a case's experiments."""
    follows = _servers_follow_workers(experiments)
    return [_setting(own, experiments, follows) for own in experiments]


def _setting(own: Experiment, experiments: Sequence[Experiment], follows: bool) -> Setting:
    rivals = [other for other in experiments if other.strategy is own.strategy]
    counted = own.traits.uses_servers and not follows and _vary(rivals, "num_ps")
    exchange = _exchange_parts(own, rivals)
    variant = [*_variant(own, rivals), *exchange]
    parts = [str(own.strategy), *variant[:1], *([f"{own.num_ps} ps"] * counted), *variant[1:]]
    return Setting(
        strategy=own.strategy,
        num_ps=None if follows else own.num_ps,
        placement=own.placement,
        split_bytes=own.split_bytes if _splits_differ(own, rivals) else None,
        layout=own.layout,
        ps_per_host=_of_spread(own, "ps_per_host"),
        coordinator=_of_spread(own, "coordinator"),
        collective=own.collective,
        bytes_per_pack=own.bytes_per_pack,
        wire=own.wire,
        staleness=own.staleness,
        steps_per_dispatch=own.steps_per_dispatch,
        label=", ".join(parts),
        variant=", ".join(variant),
        exchange=", ".join(exchange),
    )


def _servers_follow_workers(experiments: Sequence[Experiment]) -> bool:
    """Every number of workers has one number of servers, so that is no setting of its own."""
    with_servers = sorted(
        (own.num_workers, own.num_ps) for own in experiments if own.traits.uses_servers
    )
    grouped = groupby(with_servers, key=lambda pair: pair[0])
    counts = [{num_ps for _, num_ps in pairs} for _, pairs in grouped]
    return all(len(found) == 1 for found in counts) and len(set().union(*counts)) > 1


def _variant(own: Experiment, rivals: Sequence[Experiment]) -> list[str]:
    """The placement, and whatever else differs between the settings of one strategy."""
    parts = [str(own.placement)] if own.placement is not None else []
    if own.layout is not None and _vary(rivals, "layout"):
        parts.append(str(own.layout))
    if own.split_bytes is not None and _splits_differ(own, rivals):
        parts.append(f"split {_megabytes(own.split_bytes)}")
    parts += _spread_parts(own, rivals)
    if own.collective is not None and _vary(rivals, "collective"):
        parts.append(str(own.collective))
    return parts


def _splits_differ(own: Experiment, rivals: Sequence[Experiment]) -> bool:
    """On equally many servers; the usual threshold follows the number of servers."""
    found = {other.split_bytes for other in rivals if other.num_ps == own.num_ps}
    return len(found - {None}) > 1


def _exchange_parts(own: Experiment, rivals: Sequence[Experiment]) -> list[str]:
    """How it exchanges gradients, as far as that differs among its rivals.

    Where one thing differs it is stated.  Where several do, as in a sweep that tunes one at a time,
    only what is not at its default: everything else would be said in every label.
    """
    everyone = [exchange_of(other) for other in rivals]
    mine = exchange_of(own)
    differing = [name for name in _EXCHANGE if len(_values(name, everyone)) > 1]
    if len(differing) > 1:
        differing = [name for name in differing if name in mine and mine[name] != _EXCHANGE[name]]
        if not differing:
            return [DEFAULTS]
    if sends_buckets(own) and own.wire == STOCK and set(differing) & _STOCK:
        return ["stock messages", *_dealing_parts(own, differing)]
    packs = [pack_label(own.bytes_per_pack)] if "bytes_per_pack" in differing else []
    wire = _wire_parts(own.wire, differing) if sends_buckets(own) else []
    return [*packs, *wire, *_dealing_parts(own, differing)]


def _values(name: str, exchanges: Sequence[Mapping[str, object]]) -> set[object]:
    return {one[name] for one in exchanges if name in one}


def exchange_of(own: Experiment) -> dict[str, object]:
    """Everything that is set about the exchange and counts for this experiment, by name."""
    wire = {name: getattr(own.wire, name) for name in _WIRE if sends_buckets(own)}
    packs = {"bytes_per_pack": own.bytes_per_pack} if own.traits.uses_collective else {}
    dealing = {name: getattr(own, name) for name in _DEALING if own.traits.deals_steps}
    return {**packs, **wire, **dealing}


def exchange_order(own: Experiment) -> tuple[tuple[int, float], ...]:
    """Sorts the defaults first, then one thing after the other, each by its value."""
    mine = exchange_of(own)
    return tuple(
        (number, _rank(name, mine[name]))
        for number, (name, default) in enumerate(_EXCHANGE.items())
        if name in mine and mine[name] != default
    )


def _rank(name: str, value: object) -> float:
    """By size; 0 is no limit but of groups, and number formats are as they are listed."""
    if isinstance(value, WireType):
        return float(list(WireType).index(value))
    if value == 0 and name != "group_bytes":
        return math.inf
    return float(value) if isinstance(value, int) else math.inf


def sends_buckets(own: Experiment) -> bool:
    """Messages are those of `wire`, and not TensorFlow's own packs."""
    return own.traits.communicates and own.bytes_per_pack is None


def _wire_parts(wire: Wire, differing: Sequence[str]) -> list[str]:
    parts = _size_parts(wire, "group_bytes" in differing, "cut_bytes" in differing)
    if "in_flight" in differing:
        parts.append(f"{wire.in_flight or 'all'} in flight")
    if "gradients" in differing:
        parts.append(f"{wire.gradients} gradients")
    if "host_aggregation" in differing:
        parts.append(f"sent per {'host' if wire.host_aggregation else 'worker'}")
    return parts


def _size_parts(wire: Wire, group: bool, cut: bool) -> list[str]:
    """Sizes of messages, as far as they differ."""
    if group and cut and wire.group_bytes == wire.cut_bytes:
        return [
            f"{_megabytes(wire.group_bytes)} messages" if wire.group_bytes else "single tensors"
        ]
    parts = []
    if group:
        parts.append(
            f"groups of {_megabytes(wire.group_bytes)}" if wire.group_bytes else "ungrouped"
        )
    if cut:
        parts.append(f"cut at {_megabytes(wire.cut_bytes)}" if wire.cut_bytes else "uncut")
    return parts


def _dealing_parts(own: Experiment, differing: Sequence[str]) -> list[str]:
    parts = []
    if "staleness" in differing:
        parts.append(f"staleness {'unbounded' if own.staleness is None else own.staleness}")
    if "steps_per_dispatch" in differing:
        count = own.steps_per_dispatch
        parts.append(f"{count} step{'s' * (count != 1)} per dispatch")
    return parts


def _spread_parts(own: Experiment, rivals: Sequence[Experiment]) -> list[str]:
    found = {
        name: _of_spread(own, name)
        for name in ("ps_per_host", "coordinator")
        if len({_of_spread(other, name) for other in rivals}) > 1
    }
    parts = []
    if "ps_per_host" in found:
        parts.append(f"{found['ps_per_host'] or 'usual'} ps per host")
    if "coordinator" in found:
        parts.append(f"coordinator {found['coordinator']}")
    return parts


def _of_spread(own: Experiment, name: str) -> Any:
    return None if own.spread is None else getattr(own.spread, name)


def _vary(rivals: Sequence[Experiment], name: str) -> bool:
    return len({getattr(other, name) for other in rivals}) > 1


def pack_label(bytes_per_pack: int | None) -> str:
    """How a pack size is written; 0 is one pack for all gradients, None is buckets instead."""
    if bytes_per_pack is None:
        return "buckets"
    return f"{_megabytes(bytes_per_pack)} packs" if bytes_per_pack else "one pack"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:g} MB"
