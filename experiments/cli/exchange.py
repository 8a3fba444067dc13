"""How gradients travel in a sweep for which nobody states it.

Decides when it is chosen: once, as soon as the links of all points are known; and which point
stands for a strategy: the one with the most workers and, as far as the study has it, as many
servers, so that a strategy is one setting in all of its points, and in every study.  The rule is
in `analysis.planning.exchange`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from analysis.planning.exchange import choose_exchange
from experiments.cli.requests import StudyRequest
from experiments.studies.scope import Describe
from experiments.sweep.definition import Choices
from experiments.sweep.link_rate import LINKS
from launchers.protocol import Capacity
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts as hosts_needed
from ps_allreduce.record.choices import (
    EXCHANGES,
    ExchangeChoice,
    ExchangeMode,
    exchange_sentence,
)

NOT_YET = "How gradients travel (auto) is chosen when links are known; until then, in buckets."


def settle_exchange(
    request: StudyRequest,
    points: Iterable[Experiment],
    capacity: Capacity,
    describe: Describe,
    choices: Choices,
) -> bool:
    """Choose how gradients travel, if that is to be chosen, nobody did, and links are known.

    Returns:
        Whether it was chosen, so that points have to be made again.
    """
    if request.exchange is not ExchangeMode.AUTO or EXCHANGES in choices.answers:
        return False
    by_size = sorted(points, key=_nearness)
    largest = {(p.workload, p.strategy.kind): p for p in by_size if p.strategy.wire is not None}
    chosen: list[ExchangeChoice] = []
    for point in largest.values():
        rate = _bits_per_s(request, point, choices)
        if rate is None:
            return False
        sizes = [spec.num_bytes for spec in describe(point.workload) if spec.trainable]
        chosen.append(choose_exchange(point, sizes, _cores_of(point, capacity), rate))
    if chosen:
        choices.decide(EXCHANGES, tuple[ExchangeChoice, ...], lambda: tuple(chosen))
    return bool(chosen)


def _nearness(point: Experiment) -> tuple[int, int, int]:
    """To what most studies have: the most workers, and a server for each of them."""
    return point.num_workers, -abs(point.num_workers - point.num_ps), point.num_ps


def _bits_per_s(request: StudyRequest, point: Experiment, choices: Choices) -> float | None:
    """Rate of the slowest link between the tasks; infinite without a limit; None: not known yet."""
    network = point.network
    if hosts_needed(point) == 1:
        return math.inf
    if network is None:
        return choices.answer(LINKS, float)
    if network.is_unlimited:
        return None if request.waits_for_rate else math.inf
    rates = network.bits_per_s, network.slow_bits_per_s, network.uplink_bits_per_s
    return min(rate for rate in rates if rate is not None)


def _cores_of(point: Experiment, capacity: Capacity) -> int:
    """Those of all workers, of which emulated hosts share the machine's."""
    cores = point.num_workers * point.resources.cores_per_worker
    return min(cores, capacity.shared_cores or cores)


def tell_exchange(request: StudyRequest, choices: Choices) -> str:
    """How gradients travel, if that was to be chosen; else nothing."""
    if request.exchange is not ExchangeMode.AUTO:
        return ""
    chosen = choices.answer(EXCHANGES, tuple[ExchangeChoice, ...])
    return exchange_sentence(chosen) if chosen else NOT_YET
