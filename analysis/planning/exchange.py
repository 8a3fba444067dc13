"""How gradients travel where nobody states it: in buckets, or whole.  Pure.

Where links are the limit, buckets keep them busy.  Where processors are, every message costs: whole
gradients are fewer messages, or one.  Decides which of the two is the limit.  Where the constants
come from, and how often the rule is right: `docs/performance.md`, "What `auto` chooses".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ps_allreduce.bounds import nominal_network_s
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.wire import Wire
from ps_allreduce.record.choices import ExchangeChoice, ExchangeMode

#: What a server gets at first and at last is cut smaller, down to the second size: into so many
#: messages at least and at most.
BUCKET_BYTES, SMALLEST_BYTES = Wire().cut_bytes, 65_536
FEWEST_SMALLER, MOST_SMALLER = 2, 4

#: Processor time of all tasks for a byte of a worker's gradients, in however many messages.
BYTE_S = 3.9e-9

#: Processor time of both ends of a message, whatever its size.
MESSAGE_S = 0.3e-3

#: Time of a byte in which one pack is filled and added up, and its worker sends nothing.
PACKING_S = 1.5e-9


def choose_exchange(
    point: Experiment, sizes: Sequence[int], cores: int, bits_per_s: float
) -> ExchangeChoice:
    """How the gradients of a strategy travel.

    Args:
        point: of that strategy, with the workers and servers that the choice is for.
        sizes: bytes of every gradient of a worker.
        cores: of all tasks together.
        bits_per_s: rate of the slowest link; infinite where nothing limits it.
    """
    size, (in_buckets, whole) = sum(sizes), _messages(point, sizes)
    network_s = nominal_network_s(point, size, bits_per_s)
    processor_s = (point.num_workers * size * BYTE_S + in_buckets * MESSAGE_S) / cores
    packing_s = PACKING_S * size if point.strategy.uses_collective else 0.0
    saved_s = (in_buckets - whole) * MESSAGE_S / cores - packing_s
    suits = processor_s > network_s and saved_s > 0
    return ExchangeChoice(
        model=point.workload.model.name,
        strategy=point.strategy.kind,
        mode=ExchangeMode.WHOLE if suits else ExchangeMode.BUCKETS,
        num_workers=point.num_workers,
        num_ps=point.num_ps,
        cores=cores,
        bits_per_s=bits_per_s if math.isfinite(bits_per_s) else None,
        network_s=network_s,
        processor_s=processor_s,
        saved_s=saved_s,
    )


def _messages(point: Experiment, sizes: Sequence[int]) -> tuple[float, float]:
    """How many messages all workers send in a step in buckets, about, and whole."""
    size, workers, servers = sum(sizes), point.num_workers, point.num_ps
    if servers:  # each gradient goes there, and its new value comes back
        in_buckets = servers * _buckets(size / servers, BUCKET_BYTES)
        return 2 * workers * in_buckets, 2 * workers * len(sizes)
    ring = 2 * workers * (workers - 1)
    return ring * _buckets(size, workers * BUCKET_BYTES), ring


def _buckets(num_bytes: float, bucket_bytes: float) -> float:
    """How many buckets so many bytes fill, about."""
    smaller = min(max(num_bytes / SMALLEST_BYTES, FEWEST_SMALLER), MOST_SMALLER)
    return num_bytes / bucket_bytes + smaller
