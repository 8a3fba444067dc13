"""What sets the training strategies apart, as data.

Everything outside `backends` that depends on the strategy asks these traits; nobody compares names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Strategy(StrEnum):
    """How the workers' gradients are combined."""

    SINGLE = "single"
    NO_COMMUNICATION = "no_communication"
    PS_ASYNC = "ps_async"
    PS_SYNC = "ps_sync"
    ALLREDUCE = "allreduce"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyTraits:
    """The properties of a strategy that launchers, sweeps and analysis need.

    Attributes:
        uses_servers: variables live on parameter servers, driven by a chief; otherwise every
            worker drives itself.
        uses_collective: gradients are combined by a collective of the workers.
        synchronous: all workers apply the same update in every step.
        deals_steps: a step goes to whichever worker is free, so workers may make different numbers.
        replicated: every worker ends with the same trainable weights of its own.
        max_workers: the largest number of workers, None for no bound.
        label: for figures and tables.
    """

    uses_servers: bool = False
    uses_collective: bool = False
    synchronous: bool = True
    deals_steps: bool = False
    replicated: bool = False
    max_workers: int | None = None
    label: str

    @property
    def communicates(self) -> bool:
        """Gradients leave the worker."""
        return self.uses_servers or self.uses_collective

    @property
    def aggregates(self) -> bool:
        """Gradients of one host can be added up before they are sent."""
        return self.uses_servers and self.synchronous


TRAITS: dict[Strategy, StrategyTraits] = {
    Strategy.SINGLE: StrategyTraits(max_workers=1, label="single worker, no strategy"),
    Strategy.NO_COMMUNICATION: StrategyTraits(
        synchronous=False, label="no communication (upper bound)"
    ),
    Strategy.PS_ASYNC: StrategyTraits(
        uses_servers=True,
        synchronous=False,
        deals_steps=True,
        label="parameter servers, asynchronous",
    ),
    Strategy.PS_SYNC: StrategyTraits(uses_servers=True, label="parameter servers, synchronous"),
    Strategy.ALLREDUCE: StrategyTraits(uses_collective=True, replicated=True, label="all-reduce"),
}
