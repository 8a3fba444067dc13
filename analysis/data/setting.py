"""Settings: the ways to train that a case compares, and how they are called.

Decides what makes two points one setting at different numbers of workers, and that a label says
only what tells a setting from its rivals, those of the same strategy.  How the exchange of
gradients is called is decided in `exchange`, what may be compared at all in `cases`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.data.columns import SETTINGS
from analysis.data.exchange import exchange_of, exchange_parts, megabytes
from ps_allreduce.point.strategies import STRATEGIES, AnyStrategy

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
    def bytes_per_pack(self) -> int | None:
        """Size of TensorFlow's own packs, 0 for one pack; None where gradients travel otherwise."""
        size: Any = dict(self.values)["bytes_per_pack"]
        return None if size is None else int(size)


def settings_of(asked: pd.DataFrame) -> list[Setting]:
    """The setting of each experiment of a case.

    Args:
        asked: a row per experiment with what was asked for, None where nothing was.
    """
    follows = _servers_follow_workers(asked)
    rivals = {str(name): _Rivals.of(group) for name, group in asked.groupby("strategy")}
    return [_setting(own, rivals[own["strategy"]], follows) for _, own in asked.iterrows()]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rivals:
    """The experiments of one strategy, and how each of them exchanges gradients."""

    asked: pd.DataFrame
    exchanges: Sequence[Mapping[str, object]]

    @classmethod
    def of(cls, asked: pd.DataFrame) -> _Rivals:
        return cls(asked=asked, exchanges=[exchange_of(own) for _, own in asked.iterrows()])

    def differ(self, column: str) -> bool:
        """Not all of them were asked for the same."""
        return len(self.asked[column].unique()) > 1

    def splits_differ(self, own: pd.Series) -> bool:
        """On equally many servers; the default threshold follows the number of servers."""
        alike = self.asked[self.asked["num_ps"] == own["num_ps"]]
        return len(alike["split_bytes"].dropna().unique()) > 1


def _setting(own: pd.Series, rivals: _Rivals, follows: bool) -> Setting:
    uses_servers = STRATEGIES[own["strategy"]].uses_servers
    exchange = exchange_parts(own, rivals.exchanges)
    variant = [*_variant(own, rivals), *exchange]
    servers = [f"{own['num_ps']} ps"] if uses_servers and not follows else []
    counted = servers if rivals.differ("num_ps") else []
    without = {"strategy", "num_ps"}
    if not rivals.splits_differ(own):
        without.add("split_bytes")
    return Setting(
        strategy=own["strategy"],
        num_ps=None if follows else own["num_ps"],
        values=tuple((name, own[name]) for name in SETTINGS if name not in without),
        label=", ".join([own["strategy"], *variant[:1], *counted, *variant[1:]]),
        variant=", ".join(variant),
        exchange=", ".join(exchange),
    )


def _servers_follow_workers(asked: pd.DataFrame) -> bool:
    """Every number of workers has one number of servers, so that is no setting of its own."""
    with_servers = asked[[STRATEGIES[name].uses_servers for name in asked["strategy"]]]
    counts = with_servers.groupby("num_workers")["num_ps"].nunique()
    return bool((counts == 1).all()) and len(with_servers["num_ps"].unique()) > 1


def _variant(own: pd.Series, rivals: _Rivals) -> list[str]:
    """The placement, and whatever else differs between the settings of one strategy."""
    parts = [] if own["placement"] is None else [str(own["placement"])]
    if own["layout"] is not None and rivals.differ("layout"):
        parts.append(str(own["layout"]))
    if own["split_bytes"] is not None and rivals.splits_differ(own):
        parts.append(f"split {megabytes(own['split_bytes'])}")
    if rivals.differ("ps_per_host"):
        parts.append(f"{own['ps_per_host'] or 'default'} ps per host")
    if rivals.differ("coordinator"):
        parts.append(f"coordinator {own['coordinator']}")
    if own["collective"] is not None and rivals.differ("collective"):
        parts.append(str(own["collective"]))
    return parts
