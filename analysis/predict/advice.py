"""Which setting to take for so many workers, by the closed form.  Pure.

Decides which settings are candidates (those that were measured, with 1, 2, 4 and more servers),
that synchronous ones are ranked and asynchronous ones listed apart, because equal rates do not
train equally well, how many workers are enough, and which changes are tried for what they help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.predict.calibration import Family, families, with_servers
from analysis.predict.loads import with_hosts
from analysis.predict.predictions import Prediction, Question, Teller, asked
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.wire import WireType
from ps_allreduce.record.records import RunRecord

#: Share of the rate from which fewer workers are as good.
ENOUGH = 0.95

#: A change that brings less is not told.
_HELPS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What is best for so many workers, and what follows.

    Attributes:
        ranked: synchronous settings, the best first; of each with the best number of servers.
        asynchronous: likewise.
        enough_workers: the fewest with which the best setting has 95 % of its rate.
        helps: what of the best setting's rate single changes would bring on top, largest first.
    """

    ranked: tuple[Prediction, ...]
    asynchronous: tuple[Prediction, ...]
    enough_workers: int
    helps: Mapping[str, float]

    @property
    def best(self) -> Prediction:
        """The first."""
        return self.ranked[0]


def advise(
    records: Sequence[RunRecord], workers: int, bits_per_s: float | None = None, seed: int = 0
) -> Recommendation:
    """Rank what was measured for so many workers.

    Raises:
        UserError: no synchronous setting was measured, or nobody worked alone.
    """
    question = Question(workers=(workers,), bits_per_s=bits_per_s)
    tellers = [(family, Teller(family, seed)) for family in families(records)]
    refusals: list[str] = []
    best = [
        (made, teller)
        for family, teller in tellers
        if (made := _best_of(family, teller, question, refusals)) is not None
    ]
    best.sort(key=lambda each: -each[0].expected)
    ranked = [each for each in best if each[0].experiment.strategy.synchronous]
    if not ranked:
        why = f" ({refusals[-1]})" if refusals else ""
        raise UserError(
            f"no synchronous setting was measured that can have {workers} workers{why}: there is "
            "nothing to rank."
        )
    winner, teller = ranked[0]
    return Recommendation(
        ranked=tuple(made for made, _ in ranked),
        asynchronous=tuple(made for made, _ in best if not made.experiment.strategy.synchronous),
        enough_workers=_enough(winner.experiment, teller),
        helps=dict(_helps(winner.experiment, teller)),
    )


def _best_of(
    family: Family, teller: Teller, question: Question, refusals: list[str]
) -> Prediction | None:
    """A setting with the best number of servers; None where it cannot have so many workers."""
    (workers,) = question.workers
    uses_servers = family.latest.experiment.strategy.uses_servers
    counts: list[int | None] = [None]
    if uses_servers:
        counts = [*(2**power for power in range(workers.bit_length())), workers]
    made = []
    own = family.latest.experiment
    for count in dict.fromkeys(counts):
        try:
            made.append(teller.told(asked(own, replace(question, num_ps=count), workers)))
        except UserError as error:  # more servers than variables, or than hosts
            refusals.append(str(error))
    return max(made, key=lambda each: each.expected, default=None)


def _enough(target: Experiment, teller: Teller) -> int:
    wanted = ENOUGH * teller.rate(target)
    for count in range(1, target.num_workers):
        fewer = replace(target, num_workers=count)
        try:
            if teller.rate(fewer) >= wanted:
                return count
        except UserError:
            continue  # servers that stand beside workers want as many of these
    return target.num_workers


def _helps(target: Experiment, teller: Teller) -> Iterator[tuple[str, float]]:
    """By how much single changes would raise the rate, the largest first."""
    rate, found = teller.rate(target), {}
    for name, change in _CHANGES.items():
        try:
            changed = change(target)
            found[name] = (teller.rate(changed) / rate if changed else 1.0) - 1.0
        except UserError:
            continue  # it cannot be so
    for name in sorted(found, key=lambda each: -found[each]):
        if found[name] >= _HELPS:
            yield name, found[name]


def _with_faster_links(target: Experiment) -> Experiment | None:
    network = target.network
    if network is None or network.bits_per_s is None:
        return None
    return replace(target, network=replace(network, bits_per_s=2 * network.bits_per_s))


def _with_more_servers(target: Experiment) -> Experiment | None:
    if not target.strategy.uses_servers:
        return None
    return with_hosts(replace(target, strategy=with_servers(target.strategy, 2 * target.num_ps)))


def _with_half_gradients(target: Experiment) -> Experiment | None:
    strategy: Any = target.strategy
    wire = target.strategy.wire
    if wire is None or wire.gradients is not WireType.FLOAT32:
        return None
    name = "sending" if strategy.uses_collective else "wire"
    changed = replace(strategy, **{name: replace(wire, gradients=WireType.BFLOAT16)})
    return replace(target, strategy=changed)


def _with_fewer_exchanges(target: Experiment) -> Experiment | None:
    load = target.workload
    return replace(target, workload=replace(load, accumulation=2 * load.accumulation))


#: What is tried, by its name; a change gives None where there is nothing to change.
_CHANGES: Mapping[str, Callable[[Experiment], Experiment | None]] = {
    "links twice as fast": _with_faster_links,
    "twice the servers": _with_more_servers,
    "gradients in 16 bits": _with_half_gradients,
    "twice the batches per exchange": _with_fewer_exchanges,
}
