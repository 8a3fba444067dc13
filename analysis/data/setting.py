"""Settings: the ways to train that a case compares, and how they are called.

Decides what makes two points one setting at different numbers of workers, which columns are about
the exchange of gradients and which of them count for an experiment, and that a label says only what
tells a setting from its rivals, those of the same strategy.  What may be compared at all is decided
in `cases`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.data.columns import SAID, SETTINGS, column_of
from ps_allreduce.declared import megabytes
from ps_allreduce.point.strategies import STRATEGIES, AllReduce, AnyStrategy, default_of
from ps_allreduce.point.strategies.stated import DECLARATIONS
from ps_allreduce.point.wire import UNBUCKETED, WireType

#: Strategies that people call otherwise than the command line does.
_CALLED = {AllReduce.kind: AllReduce.label}

#: More settings than this cannot be told apart in one axes.
MAX_TOGETHER = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A way to train, whatever the number of workers.

    Attributes:
        strategy: by its name.
        num_ps: None where the number of servers follows the number of workers.
        values: everything else that was set, by column.
        label: short, and different from that of every other setting of its case.
        variant: the label without strategy and number of servers, for figures that show those
            otherwise.
        exchange: the part of the label that is about the exchange of gradients.
    """

    strategy: str
    num_ps: int | None
    values: tuple[tuple[str, object], ...]
    label: str
    variant: str
    exchange: str

    @property
    def traits(self) -> type[AnyStrategy]:
        """The class of its strategy."""
        return STRATEGIES[self.strategy]

    @property
    def called(self) -> str:
        """The strategy, as people call it."""
        return called(self.strategy)

    @property
    def bytes_per_pack(self) -> int | None:
        """Size of TensorFlow's own packs, 0 for one pack; None where gradients travel otherwise."""
        size: Any = dict(self.values)["bytes_per_pack"]
        return None if size is None else int(size)


def called(strategy: str) -> str:
    """How people call a strategy; what sets it apart stands after it."""
    return _CALLED.get(strategy, strategy)


def full_label(strategy: AnyStrategy) -> str:
    """The same in every case: with all that is not at its default, not with what differs there."""
    return ", ".join([called(strategy.kind), *strategy.title_parts()])


def settings_of(asked: pd.DataFrame) -> list[Setting]:
    """The setting of each experiment of a case.

    Args:
        asked: what was asked for by `experiment_id`, None where nothing was.
    """
    follows = _servers_follow_workers(asked)
    # On equally many servers; the default threshold follows the number of servers.
    thresholds = asked.groupby(["strategy", "num_ps"])["split_bytes"].transform("nunique")
    settings: dict[str, Setting] = {}
    for _, rivals in asked.groupby("strategy"):
        exchanges = [exchange_of(own) for _, own in rivals.iterrows()]
        varied = {name for name in SETTINGS if len(rivals[name].unique()) > 1} - {"split_bytes"}
        for key, own in rivals.iterrows():
            differing = varied | ({"split_bytes"} if thresholds[str(key)] > 1 else set())
            settings[str(key)] = _setting(own, differing, exchange_parts(own, exchanges), follows)
    return [settings[str(key)] for key in asked.index]


def _setting(
    own: pd.Series, differing: Collection[str], exchange: Sequence[str], follows: bool
) -> Setting:
    """The setting of an experiment, given the columns in which its rivals differ."""
    variant = [*_variant(own, differing), *exchange]
    counted = "num_ps" in differing and own["num_ps"] and not follows
    servers = [f"{own['num_ps']} ps"] if counted else []
    without = {"strategy", "num_ps"} | ({"split_bytes"} - set(differing))
    return Setting(
        strategy=own["strategy"],
        num_ps=None if follows else own["num_ps"],
        values=tuple((name, own[name]) for name in SETTINGS if name not in without),
        label=", ".join([called(own["strategy"]), *variant[:1], *servers, *variant[1:]]),
        variant=", ".join(variant),
        exchange=", ".join(exchange),
    )


def _servers_follow_workers(asked: pd.DataFrame) -> bool:
    """Every number of workers has one number of servers, so that is no setting of its own."""
    with_servers = asked[asked["num_ps"] > 0]
    counts = with_servers.groupby("num_workers")["num_ps"].nunique()
    return bool((counts == 1).all()) and with_servers["num_ps"].nunique() > 1


def _variant(own: pd.Series, differing: Collection[str]) -> list[str]:
    """The placement, and whatever else differs between the settings of one strategy."""
    shown = {"placement", *differing} - {"strategy", "num_ps", *EXCHANGE}
    said = {name: SAID[name].phrase(name, own[name]) for name in SETTINGS if name in shown}
    return [text for text in said.values() if text]


#: Everything that can be set about the exchange of gradients, with its default, as it is sorted.
EXCHANGE: Mapping[str, object] = {
    column_of(name): default_of(name)
    for name in dict.fromkeys(["bytes_per_pack", *DECLARATIONS])
    if DECLARATIONS[name].exchange
}

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
    counts = {
        "bytes_per_pack": traits.uses_collective,
        # Else gradients are in packs that TensorFlow makes.
        **dict.fromkeys(_UNBUCKETED, own["group_bytes"] is not None),
    }
    known = traits.understands()
    return {name: own[name] for name in EXCHANGE if counts.get(name, name in known)}


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
    return float(value) if isinstance(value, int | float) else math.inf


def exchange_parts(own: pd.Series, exchanges: Sequence[Mapping[str, object]]) -> list[str]:
    """How it exchanges gradients, as far as that differs among its rivals.

    Where one thing differs it is stated.  Where several do, as in a sweep that changes one at a
    time, only what is not at its default: everything else would be said in every label.

    Args:
        exchanges: of all rivals, itself among them.
    """
    counting = exchange_of(own)
    differing = [name for name in EXCHANGE if len({x[name] for x in exchanges if name in x}) > 1]
    said = {name: SAID[name].phrase(name, counting[name]) for name in differing if name in counting}
    if len(differing) > 1:
        said = {name: text for name, text in said.items() if counting[name] != EXCHANGE[name]}
        if not said:
            return [DEFAULTS]
    if _SIZES & said.keys() and counting.items() >= _UNBUCKETED.items():
        return ["unbucketed", *(text for name, text in said.items() if name not in _UNBUCKETED)]
    size: Any = counting.get("group_bytes")
    if {"group_bytes", "cut_bytes"} <= said.keys() and size == counting["cut_bytes"]:
        said["group_bytes"] = f"{megabytes(size)} messages" if size else "single tensors"
        del said["cut_bytes"]
    return list(said.values())
