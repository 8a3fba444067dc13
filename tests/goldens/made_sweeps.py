"""Small sweeps, made up: one for each kind of thing that is to be told of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from experiments.sweep.definition import Choices, save_definition
from experiments.sweep.sweep import PROFILES, QUICK, Sweep
from ps_allreduce.cluster import TaskType
from ps_allreduce.point import strategies as by
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
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.record.choices import batch_question, rate_question
from ps_allreduce.record.hosts import TcpCounters
from ps_allreduce.record.records import PortRecord, RunRecord, Status, TaskRecord
from ps_allreduce.record.step_table import Phase, StepTable, compute_metrics, concatenate
from tests.analysis.builders import (
    changed,
    links_between,
    metrics,
    placement_used,
    provenance,
    run,
    runs,
    save,
    tasks_on,
    with_wire,
)
from tests.fakes import UNSEEN, make_experiment, make_facts, make_host, make_steps, unseen

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


#: Of every worker.
PHASES = (Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * 100)

#: How much later than the others a step is that waits for a lost packet, and every how many are.
STALL_S, STALL_EVERY = 0.21, 25

#: Hosts of their own.
APART: dict[str, Any] = {"spread": Spread()}

CUT: dict[str, Any] = {"num_ps": 4, "placement": Policy.PARTITIONED}


def write(
    folder: Path,
    records: Iterable[RunRecord],
    name: str = "compare",
    unmade: Iterable[Experiment] = (),
    answers: Mapping[str, object] | None = None,
    job_sizes: tuple[int, ...] = (),
) -> None:
    """Write a sweep of three launches of each point: `unmade` were planned and not made."""
    made = [replace(record, sweep=name) for record in records]
    save_definition(
        Sweep(
            name=name,
            points=tuple(dict.fromkeys([*(record.experiment for record in made), *unmade])),
            profile=PROFILES[QUICK].without_budget(3),
            seed=1,
            job_sizes=job_sizes,
        ),
        Choices(answers=dict(answers or {})),
        folder,
    )
    for record in made:
        if record.metrics is None:
            save(folder, record)
            continue
        steps = _steps_of(record, record.metrics.examples_per_sec)
        metrics = compute_metrics(steps, record.experiment.workload.examples_per_step)
        save(folder, replace(record, metrics=metrics), steps=steps)


def _steps_of(record: RunRecord, rate: float) -> StepTable:
    """Each worker computes a little longer than the one before it, and in turn a little longer."""
    own, numbers = record.experiment, np.arange(len(PHASES), dtype=np.float64)
    step_s = own.global_batch / rate
    lengths = np.full(len(PHASES), step_s)
    lengths[::STALL_EVERY] += STALL_S if record.port_drops else 0.0
    tables = [
        make_steps(
            worker,
            [float(end) for end in np.cumsum(lengths)],
            PHASES,
            pull_s=0.02 * step_s,
            wait_s=0.01 * step_s,
            compute_s=(0.04 + 0.05 * step_s)
            * (1 + 0.02 * worker + 0.01 * ((numbers + worker) % 3)),
        )
        for worker in range(own.num_workers)
    ]
    steps = concatenate(tables)
    return unseen(steps) if own.strategy.as_shipped else steps


def _on_cluster(record: RunRecord, cpu_model: str = "A processor", **changes: Any) -> RunRecord:
    """The same run on hosts that are not emulated, two below each switch."""
    hosts = []
    for number, name in enumerate(host.name for host in record.hosts):
        switch = f"core.leaf{number // 2}.{name}"
        facts = make_facts(name, scheduler_name=name, switch=switch, cpu_model=cpu_model)
        hosts.append(make_host(name, facts=facts, interface=facts.interfaces[1]))
    return replace(record, hosts=tuple(hosts), machine_busy=None, **changes)


def quick(folder: Path) -> None:
    """On emulated hosts, with what a first look chose."""
    chosen = {rate_question("SmallCNN"): LINK, batch_question("SmallCNN"): 16}
    write(folder, sweep(COMPARED), answers=chosen)


def slurm(folder: Path) -> None:
    """A job of two hosts and one of four, each with the base."""
    where: dict[str, Any] = {"launcher": "slurm", **APART}
    alone = {make_experiment(by.Single, 1, **where): 240.0}
    two = {
        make_experiment(by.AllReduce, 2, **where): 400.0,
        make_experiment(by.SynchronousServers, 2, **where): 330.0,
    }
    four = {
        make_experiment(by.AllReduce, 4, **where): 690.0,
        make_experiment(by.SynchronousServers, 4, **CUT, **where): 640.0,
        make_experiment(by.AsynchronousServers, 4, num_ps=4, **where): 600.0,
    }
    later = sweep(alone | four, seed=2, day=2)
    records = [_on_cluster(each, job_id="7") for each in sweep(alone | two)]
    records += [_on_cluster(r, job_id="8", repetition=1000 + r.repetition) for r in later]
    write(folder, records, job_sizes=(2, 4))


def missing(folder: Path) -> None:
    """Of a point one launch failed, others timed out, were interrupted or are not made yet."""
    *made, timed_out, interrupted, unmade = COMPARED
    late: Any = {"status": Status.TIMED_OUT, "reason": "it took longer than 60 s"}
    stopped: Any = {"status": Status.INTERRUPTED, "reason": "worker:0 ended with signal 2"}
    *records, _ = sweep({own: COMPARED[own] for own in made})  # the last launch of the last one
    records += [failed(made[-1], 2), replace(failed(made[-1], 2), attempt=2)]
    records += [replace(failed(timed_out, turn), **late) for turn in range(3)]
    records.append(replace(failed(interrupted, 0), **stopped))
    write(folder, records, unmade=[unmade])


def undecided(folder: Path) -> None:
    """On one machine, of one point two launches only."""
    rates: Mapping[type[by.AnyStrategy], dict[int, float | None]] = {
        by.Single: {0: 240.0, 1: 250.0, 2: 236.0},
        by.AllReduce: {0: 350.0, 1: 450.0, 2: 400.0},
        by.SynchronousServers: {0: 410.0, 1: 340.0, 2: 440.0},
        by.AsynchronousServers: {0: 420.0, 1: 390.0},
    }
    write(
        folder,
        # As they are launched on two cores: with servers, tasks have fewer than they use.
        [
            record
            for own in rates
            for record in runs(make_experiment(own), rates[own], oversubscribed=own.uses_servers)
        ],
    )


def blocks(folder: Path) -> None:
    """Other hosts at first, then other software."""
    rates = {
        make_experiment(by.AllReduce, 4, launcher="ssh", **APART): 690.0,
        make_experiment(by.SynchronousServers, 4, num_ps=4, launcher="ssh", **APART): 520.0,
    }
    old = {"python": "3.11.2", "tensorflow": "2.20.0"}
    software = provenance(fingerprint="bbbbbbbb", versions=old)
    hosts = provenance(fingerprint="cccccccc")
    first, second, third = (sweep(rates, seed=day, day=day) for day in (1, 2, 3))
    records = [_on_cluster(record, "An older one", provenance=hosts) for record in first]
    records += [_on_cluster(record, provenance=software, attempt=2) for record in second]
    write(folder, [*records, *(_on_cluster(record, attempt=3) for record in third)])


def tuning(folder: Path) -> None:
    """A few settings of the exchange, one at a time."""
    ring = point(by.AllReduce, 4, bytes_per_pack=None)
    synchronous, free = point(by.SynchronousServers, 4, **CUT), point(by.NoCommunication, 4)
    asynchronous = point(by.AsynchronousServers, 4, **CUT)
    rates = {point(by.Single, 1): 240.0, free: 930.0}
    rates |= {ring: 600.0, point(by.AllReduce, 4): 480.0, with_wire(ring, Wire(in_flight=1)): 510.0}
    rates |= {synchronous: 560.0, with_wire(synchronous, Wire(gradients=WireType.FLOAT16)): 670.0}
    rates |= {asynchronous: 580.0, changed(asynchronous, staleness=1): 575.0}
    write(folder, sweep(rates), "tuning-sweep")


def placement(folder: Path) -> None:
    """All placements on four servers, and round robin on two."""
    wanted = {point(by.Single, 1), point(by.SynchronousServers, 4, num_ps=2)}
    wanted |= {point(by.SynchronousServers, 4, num_ps=4, placement=policy) for policy in Policy}
    rates = {own: rate for own, rate in served_points((2, 4)).items() if own in wanted}
    write(folder, sweep(rates), "placement-sweep")


def loss(folder: Path) -> None:
    """Ports that hold little: several servers at once send one worker more than they take."""
    network = EmulatedNetwork(num_hosts=4, bits_per_s=LINK, port_buffer_bytes=100_000)
    points = point(by.AllReduce, 4), point(by.SynchronousServers, 4, **CUT)
    rates = {replace(own, network=network): 690.0 for own in points}
    write(folder, map(_with_drops, sweep(rates, spread=0.2)))


def _with_drops(record: RunRecord) -> RunRecord:
    """Four hundred packets at each port towards a worker of servers."""
    dropped = 400 if record.experiment.num_ps else 0
    counted = TcpCounters(sent=55_000, sent_again=dropped + 25, probes=25, timeouts=dropped // 50)
    return replace(
        record,
        hosts=tuple(replace(host, tcp=counted) for host in record.hosts),
        ports=tuple(PortRecord(host=host.name, dropped=dropped) for host in record.hosts),
    )


SWEEPS = {
    each.__name__: each
    for each in (quick, slurm, missing, undecided, blocks, tuning, placement, loss)
}
