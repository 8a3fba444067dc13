"""Whether hosts have memory for the batches that their workers train.  Pure.

Decides what is certain beforehand: what a step keeps between its forward and its backward pass is
more than a host has.  Libraries, weights and gradients come on top, so a batch that is accepted may
still be too large.
"""

from __future__ import annotations

from collections import Counter

from ps_allreduce.cluster import TaskType
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import Placed
from ps_allreduce.point.resources import Device
from ps_allreduce.point.workload import Precision

GB = 1e9


def most_together(placed: Placed, *, one_machine: bool) -> int:
    """How many workers share the memory of a host, where most do."""
    hosts = [host for task, host in placed.items() if task.type is TaskType.WORKER]
    return len(hosts) if one_machine else max(Counter(hosts).values())


def refuse_large_batch(
    experiment: Experiment, together: int, kept_values: int, memory_bytes: int
) -> None:
    """See that workers that share a memory may have room in it.

    Args:
        together: workers that share it.
        kept_values: numbers that a step keeps of an example, at least.

    Raises:
        UserError: they certainly have not.
    """
    load = experiment.of_each
    if load.emulated is not None or experiment.resources.device is not Device.CPU:
        return
    value_bytes = 4 if load.precision is Precision.FLOAT32 else 2
    each_bytes = load.batch_per_worker * kept_values * value_bytes
    if together * each_bytes <= memory_bytes:
        return
    workers = f"each of {together} workers, which share" if together > 1 else "a worker, which has"
    raise UserError(
        f"{experiment.title}: a step keeps at least {each_bytes / GB:.1f} GB in {workers} "
        f"{memory_bytes / GB:.1f} GB of memory. Use a smaller --batch-per-worker or --image-size, "
        "or fewer workers on a host."
    )
