"""Sweeps as large as real ones, made up: for pages and figures that are looked at as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from ps_allreduce.cluster import TaskType
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AsynchronousServers,
    Single,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.record.records import RunRecord, TaskRecord
from tests.analysis.builders import links_between, metrics, placement_used, run, tasks_on
from tests.fakes import UNSEEN, make_experiment, make_host

HOSTS = ("n0", "n1", "n2", "n3")
LINK = 1.5e8

#: Trainable bytes on each of four servers.
LOADS: Mapping[Policy, tuple[int, ...]] = {
    Policy.ROUND_ROBIN: (590_000, 3_000, 3_000, 4_000),
    Policy.GREEDY: (180_000, 150_000, 140_000, 130_000),
    Policy.LARGEST_FIRST: (152_000, 150_000, 149_000, 149_000),
    Policy.PARTITIONED: (150_000, 150_000, 150_000, 150_000),
}

_WHERE: dict[str, Any] = {
    "launcher": "emulated",
    "spread": Spread(),
    "network": EmulatedNetwork(num_hosts=4, bits_per_s=LINK),
}


def point(strategy: Any, workers: int, **settings: Any) -> Experiment:
    """A point on emulated hosts."""
    return make_experiment(strategy, workers, **_WHERE, **settings)


#: Points like those of `make compare`, with their rates.
COMPARED: Mapping[Experiment, float] = {
    point(Single, 1): 240.0,
    point(AllReduce, 1): 238.0,
    point(AllReduce, 4): 690.0,
    point(AsynchronousServers, 1, num_ps=1): 231.0,
    point(AsynchronousServers, 4, num_ps=4, placement=Policy.PARTITIONED): 720.0,
    point(SynchronousServers, 1, num_ps=1): 228.0,
    point(SynchronousServers, 4, num_ps=4): 362.0,
    point(SynchronousServers, 4, num_ps=4, placement=Policy.PARTITIONED): 640.0,
    point(StockServers, 4, num_ps=4): 301.0,
    point(StockAllReduce, 4): 488.0,
}


def served_points(counts: Iterable[int] = (1, 2, 4)) -> dict[Experiment, float]:
    """Points like those of `make ps-sweep`, with all-reduce beside them."""
    rates = {point(Single, 1): 240.0}
    for workers in (2, 4):
        rates[point(AllReduce, workers)] = 150.0 * workers
        for strategy, share in ((AsynchronousServers, 1.1), (SynchronousServers, 1.0)):
            for count in counts:
                for policy, loads in LOADS.items():
                    hottest = max(loads[:count]) / sum(loads[:count])
                    rate = 170.0 * workers * share / (0.6 + 0.8 * hottest)
                    rates[point(strategy, workers, num_ps=count, placement=policy)] = rate
    return rates


def sweep(
    rates: Mapping[Experiment, float],
    launches: int = 3,
    spread: float = 0.04,
    seed: int = 1,
    day: int = 1,
) -> list[RunRecord]:
    """Launches of all points in turn, with a spread of so much."""
    random, begun = Random(seed), datetime(2026, 1, day, tzinfo=UTC)
    made = [
        _launch(own, rate * random.lognormvariate(0.0, spread), turn)
        for turn in range(launches)
        for own, rate in rates.items()
    ]
    return [
        _at(record, begun + timedelta(seconds=8 * number)) for number, record in enumerate(made)
    ]


def failed(own: Experiment, turn: int) -> RunRecord:
    """A launch that came to nothing, after all others."""
    return _at(run(own, None, turn, **_around(own)), datetime(2026, 1, 1, 1, tzinfo=UTC))


def _at(record: RunRecord, begun: datetime) -> RunRecord:
    ended = begun + timedelta(seconds=7)
    return replace(record, started_at=begun.isoformat(), finished_at=ended.isoformat())


def _launch(own: Experiment, rate: float, turn: int) -> RunRecord:
    step_s = own.global_batch / rate
    parts: dict[str, Any] = {
        "step_time_p50_s": step_s * 0.96,
        "step_time_p95_s": step_s * 1.3,
        "compute_s": min(step_s * 0.8, 0.06),
        "input_wait_s": step_s * 0.01,
    }
    parts["communication_s"] = step_s - parts["compute_s"] - parts["input_wait_s"]
    parts |= {"forward_s": parts["compute_s"] / 3, "backward_s": parts["compute_s"] / 1.5}
    unseen = UNSEEN if own.strategy.as_shipped else {}
    return run(own, rate, turn, metrics=metrics(rate, **parts | unseen), **_around(own))


def _around(own: Experiment) -> dict[str, Any]:
    """Hosts and what they did, of a point with a worker, and perhaps a server, on each."""
    names = HOSTS[: max(own.num_workers, own.num_ps)]
    loads = LOADS[own.strategy.servers.placement] if own.strategy.servers else ()
    tasks = {f"worker:{number}": names[number] for number in range(own.num_workers)}
    tasks |= {f"ps:{number}": names[number] for number in range(own.num_ps)}
    return {
        "hosts": tuple(make_host(name) for name in names),
        "tasks": _sharing_cores(tasks_on(tasks)),
        "links": links_between(names, LINK * 0.95),
        "gradient_bytes": 600_000,
        "machine_busy": 0.5,
        "placement": placement_used(*loads[: own.num_ps]) if loads else None,
        "oversubscribed": False,
    }


def _sharing_cores(tasks: tuple[TaskRecord, ...]) -> tuple[TaskRecord, ...]:
    """Servers beside a worker use its cores, as the suite deals them."""
    of_workers = {task.host: task.cores for task in tasks if task.task.startswith(TaskType.WORKER)}
    return tuple(replace(task, cores=of_workers.get(task.host, task.cores)) for task in tasks)
