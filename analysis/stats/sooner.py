"""Which settings have reached a loss sooner: what trainings that learned say beside rates.

Decides what an asynchronous setting is held against (the synchronous one that reached the target
first, of the same task, links and hosts), and that only a difference by the rule of decision
counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.data.blocks import analysed
from analysis.data.cases import Case, Point, make_cases
from analysis.data.load import find_sweeps, read_sweep
from analysis.data.metric import TIME_TO_TARGET
from analysis.stats.comparisons import decided
from analysis.stats.decision import Decision
from analysis.stats.statistics import estimate
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sooner:
    """An asynchronous setting against the best synchronous one.

    Attributes:
        decision: by the seconds to the target; faster is sooner.
    """

    asynchronous: Point
    synchronous: Point
    decision: Decision


def learned_cases(folder: Path) -> list[Case]:
    """Of all sweeps below a folder that measured."""
    sweeps = [analysed(read_sweep(path)) for path in find_sweeps(folder)]
    return [
        case
        for sweep in sweeps
        if not sweep.chose
        for case in make_cases(sweep.block.table, sweep.files.records)
        if any(point.experiment.learning is not None for point in case.points)
    ]


def reached_sooner(cases: Sequence[Case], model: str, hosts: int) -> Iterator[Sooner]:
    """Every asynchronous setting that learned on so many hosts, on each kind of links."""
    learned = [
        (case, point)
        for case in cases
        for point in case.points
        if _is_asked(point.experiment, model, hosts) and len(TIME_TO_TARGET.values(point))
    ]
    for network in dict.fromkeys(point.experiment.network for _, point in learned):
        yield from _against_the_best(
            [(case, point) for case, point in learned if point.experiment.network == network]
        )


def _is_asked(own: Experiment, model: str, hosts: int) -> bool:
    return own.learning is not None and own.workload.model.name == model and num_hosts(own) == hosts


def _against_the_best(learned: Sequence[tuple[Case, Point]]) -> Iterator[Sooner]:
    """Nothing where no synchronous setting has learned."""
    synchronous = [each for each in learned if each[1].setting.traits.synchronous]
    if not synchronous:
        return
    case, base = min(synchronous, key=lambda each: estimate(TIME_TO_TARGET.values(each[1])).mean)
    pairs = [(point, base) for own, point in learned if (own, point) not in synchronous]
    for (point, _), decision in decided(case, TIME_TO_TARGET, pairs):
        yield Sooner(asynchronous=point, synchronous=base, decision=decision)
