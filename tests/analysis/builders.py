"""Records for tests, made through the real dataclasses and written by the real functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ps_allreduce.point.experiment import Collective, Experiment, Profile
from ps_allreduce.point.placement import Policy, Shard
from ps_allreduce.point.spread import LayoutKind
from ps_allreduce.point.strategies import TRAITS, Strategy
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.files import RunFiles, save_record
from ps_allreduce.record.provenance import Provenance
from ps_allreduce.record.raw_timings import save_raw
from ps_allreduce.record.records import (
    LinkRecord,
    Phases,
    PlacementUsed,
    RunRecord,
    Status,
    TaskRecord,
)
from ps_allreduce.record.steps import EventTable, Metrics, StepTable
from tests.fakes import make_host

PROFILE = Profile(name="quick", repetitions=5)
WORKLOAD = Workload()


def experiment(strategy: Strategy, num_workers: int = 1, **changes: Any) -> Experiment:
    """A point of a strategy, with whatever that strategy needs."""
    settings: dict[str, Any] = {}
    if TRAITS[strategy].uses_servers:
        settings = {
            "num_ps": 2,
            "placement": Policy.ROUND_ROBIN,
            "layout": LayoutKind.COLOCATED,
        }
    if TRAITS[strategy].uses_collective:
        settings = {"collective": Collective.RING, "bytes_per_pack": 0}
    settings |= {"profile": PROFILE} | changes
    if settings.get("placement") is Policy.PARTITIONED:
        settings.setdefault("split_bytes", 4_000_000)
    return Experiment(strategy=strategy, num_workers=num_workers, **settings)


def provenance(**changes: Any) -> Provenance:
    made = Provenance(
        commit="0123abc",
        versions={"python": "3.11.2", "tensorflow": "2.21.0"},
        environment="venv",
        command="python -m experiments compare",
        host="node1",
        system="Linux",
        cpu_model="A processor",
        cpu_count=2,
        cpu_flags=("avx2",),
        memory_bytes=8_000_000_000,
        affinity=(0, 1),
        load_average=0.25,
        settings={"TF_ENABLE_ONEDNN_OPTS": "default"},
        fingerprint="aaaaaaaa",
    )
    return replace(made, **changes)


def metrics(images_per_sec: float, **changes: Any) -> Metrics:
    made = Metrics(
        images_per_sec=images_per_sec,
        step_time_p50_s=0.020,
        step_time_p95_s=0.030,
        compute_s=0.012,
        communication_s=0.008,
        input_wait_s=0.001,
        forward_s=0.004,
        backward_s=0.008,
        warmup_steps=10,
        measured_steps=100,
        window_s=2.0,
        steps_per_worker=(100,),
    )
    return replace(made, **changes)


def placement_used(*loads: int, deviations: tuple[str, ...] = ()) -> PlacementUsed:
    """One shard per server, as planned."""
    return PlacementUsed(
        shards=tuple(
            Shard(variable=index, server=index, num_bytes=load) for index, load in enumerate(loads)
        ),
        variables=tuple(f"v{index}" for index in range(len(loads))),
        bytes_per_server=loads,
        max_over_mean=max(loads) * len(loads) / sum(loads),
        deviations=deviations,
    )


def run(own: Experiment, rate: float | None, repetition: int = 0, **changes: Any) -> RunRecord:
    """An attempt: ok at a rate in images per second, or failed where the rate is None."""
    settings: dict[str, Any] = {
        "sweep": "compare",
        "attempt": 1,
        "status": Status.OK if rate is not None else Status.FAILED,
        "reason": "" if rate is not None else "worker:1 ended with signal 9",
        "started_at": f"2026-01-01T00:{repetition:02d}:00+00:00",
        "finished_at": f"2026-01-01T00:{repetition:02d}:20+00:00",
        "provenance": provenance(),
        "hosts": (make_host("node1"),),
        "oversubscribed": False,
        "total_cores": 2,
        "tasks": tuple(
            TaskRecord(
                task=f"worker:{index}",
                host="node1",
                address="127.0.0.1:1",
                cores=(index,),
                pid=1,
                exit=0,
                cpu_s=3.0,
                peak_memory_bytes=1000 + index,
            )
            for index in range(own.num_workers)
        ),
        "phases": Phases(bring_up_s=1.0, build_s=0.5, first_step_s=0.6, total_s=20.0),
        "metrics": metrics(rate) if rate is not None else None,
        "placement": placement_used(300, 100) if own.num_ps == 2 else None,
        "gradient_bytes": 400,
        "num_tensors": 2,
    }
    return RunRecord(
        experiment=own,
        experiment_id=own.experiment_id,
        repetition=repetition,
        **(settings | changes),
    )


def runs(own: Experiment, rates: Mapping[int, float | None], **changes: Any) -> list[RunRecord]:
    """One attempt for each repetition."""
    return [run(own, rate, repetition, **changes) for repetition, rate in rates.items()]


def on_own_hosts(num_workers: int, bits_per_s: float) -> dict[str, Any]:
    """What `run` needs to know of workers on a host each, with links of equal rate."""
    names = [f"n{index}" for index in range(num_workers)]
    pairs = zip(names, [*names[1:], names[0]], strict=True) if num_workers > 1 else ()
    return {
        "hosts": tuple(make_host(name) for name in names),
        "tasks": tuple(
            TaskRecord(task=f"worker:{index}", host=name, address=f"{name}:1", cores=(0,), pid=1)
            for index, name in enumerate(names)
        ),
        "links": tuple(
            LinkRecord(source=source, target=target, bits_per_s=bits_per_s, round_trip_s=1e-4)
            for source, target in pairs
        ),
    }


def save(sweep: Path, record: RunRecord, raw: bool = True) -> Path:
    """Write a record, and raw timings beside it, where a sweep keeps them."""
    files = RunFiles.of(sweep, record.experiment_id, record.repetition, record.attempt)
    files.record.parent.mkdir(parents=True, exist_ok=True)
    if raw:
        save_raw(files.raw, empty_steps(), empty_events())
    save_record(files.record, record)
    return files.record


def empty_steps() -> StepTable:
    whole, real = np.zeros(0, dtype=np.int64), np.zeros(0)
    return StepTable(
        worker=whole,
        step=whole,
        phase=whole,
        loss=real,
        start=real,
        pulled=real,
        end=real,
        batches=np.zeros((0, 1, 3)),
        releases=np.zeros((0, 0)),
    )


def empty_events() -> EventTable:
    whole = np.zeros(0, dtype=np.int64)
    return EventTable(worker=whole, step=whole, kind=whole, tensor=whole, time=np.zeros(0))
