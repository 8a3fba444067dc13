"""The ladder from TensorFlow as it ships to the suite's defaults: one change per rung.

Decides which rungs each side has and what they are called.  A rung is compared with the one before
it.  A study decides at which points rungs are measured, and leaves out those that change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    StockAllReduce,
    StockServers,
)
from ps_allreduce.point.strategies.base import Altered, StrategySettings
from ps_allreduce.point.wire import UNBUCKETED, Wire


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
            name=f"{limited.in_flight} messages under way", strategy=own, settings=_sizes(limited)
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
