"""What a sweep chose where nobody had said: how gradients travel, rates of links, and batches.

`sweep.json` keeps it: whoever continues the sweep or reports it knows it from there.  Decides how
it is said.  The rules are in `analysis.planning.exchange` and `experiments.sweep.link_rate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ps_allreduce.point.network import render_rate
from ps_allreduce.point.strategies import STRATEGIES
from ps_allreduce.serialization import from_json

#: The choice in `sweep.json` that holds how gradients travel.
EXCHANGES = "how gradients travel"

#: Names of sweeps that choose something, or their first parts.
FIRST_LOOK, PILOT, TUNE, SEARCH = CHOOSING = ("first-look", "pilot", "tune", "search")

#: Of these, sweeps of launches that look at links and windows before another sweep.
BEFOREHAND = (FIRST_LOOK, PILOT)

#: The name of the sweep whose launches compare weights.
GATE = "gate"

#: The first part of names of sweeps that tell what the suite itself costs.
BENCH = "bench"

#: Sweeps whose rates are no results.
NO_RESULTS = (*CHOOSING, GATE, BENCH)


class ExchangeMode(StrEnum):
    """How gradients travel."""

    AUTO = "auto"
    BUCKETS = "buckets"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeChoice:
    """How the gradients of a strategy travel in a sweep, and the numbers that it follows from.

    Attributes:
        num_workers, num_ps: of the point that it was chosen for.
        cores: that the tasks have together.
        bits_per_s: rate of the links; None on one host, and on links that nothing limits.
        network_s: in which the busiest link carries the bytes of a step of every worker.
        processor_s: in which the cores send them in buckets, with nothing else to do.
        saved_s: what of that they save if gradients travel whole; below 0 they lose some.
    """

    model: str
    strategy: str
    mode: ExchangeMode
    num_workers: int
    cores: int
    bits_per_s: float | None
    network_s: float
    processor_s: float
    saved_s: float
    num_ps: int = 0

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
        counts = {"core": self.cores, "worker": self.num_workers, "server": self.num_ps}
        told = [f"{count} {what}{'s' * (count != 1)}" for what, count in counts.items() if count]
        return ", ".join([links, *told])


def exchange_sentence(choices: Sequence[ExchangeChoice]) -> str:
    """How gradients travel, which strategies' in which way, and why; of at least one choice."""
    several = len({choice.model for choice in choices}) > 1
    ways: dict[str, list[str]] = {}
    for choice in choices:
        name = f"{choice.model} {choice.strategy}" if several else choice.strategy
        ways.setdefault(choice.way, []).append(name)
    told = [way if len(ways) == 1 else f"{way} ({', '.join(names)})" for way, names in ways.items()]
    return f"Gradients travel {' and '.join(told)} (auto: {'; '.join(_reasons(choices))})."


def _reasons(choices: Sequence[ExchangeChoice]) -> list[str]:
    """Each once; that of all-reduce is the beginning of that of as many workers with servers."""
    reasons = dict.fromkeys(choice.reason for choice in choices)
    return [each for each in reasons if not any(other.startswith(f"{each}, ") for other in reasons)]


_RATE = "rate of the links for "
_BATCH = "batch per worker of "


def rate_question(model: str) -> str:
    """The choice in `sweep.json` that holds the rate for a model, in bits per second."""
    return _RATE + model


def batch_question(model: str) -> str:
    """The choice in `sweep.json` that holds the batch of each worker for a model."""
    return _BATCH + model


def chosen_rates(choices: Mapping[str, object]) -> dict[str, float]:
    """Bits per second by the name of the model.

    Raises:
        RecordFormatError: one is no number.
    """
    return _by_model(choices, _RATE)


def chosen_batches(choices: Mapping[str, object]) -> dict[str, int]:
    """Examples of a worker's batch by the name of the model.

    Raises:
        RecordFormatError: one is no number.
    """
    return {model: int(batch) for model, batch in _by_model(choices, _BATCH).items()}


def _by_model(choices: Mapping[str, object], begin: str) -> dict[str, float]:
    """The answers to the questions that begin so."""
    found = {}
    for question, answer in choices.items():
        if question.startswith(begin):
            found[question.removeprefix(begin)] = from_json(float, answer, question)
    return found
