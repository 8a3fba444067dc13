"""Settings: the ways to train that a case compares, and how they are called.

Decides what makes two points one setting at different numbers of workers, and that a label says
only what tells a setting from its rivals, those of the same strategy.  How the exchange of
gradients is called is decided in `exchange`, what may be compared at all in `cases`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
    without = {"strategy", "num_ps"}
    if "split_bytes" not in differing:
        without.add("split_bytes")
    return Setting(
        strategy=own["strategy"],
        num_ps=None if follows else own["num_ps"],
        values=tuple((name, own[name]) for name in SETTINGS if name not in without),
        label=", ".join([own["strategy"], *variant[:1], *servers, *variant[1:]]),
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
    said = {
        "placement": own["placement"],
        "layout": own["layout"],
        "split_bytes": own["split_bytes"] and f"split {megabytes(own['split_bytes'])}",
        "ps_per_host": f"{own['ps_per_host'] or 'default'} ps per host",
        "coordinator": f"coordinator {own['coordinator']}",
        "collective": own["collective"],
    }
    shown = {"placement", *differing}
    return [text for name, text in said.items() if name in shown and text is not None]
