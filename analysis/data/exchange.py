"""How gradients are exchanged, and how that is called.

Decides which columns are about the exchange, which of them count for an experiment, and their
order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from ps_allreduce.point.strategies import STRATEGIES
from ps_allreduce.point.wire import UNBUCKETED, Wire, WireType

#: What can be set about messages, with its default.
_MESSAGES: Mapping[str, object] = {**Wire().columns(), "host_aggregation": False}

#: Everything that can be set about the exchange of gradients, in the order in which it is sorted.
EXCHANGE: Mapping[str, object] = {
    "bytes_per_pack": None,
    **_MESSAGES,
    "staleness": None,
    "steps_per_dispatch": 1,
}

#: What makes messages those of the suite's step without buckets.
_SIZES = {name: UNBUCKETED.columns()[name] for name in ("group_bytes", "cut_bytes", "in_flight")}

#: How the setting is called that leaves at its default whatever differs among its rivals.
DEFAULTS = "defaults"


def exchange_of(own: pd.Series) -> dict[str, object]:
    """Everything that is set about the exchange and counts for this experiment, by column.

    Args:
        own: what was asked for, None where nothing was.
    """
    traits = STRATEGIES[own["strategy"]]
    counting = ["bytes_per_pack"] if traits.uses_collective else []
    counting += _MESSAGES if sends_buckets(own) else []
    counting += ["staleness", "steps_per_dispatch"] if traits.deals_steps else []
    return {name: own[name] for name in counting}


def sends_buckets(own: pd.Series) -> bool:
    """Messages are those that a wire describes, and not TensorFlow's own packs."""
    return own["group_bytes"] is not None


def exchange_order(own: pd.Series) -> tuple[tuple[int, float], ...]:
    """Sorts the defaults first, then one thing after the other, each by its value."""
    counting = exchange_of(own)
    return tuple(
        (number, _rank(name, counting[name]))
        for number, (name, default) in enumerate(EXCHANGE.items())
        if name in counting and counting[name] != default
    )


def _rank(name: str, value: object) -> float:
    """By size; 0 is no limit but of groups, and number formats are as they are listed."""
    if name == "gradients_on_wire":
        return float(list(WireType).index(WireType(str(value))))
    if value == 0 and name != "group_bytes":
        return math.inf
    return float(value) if isinstance(value, int) else math.inf


def exchange_parts(own: pd.Series, exchanges: Sequence[Mapping[str, object]]) -> list[str]:
    """How it exchanges gradients, as far as that differs among its rivals.

    Where one thing differs it is stated.  Where several do, as in a sweep that changes one at a
    time, only what is not at its default: everything else would be said in every label.

    Args:
        exchanges: of all rivals, itself among them.
    """
    counting = exchange_of(own)
    differing = [name for name in EXCHANGE if len({x[name] for x in exchanges if name in x}) > 1]
    if len(differing) > 1:
        differing = [n for n in differing if n in counting and counting[n] != EXCHANGE[n]]
        if not differing:
            return [DEFAULTS]
    dealing = _dealing_parts(own, differing)
    if sends_buckets(own) and _is_unbucketed(own) and set(differing) & set(_SIZES):
        return ["unbucketed", *dealing]
    packs = [pack_label(own["bytes_per_pack"])] if "bytes_per_pack" in differing else []
    messages = _message_parts(own, differing) if sends_buckets(own) else []
    return [*packs, *messages, *dealing]


def _is_unbucketed(own: pd.Series) -> bool:
    """Every tensor travels on its own in float32, and all set out at once."""
    return (
        all(own[name] == value for name, value in UNBUCKETED.columns().items())
        and not (own["host_aggregation"])
    )


def _message_parts(own: pd.Series, differing: Sequence[str]) -> list[str]:
    parts = _size_parts(own, "group_bytes" in differing, "cut_bytes" in differing)
    if "in_flight" in differing:
        parts.append(f"{own['in_flight'] or 'all'} in flight")
    if "gradients_on_wire" in differing:
        parts.append(f"{own['gradients_on_wire']} gradients")
    if "host_aggregation" in differing:
        parts.append(f"sent per {'host' if own['host_aggregation'] else 'worker'}")
    return parts


def _size_parts(own: pd.Series, group: bool, cut: bool) -> list[str]:
    """Sizes of messages, as far as they differ."""
    group_bytes, cut_bytes = own["group_bytes"], own["cut_bytes"]
    if group and cut and group_bytes == cut_bytes:
        return [f"{megabytes(group_bytes)} messages" if group_bytes else "single tensors"]
    parts = []
    if group:
        parts.append(f"groups of {megabytes(group_bytes)}" if group_bytes else "ungrouped")
    if cut:
        parts.append(f"cut at {megabytes(cut_bytes)}" if cut_bytes else "uncut")
    return parts


def _dealing_parts(own: pd.Series, differing: Sequence[str]) -> list[str]:
    parts = []
    if "staleness" in differing:
        bound = own["staleness"]
        parts.append(f"staleness {'unbounded' if bound is None else bound}")
    if "steps_per_dispatch" in differing:
        count = own["steps_per_dispatch"]
        parts.append(f"{count} step{'s' * (count != 1)} per dispatch")
    return parts


def pack_label(bytes_per_pack: int | None) -> str:
    """How a pack size is written; 0 is one pack for all gradients, None is buckets instead."""
    if bytes_per_pack is None:
        return "buckets"
    return f"{megabytes(bytes_per_pack)} packs" if bytes_per_pack else "one pack"


def megabytes(size: int) -> str:
    """Bytes as `0.5 MB`."""
    return f"{size / 1e6:g} MB"
