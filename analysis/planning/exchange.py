"""How gradients travel where nobody states it: in buckets, or whole.  Pure.

Decides it from the seconds that links need for a step and those that processors need to send it.
Buckets keep links busy from the first gradient on and cost more processor time; whole gradients
are the other way round.  How the constants were found: `docs/performance.md`, "What `auto`
chooses".  What a strategy makes of either is decided where its settings are stated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ps_allreduce.point.network import render_rate
from ps_allreduce.point.strategies import STRATEGIES

#: The choice in `sweep.json` that holds how gradients travel.
EXCHANGES = "how gradients travel"

#: Processor time that all tasks together need to send the gradients of one worker whole.
CPU_S_PER_BYTE = 4.5e-9

#: And of a step that sends next to nothing.
CPU_S_PER_STEP = 1e-3


class ExchangeMode(StrEnum):
    """How gradients travel."""

    AUTO = "auto"
    BUCKETS = "buckets"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeChoice:
    """How the gradients of a strategy travel in a sweep, and the numbers that it follows from.

    Attributes:
        cores: that the tasks have together.
        bits_per_s: rate of the links; None on one host, and on links that nothing limits.
        network_s: in which the busiest link carries the bytes of a step of every worker.
        processor_s: in which the cores send them, all busy and with nothing else to do.
    """

    model: str
    strategy: str
    mode: ExchangeMode
    num_workers: int
    cores: int
    bits_per_s: float | None
    network_s: float
    processor_s: float

    @property
    def way(self) -> str:
        """How gradients travel, in words."""
        if self.mode is ExchangeMode.BUCKETS:
            return "in buckets"
        return "in one pack" if STRATEGIES[self.strategy].uses_collective else "unbucketed"

    @property
    def reason(self) -> str:
        """The numbers, in words."""
        links = "no links that limit"
        if self.bits_per_s is not None:
            links = f"links of {render_rate(float(f'{self.bits_per_s:.2g}'))}"
        return f"{links}, {self.cores} core{'s' * (self.cores != 1)}"


def processor_time_s(gradient_bytes: int, num_workers: int, cores: int) -> float:
    """Seconds in which the cores of all tasks send the gradients of a step of every worker."""
    return num_workers * (CPU_S_PER_STEP + CPU_S_PER_BYTE * gradient_bytes) / cores


def better_mode(network_s: float, processor_s: float) -> ExchangeMode:
    """Whole where processors are the limit, else in buckets."""
    return ExchangeMode.WHOLE if processor_s > network_s else ExchangeMode.BUCKETS


def exchange_sentence(choices: Sequence[ExchangeChoice]) -> str:
    """How gradients travel, which strategies' in which way, and why; of at least one choice."""
    several = len({choice.model for choice in choices}) > 1
    ways: dict[str, list[str]] = {}
    for choice in choices:
        name = f"{choice.model} {choice.strategy}" if several else choice.strategy
        ways.setdefault(choice.way, []).append(name)
    told = [way if len(ways) == 1 else f"{way} ({', '.join(names)})" for way, names in ways.items()]
    reasons = "; ".join(dict.fromkeys(choice.reason for choice in choices))
    return f"Gradients travel {' and '.join(told)} (auto: {reasons})."
