"""How gradients are exchanged, and how that is called.

Decides which columns are about the exchange, which of them count for an experiment, and their
order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from ps_allreduce.point.strategies import STRATEGIES
from ps_allreduce.point.wire import UNBUCKETED, Wire, WireType

#: What can be set about messages, with its default.
_MESSAGES: Mapping[str, object] = {**Wire().columns(), "host_aggregation": False}

#: What can be set about how steps are dealt to workers, with its default.
_DEALING: Mapping[str, object] = {"staleness": None, "steps_per_dispatch": 1}

#: Everything that can be set about the exchange of gradients, in the order in which it is sorted.
EXCHANGE: Mapping[str, object] = {"bytes_per_pack": None, **_MESSAGES, **_DEALING}

#: Messages of the suite's step without buckets, and the settings that make them so.
_UNBUCKETED = {**UNBUCKETED.columns(), "host_aggregation": False}
_SIZES = {"group_bytes", "cut_bytes", "in_flight"}

#: How the setting is called that leaves at its default whatever differs among its rivals.
DEFAULTS = "defaults"


def exchange_of(own: pd.Series) -> dict[str, object]:
    """Everything that is set about the exchange and counts for this experiment, by column.

    Args:
        own: what was asked for, None where nothing was.
    """
    traits = STRATEGIES[own["strategy"]]
    counting = ["bytes_per_pack"] if traits.uses_collective else []
    counting += _MESSAGES if own["group_bytes"] is not None else []  # else TensorFlow's own packs
    counting += _DEALING if traits.deals_steps else []
    return {name: own[name] for name in counting}


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
    said = {name: _PARTS[name](counting[name]) for name in differing if name in counting}
    if len(differing) > 1:
        said = {name: text for name, text in said.items() if counting[name] != EXCHANGE[name]}
        if not said:
            return [DEFAULTS]
    if _SIZES & said.keys() and counting.items() >= _UNBUCKETED.items():
        return ["unbucketed", *(text for name, text in said.items() if name in _DEALING)]
    size: Any = counting.get("group_bytes")
    if {"group_bytes", "cut_bytes"} <= said.keys() and size == counting["cut_bytes"]:
        said["group_bytes"] = f"{megabytes(size)} messages" if size else "single tensors"
        del said["cut_bytes"]
    return list(said.values())


def _pack_part(bytes_per_pack: int | None) -> str:
    """0 is one pack for all gradients, None is buckets instead."""
    if bytes_per_pack is None:
        return "buckets"
    return f"{megabytes(bytes_per_pack)} packs" if bytes_per_pack else "one pack"


def megabytes(size: float) -> str:
    """Bytes as `0.5 MB`."""
    return f"{size / 1e6:g} MB"


#: How the value of a column is called.
_PARTS: Mapping[str, Callable[[Any], str]] = {
    "bytes_per_pack": _pack_part,
    "group_bytes": lambda size: f"groups of {megabytes(size)}" if size else "ungrouped",
    "cut_bytes": lambda size: f"cut at {megabytes(size)}" if size else "uncut",
    "in_flight": lambda count: f"{count or 'all'} in flight",
    "gradients_on_wire": lambda kind: f"{kind} gradients",
    "host_aggregation": lambda shared: f"sent per {'host' if shared else 'worker'}",
    "staleness": lambda bound: f"staleness {'unbounded' if bound is None else bound}",
    "steps_per_dispatch": lambda count: f"{count} step{'s' * (count != 1)} per dispatch",
}
