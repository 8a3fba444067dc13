"""A few small runs from which `make predict` and `make advise` tell what larger ones would do.

Axes: 2 workers and the most; all-reduce, synchronous and asynchronous servers beside every worker,
with the most balanced placement; on emulated hosts also links of a quarter of the rate.

Method: what a worker computes, a lone one tells, and workers that do not communicate tell what
shared cores cost.  Two numbers of workers tell how far a fit to the smaller one misses the larger.
Slow links tell what links carry inside TensorFlow: nothing else does where computation hides them.
Every launch is recorded as in any sweep.

Cost: 11 points in the profile quick, 2 launches of each, under five minutes on two cores.

It should show nothing by itself: ask `make predict`.
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

#: Links are slowed by so much for the point that they limit.
SLOWED = 4


def _points(scope: Scope) -> Iterator[Experiment]:
    most = scope.scale.workers[-1]
    for workload in scope.workloads:
        yield scope.point(workload, Single, 1)
        yield scope.point(workload, NoCommunication, most)
        for workers in sorted({min(2, most), most}):
            yield from _sending(scope, workload, workers)
        if scope.network is not None and scope.network.bits_per_s is not None:
            slow = replace(scope.network, bits_per_s=scope.network.bits_per_s / SLOWED)
            for point in _sending(scope, workload, most):
                yield replace(point, network=slow)


def _sending(scope: Scope, workload: Workload, workers: int) -> Iterator[Experiment]:
    servers = scope.servers_for(workers)
    policy = scope.balanced_policy(workload, servers)
    yield scope.reduced(workload, workers)
    for strategy in (SynchronousServers, AsynchronousServers):
        yield scope.served(workload, strategy, workers, servers, policy)


STUDY = Study(
    about=__doc__,
    points=_points,
    profiles={
        QUICK: PROFILES[QUICK].without_budget(2),
        STANDARD: PROFILES[STANDARD].without_budget(5),
    },
    hosts=4,
)
