"""How gradients travel where nobody states it: in buckets, or whole.  Pure.

Buckets let links carry what is ready while the rest is computed, packed and added, and every
message costs processor time.  Whole gradients are fewer messages, or one, and links wait.  Decides
which of the two is dearer.  Where the constants come from, and how often the rule is right:
`docs/performance.md`, "What `auto` chooses".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ps_allreduce.bounds import nominal_network_s
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.wire import Wire
from ps_allreduce.record.exchanges import ExchangeChoice, ExchangeMode

#: What a server gets at first and at last is cut smaller, down to the second size: into so many
#: messages at least and at most.
BUCKET_BYTES, SMALLEST_BYTES = Wire().cut_bytes, 65_536
FEWEST_SMALLER, MOST_SMALLER = 2, 4

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
    saved = _extra_messages(point, sizes) * MESSAGE_S / cores
    waiting = nominal_network_s(point, sum(sizes), bits_per_s)
    if point.strategy.uses_collective:
        waiting += PACKING_S * sum(sizes)
    return ExchangeChoice(
        model=point.workload.model.name,
        strategy=point.strategy.kind,
        mode=ExchangeMode.WHOLE if saved > waiting else ExchangeMode.BUCKETS,
        num_workers=point.num_workers,
        cores=cores,
        bits_per_s=bits_per_s if math.isfinite(bits_per_s) else None,
        saved_s=saved,
        waiting_s=waiting,
    )


def _extra_messages(point: Experiment, sizes: Sequence[int]) -> float:
    """How many more messages all workers send in buckets than whole, about."""
    size, workers, servers = sum(sizes), point.num_workers, point.num_ps
    if servers:  # each gradient goes there, and its new value comes back
        return workers * 2 * (servers * _buckets(size / servers, BUCKET_BYTES) - len(sizes))
    return workers * 2 * (workers - 1) * (_buckets(size, workers * BUCKET_BYTES) - 1)


def _buckets(num_bytes: float, bucket_bytes: float) -> float:
    """How many buckets so many bytes fill, about."""
    smaller = min(max(num_bytes / SMALLEST_BYTES, FEWEST_SMALLER), MOST_SMALLER)
    return num_bytes / bucket_bytes + smaller
