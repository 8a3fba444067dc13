"""Small sweeps, made up: one for each kind of thing that is to be told of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.sweep.definition import Choices, save_definition
from experiments.sweep.sweep import PROFILES, QUICK, Sweep
from ps_allreduce.point import strategies as by
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.record.choices import batch_question, rate_question
from ps_allreduce.record.hosts import TcpCounters
from ps_allreduce.record.records import PortRecord, RunRecord, Status
from ps_allreduce.record.step_table import Phase, StepTable, compute_metrics, concatenate
from tests.analysis.builders import changed, provenance, runs, save, with_wire
from tests.analysis.made_up import COMPARED, LINK, failed, point, served_points, sweep
from tests.fakes import make_experiment, make_facts, make_host, make_steps, unseen

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
