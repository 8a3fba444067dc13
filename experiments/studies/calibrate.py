"""A few small runs, from which `make predict` and `make advise` predict larger ones.

Axes: 2 workers and the most; all-reduce, synchronous and asynchronous servers beside every worker,
with the most balanced placement; on emulated hosts also links of a quarter of the rate, elsewhere
a quarter of the batch.

Method: a lone worker shows what a worker computes, and workers that do not communicate show what
shared cores cost.  Two numbers of workers show how far a fit to the smaller one misses the larger.
Slow links, or steps that compute less, show what links carry inside TensorFlow, which computation
hides otherwise.
Every launch is recorded as in any sweep.

Cost: 11 or 12 points in the profile quick, 2 launches of each, under five minutes on two cores.

It should show nothing by itself; its report has sliders, and `make advise` answers from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from experiments.studies.scope import Scope
from experiments.studies.study import Study
from experiments.sweep.sweep import PROFILES, QUICK, STANDARD
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import (
    AsynchronousServers,
    NoCommunication,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.workload import Workload

#: Links are so many times slower, or batches smaller, where links shall limit.
LESS = 4


def _points(scope: Scope) -> Iterator[Experiment]:
    most = scope.scale.workers[-1]
    for workload in scope.workloads:
        yield scope.point(workload, Single, 1)
        yield scope.point(workload, NoCommunication, most)
        for workers in sorted({min(2, most), most}):
            yield from _sending(scope, workload, workers)
        if scope.network is not None:
            yield from _slowed(scope, workload, most)
        elif workload.batch_per_worker >= LESS:
            brief = replace(workload, batch_per_worker=workload.batch_per_worker // LESS)
            yield scope.point(brief, Single, 1)
            yield from _sending(scope, brief, most)


def _sending(scope: Scope, workload: Workload, workers: int) -> Iterator[Experiment]:
    """Variables are placed, and cut, as on the most servers, so that all launches are learned from.

    Predictions learn from launches that differ in the numbers of workers and servers alone.
    """
    servers, most = map(scope.servers_for, (workers, scope.scale.workers[-1]))
    policy, split_bytes = scope.balanced_policy(workload, most), scope.split_bytes(workload, most)
    alike = replace(scope, settings=replace(scope.settings, split_bytes=split_bytes))
    yield scope.reduced(workload, workers)
    for strategy in (SynchronousServers, AsynchronousServers):
        yield alike.served(workload, strategy, workers, servers, policy)


def _slowed(scope: Scope, workload: Workload, workers: int) -> Iterator[Experiment]:
    """The same on slower links; none until a first look has chosen the rate of points."""
    for point in _sending(scope, workload, workers):
        network = point.network
        if network is not None and network.bits_per_s is not None:
            slow = replace(network, bits_per_s=network.bits_per_s / LESS)
            yield replace(point, network=slow)


STUDY = Study(
    about=__doc__,
    points=_points,
    profiles={
        QUICK: PROFILES[QUICK].without_budget(2),
        STANDARD: PROFILES[STANDARD].without_budget(5),
    },
    hosts=4,
)
