"""How gradients travel in a sweep for which nobody states it.

Decides when it is chosen: once, as soon as the links of all points are known; and which point
stands for a strategy: the one with the most workers, so that a strategy is one setting at every
number of workers.  The rule is in `analysis.planning.exchange`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from analysis.planning.exchange import (
    EXCHANGES,
    ExchangeChoice,
    ExchangeMode,
    better_mode,
    exchange_sentence,
    processor_time_s,
)
from experiments.cli.requests import StudyRequest
from experiments.studies.scope import LINKS, Describe
from experiments.sweep.definition import Choices
from launchers.protocol import Capacity
from ps_allreduce.bounds import nominal_network_s
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts as hosts_needed

NOT_YET = "How gradients travel (auto) is chosen when links are known; until then, in buckets."


def choose_exchange(
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
    by_size = sorted(points, key=lambda point: (point.num_workers, point.num_ps))
    largest = {(p.workload, p.strategy.kind): p for p in by_size if p.strategy.wire is not None}
    rates = {point: _bits_per_s(request, point, choices) for point in largest.values()}
    known = {point: rate for point, rate in rates.items() if rate is not None}
    if not largest or len(known) < len(rates):
        return False
    chosen = tuple(_choice(point, rate, capacity, describe) for point, rate in known.items())
    choices.decide(EXCHANGES, tuple[ExchangeChoice, ...], lambda: chosen)
    return True


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


def _choice(
    point: Experiment, bits_per_s: float, capacity: Capacity, describe: Describe
) -> ExchangeChoice:
    gradient_bytes = sum(spec.num_bytes for spec in describe(point.workload) if spec.trainable)
    cores = point.num_workers * point.resources.cores_per_worker
    cores = min(cores, capacity.shared_cores or cores)
    network_s = nominal_network_s(point, gradient_bytes, bits_per_s)
    processor_s = processor_time_s(gradient_bytes, point.num_workers, cores)
    return ExchangeChoice(
        model=point.workload.model.name,
        strategy=point.strategy.kind,
        mode=better_mode(network_s, processor_s),
        num_workers=point.num_workers,
        cores=cores,
        bits_per_s=bits_per_s if math.isfinite(bits_per_s) else None,
        network_s=network_s,
        processor_s=processor_s,
    )


def tell_exchange(request: StudyRequest, choices: Choices) -> str:
    """How gradients travel, if that was to be chosen; else nothing."""
    if request.exchange is not ExchangeMode.AUTO:
        return ""
    chosen = choices.answer(EXCHANGES, tuple[ExchangeChoice, ...])
    return exchange_sentence(chosen) if chosen else NOT_YET
