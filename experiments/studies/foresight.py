"""Predictions before the runs: what 4 and 8 workers do, from launches of 1 and 2.

Axes: ResNet50's variables (hundreds of small ones), VGG16's (one holds most bytes) and BERT-base's
(one of a fifth); with and without computation; links of 40, 80 and 160 Mbit/s; 4 and 8 workers;
six synchronous settings: a ring with small packs and with one, servers beside every worker with
partitioned variables (balanced) or whole ones (round robin and greedy, unbalanced), and partitioned
variables on half as many servers.

Method: each setting is launched with 2 workers on links of 100 Mbit/s, with and without
computation, and on links of 25 Mbit/s without; each model also alone.  Predictions are written
then, and never again, before the first predicted run; none of the three links was calibrated.
Every model with each kind of computation and each number of workers is a question: it has one link,
in turn, and all six settings, so that the advised one can be compared with the best; asynchronous
servers are asked for beside some.  Accelerators are emulated, so that cores are mostly idle; all
hosts share two of them here.  Points whose processors were more than 85 % busy are scored apart.
Buckets are small, as models are.

Scored apart, because no calibrating launch shows it: heavy-tailed jitter of computation, background
traffic, an uplink between two racks that is slower than a host's link, a slow host, and ports of 32
KiB.  Each of them is launched with the first model, as a ring and with partitioned servers, on 4
workers; the uplink on all hosts.  Without 4 workers there are none.

Cost: 51 calibrating points and 86 predicted ones, 2 launches of each, about 75 minutes; of one
model (--model ResNet50/64 --batch-per-worker 16 --emulate 0.0833,0.1667 --hosts 4 --workers 4), 20
minutes.

It should show mean errors of steps of 5 % (8 % at four times the scale), 90th percentiles of 10 %
(15 %), 80 to 97 % of the points inside their intervals, and advice that costs 5 % at most.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from experiments.studies.scope import Scope
from experiments.studies.study import QUICK_DEADLINE_S, SmallForm, Study, emulated
from experiments.sweep.sweep import QUICK, Profile
from ps_allreduce.errors import UserError
from ps_allreduce.point.accelerators import Distribution, Jitter
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.network import EmulatedNetwork, Traffic
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import AsynchronousServers, Single, SynchronousServers
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import Workload

#: Each so many times smaller.
MODELS = {"ResNet50": 64, "VGG16": 512, "BERT-base": 256}

#: Of a step that computes, and of one that only communicates.
COMPUTED_S, NOTHING_S = 0.25, 0.003

BATCH = 16

#: Bits per second of links, of what is predicted.
RATES = (40e6, 80e6, 160e6)

#: Of what is calibrated, and where links limit it.
CALIBRATED, SATURATED = 100e6, 25e6

CALIBRATED_WORKERS, WORKERS = 2, (4, 8)

MESSAGE_BYTES = 50_000

MEASURED = Measurement(
    warmup=FixedWarmup(least_steps=2, least_s=0.5), measured_steps=6, measured_s=3.0
)

#: With the heaviest tail that an emulated accelerator takes, and steps that show it.
JITTER = Jitter(distribution=Distribution.LOGNORMAL, variation=0.5)
STEPS_OF_CHANCE = 40

#: Bytes that may wait at a shallow port.
SHALLOW = 32 << 10

#: Bits per second of traffic, of a slow host's link, and of an uplink.
HALF = RATES[0] / 2


def _points(scope: Scope) -> Iterator[Experiment]:
    """What is predicted; links change with each question."""
    for number, model in enumerate(_models(scope)):
        for (turn, workload), (more, workers) in itertools.product(
            enumerate(model), enumerate(scope.scale.workers)
        ):
            rate = RATES[(number + turn + more) % len(RATES)]
            yield from (_on_links(p, rate) for p in _candidates(scope, workload, workers))
    first, *_ = _models(scope)
    for workload, workers in itertools.product(first, scope.scale.workers):
        yield _on_links(_asynchronous(scope, workload, workers), RATES[1])
    if WORKERS[0] in scope.scale.workers:
        yield from _disturbed(scope, first[0])


def _disturbed(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    """What is scored apart: links, or passes, that no calibrating launch has."""
    for point in _sending(scope, workload, WORKERS[0]):
        yield _with_links(point, traffic=(Traffic(bits_per_s=HALF),))
        yield _with_links(point, slow_host=point.num_workers - 1, slow_bits_per_s=HALF)
        yield _measured_longer(_with_links(point, port_buffer_bytes=SHALLOW))
        if workload.emulated is not None:
            restless = replace(workload, emulated=replace(workload.emulated, jitter=JITTER))
            yield _on_links(_measured_longer(replace(point, workload=restless)), RATES[-1])
    hosts = _network(scope.reduced(workload, WORKERS[0])).num_hosts
    for point in _sending(scope, workload, hosts):
        yield _with_links(point, racks=2, uplink_bits_per_s=HALF)


def _with_links(point: Experiment, **changes: Any) -> Experiment:
    return replace(point, network=replace(_network(point), bits_per_s=RATES[0], **changes))


def _measured_longer(point: Experiment) -> Experiment:
    """In a few steps chance decides what is drawn, or lost."""
    return replace(point, measurement=replace(MEASURED, measured_steps=STEPS_OF_CHANCE))


def _calibration(scope: Scope) -> Iterator[Experiment]:
    for number, own in enumerate(_models(scope)):
        idle = own[-1]
        yield _on_links(scope.point(idle, Single, 1), CALIBRATED)
        for workload, rate in (*((each, CALIBRATED) for each in own), (idle, SATURATED)):
            points = [*_settings(scope, workload, CALIBRATED_WORKERS)]
            if number == 0:
                points.append(_asynchronous(scope, workload, CALIBRATED_WORKERS))
            yield from (_on_links(point, rate) for point in points)


def _models(scope: Scope) -> list[Sequence[Workload]]:
    """The workloads of each model, the one that only communicates last."""
    grouped = itertools.groupby(scope.workloads, key=lambda each: each.model)
    return [tuple(own) for _, own in grouped]


def _settings(scope: Scope, workload: Workload, workers: int) -> Iterator[Experiment]:
    """What is calibrated, and asked for."""
    yield from _sending(scope, workload, workers)
    yield scope.reduced(workload, workers, bytes_per_pack=0)
    for policy in (Policy.ROUND_ROBIN, Policy.GREEDY):
        yield scope.served(workload, SynchronousServers, workers, workers, policy)


def _candidates(scope: Scope, workload: Workload, workers: int) -> Iterator[Experiment]:
    """Those of one question; fewer servers learn from launches with one for every worker."""
    yield from _settings(scope, workload, workers)
    yield scope.served(workload, SynchronousServers, workers, workers // 2, Policy.PARTITIONED)


def _sending(scope: Scope, workload: Workload, workers: int) -> Iterator[Experiment]:
    """A ring, and servers with equal loads."""
    yield scope.reduced(workload, workers)
    yield scope.served(workload, SynchronousServers, workers, workers, Policy.PARTITIONED)


def _asynchronous(scope: Scope, workload: Workload, workers: int) -> Experiment:
    return scope.served(workload, AsynchronousServers, workers, workers, Policy.PARTITIONED)


def _on_links(point: Experiment, bits_per_s: float) -> Experiment:
    return replace(point, network=replace(_network(point), bits_per_s=bits_per_s))


def _network(point: Experiment) -> EmulatedNetwork:
    if point.network is None:
        raise UserError("foresight changes the links of emulated hosts: use LAUNCHER=emulated.")
    return point.network


STUDY = Study(
    about=__doc__,
    points=_points,
    profiles={
        QUICK: Profile(name=QUICK, measurement=MEASURED, repetitions=2, deadline_s=QUICK_DEADLINE_S)
    },
    small=SmallForm(
        workloads=tuple(
            emulated(model, divisor=divisor, batch=BATCH, step_s=step_s)
            for model, divisor in MODELS.items()
            for step_s in (COMPUTED_S, NOTHING_S)
        ),
        workers=WORKERS,
        hosts=max(WORKERS),
        settings=StrategySettings(
            split_bytes=MESSAGE_BYTES, group_bytes=MESSAGE_BYTES, cut_bytes=MESSAGE_BYTES
        ),
    ),
    calibration=_calibration,
)
