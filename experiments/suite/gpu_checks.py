"""What the checklist for GPUs makes of the runs that it is shown.  Pure.

Decides when an item has passed.  Which points are run, and in which order, is decided in
`accept_gpu`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from analysis.wording import count_text
from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.record.hosts import GpuSample, HostFacts
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.record.variables import Values

#: Of the weights after eleven steps, relative to the largest.  Processors differ from each other by
#: 1e-6, a server that is read too early by 4e-2, a sum in the place of a mean by 0.9.
TOLERANCE = 5e-3

#: A GPU that works for five seconds is seen ten times.
FEWEST_SAMPLES = 5


class ItemVerdict(StrEnum):
    """How an item went."""

    PASSED = "passed"
    FAILED = "FAILED"
    IMPOSSIBLE = "not possible here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A line of the checklist.

    Attributes:
        detail: what was found, or why it is not possible.
        run: of the record that tells more; empty if there is none.
    """

    name: str
    verdict: ItemVerdict
    detail: str
    run: str = ""

    def __str__(self) -> str:
        return f"[{self.verdict}] {self.name}: {self.detail}"


def _item(name: str, passed: bool, detail: str, record: RunRecord | None = None) -> Item:
    verdict = ItemVerdict.PASSED if passed else ItemVerdict.FAILED
    return Item(name=name, verdict=verdict, detail=detail, run=record.run_id if record else "")


def impossible(name: str, why: str) -> Item:
    """What cannot be tried on these hosts."""
    return Item(name=name, verdict=ItemVerdict.IMPOSSIBLE, detail=why)


def _ending(record: RunRecord) -> str:
    """How a run ended, and why."""
    return ": ".join(filter(None, [record.status, record.reason]))


def judge_driver(hosts: Sequence[HostFacts]) -> Item:
    """The driver answers through NVML, and says what the GPUs are."""
    models = {
        f"{gpu.model} ({(gpu.memory_bytes or 0) / 2**30:.0f} GiB, compute capability "
        f"{gpu.compute_capability or '?'}, driver {gpu.driver or '?'})"
        for host in hosts
        for gpu in host.gpus
    }
    count = sum(len(host.gpus) for host in hosts)
    passed = all(gpu.driver and gpu.memory_bytes for host in hosts for gpu in host.gpus)
    where = f"{count_text(count, 'GPU')} on {count_text(len(hosts), 'host')}"
    detail = f"{where}: {', '.join(sorted(models))}"
    if not passed:
        detail = f"NVML does not answer (is nvidia-ml-py installed?); {detail}"
    return _item("driver and NVML", passed, detail)


def judge_visibility(record: RunRecord) -> Item:
    """Every worker saw a GPU of its own, as planned; servers and chief saw none.

    That TensorFlow found the same, every task has checked before it began.
    """
    granted = {host.name: {gpu.identity for gpu in host.facts.gpus} for host in record.hosts}
    wrong, taken = [], set()
    for task in record.tasks:
        is_worker = TaskId.parse(task.task).type is TaskType.WORKER
        has_its_own = (
            task.gpus in granted.get(task.host, ()) and (task.host, task.gpus) not in taken
        )
        taken.add((task.host, task.gpus))
        if has_its_own != is_worker or (not is_worker and task.gpus):
            wrong.append(f"{task.task} on {task.host} saw {task.gpus!r}")
    passed = record.status is Status.OK and not wrong
    seen = ", ".join(f"{task.task} {task.gpus or 'none'}" for task in record.tasks)
    detail = seen if passed else "; ".join(wrong) or record.reason
    return _item("workers see the planned GPUs, servers none", passed, detail, record)


def difference(weights: Values, reference: Values) -> float:
    """The largest difference of a weight, relative to the largest of its variable."""
    return max(
        float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-3))
        for a, b in zip(weights, reference, strict=True)
    )


def judge_weights(name: str, record: RunRecord, weights: Values, reference: Values) -> Item:
    """A run on GPUs trained what a single worker trains on processors."""
    if record.status is not Status.OK:
        return judge_run(name, record)
    distance = difference(weights, reference) if weights else float("inf")
    detail = "it left no weights"
    if weights:
        detail = f"weights differ from those on processors by {distance:.1e}"
        detail += f" (allowed: {TOLERANCE:.0e})"
    return _item(f"trains: {name}", distance < TOLERANCE, detail, record)


def judge_nccl(item: Item, log: str) -> Item:
    """All-reduce went through NCCL, as it says itself under NCCL_DEBUG=VERSION."""
    version = re.search(r"NCCL version \S+", log)
    if version is not None:
        return replace(item, detail=f"{version[0]}; {item.detail}")
    detail = "NCCL did not print its version: not used, or NCCL_DEBUG did not reach the hosts"
    return replace(item, verdict=ItemVerdict.FAILED, detail=f"{detail}; {item.detail}")


def judge_run(name: str, record: RunRecord) -> Item:
    """A run came to its end and was valid."""
    passed = record.status is Status.OK
    rate = record.metrics.examples_per_sec if record.metrics else 0.0
    detail = (
        f"{rate:.0f} {record.experiment.workload.unit.counted}/s" if passed else _ending(record)
    )
    return _item(f"trains: {name}", passed, detail, record)


def judge_samples(record: RunRecord) -> Item:
    """The GPU that worked was seen at work."""
    used = {task.gpus for task in record.tasks}
    looks = [gpu for s in record.samples for gpu in s.gpus if gpu.identity in used]
    at_work = [look for look in looks if look.utilisation is None or look.utilisation > 0]
    idle = len(looks) - len(at_work)
    detail = f"{count_text(len(looks), 'sample')}, {idle} known to be idle: {_summary(looks)}"
    if record.status is not Status.OK:
        detail = _ending(record)
    if record.warnings:
        detail += f"; warnings: {'; '.join(record.warnings)}"
    passed = record.status is Status.OK and len(at_work) >= FEWEST_SAMPLES
    return _item("samples of GPUs are recorded", passed, detail, record)


def _summary(looks: Sequence[GpuSample]) -> str:
    """The largest of every value, or that it is not told."""
    names: Mapping[str, str] = {
        "utilisation": "utilisation {:.0%}",
        "memory_bytes": "memory {:,.0f} bytes",
        "sm_mhz": "SM {} MHz",
        "memory_mhz": "memory {} MHz",
        "power_w": "{:.0f} W",
        "temperature_c": "{} degrees",
    }
    parts = []
    for name, text in names.items():
        values = [value for look in looks if (value := getattr(look, name)) is not None]
        parts.append(text.format(max(values)) if values else f"{name} not told")
    return ", ".join(parts)


def judge_out_of_memory(record: RunRecord | None) -> Item:
    """A batch that is too large failed, and the reason says why.

    Args:
        record: None where there is no such batch.
    """
    name = "want of memory is told as such"
    if record is None:
        unknown = "the GPU's memory is not known, or the host has too little for such a batch"
        return impossible(name, unknown)
    told = "out of memory" in record.reason and "host" not in record.reason
    passed = record.status is Status.FAILED and told
    detail = f"batch {record.experiment.workload.batch_per_worker}: {_ending(record)}"
    return _item(name, passed, detail, record)
