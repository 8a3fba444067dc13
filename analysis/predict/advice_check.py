"""What it would have cost to follow the predictions, by the launches that were made.  Pure.

Decides what a question is: one workload with so many workers on the same links, for which several
synchronous settings were predicted and launched at least twice.  The advised one has the highest
predicted rate.  The best one is chosen by every other launch and scored by the rest, so that luck
which chose it does not count for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from analysis.derive.fastest_step import step_time_s
from analysis.predict.predictions import Prediction
from ps_allreduce.point.network import MAX_HOSTS
from ps_allreduce.record.records import RunRecord

#: Of questions drawn again, for the upper end of the mean.
_DRAWS = 2000

#: Share of the means that lie above the upper end.
_ABOVE = 0.05

Measured = tuple[Prediction, Sequence[RunRecord]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedAdvice:
    """A question, and what the advised setting costs.

    Attributes:
        workload: in words.
        bits_per_s: of links; None where it is not stated.
        candidates: settings among which was chosen.
        gap: rate of the best one over that of the advised one, less 1.
    """

    workload: str
    num_workers: int
    bits_per_s: float | None
    advised: str
    best: str
    candidates: int
    gap: float


def check_advice(points: Sequence[Measured]) -> tuple[CheckedAdvice, ...]:
    """All questions that the launches answer."""
    groups: dict[Hashable, list[Measured]] = {}
    for prediction, launches in points:
        if prediction.experiment.strategy.synchronous and len(launches) > 1:
            groups.setdefault(_question(prediction), []).append((prediction, launches))
    return tuple(_checked(own) for own in groups.values() if len(own) > 1)


def upper_end(questions: Sequence[CheckedAdvice]) -> float:
    """What advice costs in the mean at most, with 95 % confidence: of questions drawn again."""
    gaps = np.array([each.gap for each in questions])
    drawn = np.random.default_rng(0).choice(gaps, size=(_DRAWS, len(gaps))).mean(axis=1)
    return float(np.quantile(drawn, 1.0 - _ABOVE))


def _question(prediction: Prediction) -> Hashable:
    own = prediction.experiment
    network = own.network and replace(own.network, num_hosts=MAX_HOSTS)
    return own.workload, own.num_workers, network


def _checked(group: Sequence[Measured]) -> CheckedAdvice:
    advised = max(group, key=lambda each: each[0].expected)
    best = max(group, key=lambda each: _rate(each, 0))
    own = advised[0].experiment
    return CheckedAdvice(
        workload=" ".join([own.workload.model.name, *own.workload.title_parts()]),
        num_workers=own.num_workers,
        bits_per_s=own.network.bits_per_s if own.network else None,
        advised=advised[0].experiment.title,
        best=best[0].experiment.title,
        candidates=len(group),
        gap=_rate(best, 1) / _rate(advised, 1) - 1.0,
    )


def _rate(measured: Measured, half: int) -> float:
    """Mean rate of every other launch."""
    prediction, launches = measured
    steps = [step for each in launches[half::2] if (step := step_time_s(each))]
    return prediction.experiment.global_batch / fmean(steps)
