"""Parameter servers against all-reduce, every strategy end to end.

Axes: every strategy x workers, and for synchronous servers two placements: round robin, as
TensorFlow places variables by itself, and the most balanced other one, which need not be the
fastest.  Asynchronous servers, which train in another way, have the most balanced.  There are as
many servers as workers, or as hosts that are named for servers, unless stated; TensorFlow's own,
which cut no variable, are at most as many as variables.  Then, at the most
workers, Horovod where it is installed, one of the all-reduce settings, and TensorFlow as it ships:
its servers and its all-reduce.  In the profile standard also its servers with 8 steps per
dispatch and with joined rounds, and its all-reduce with RING.

Method: all points share one machine, one model and one batch per worker.  Where servers have hosts
of their own, all-reduce is measured on as many hosts as well.  On one server every placement is the
same and is measured once.  Bases are a single worker and workers that do not communicate.  The
profile quick has one worker and the most; where workers share cores, the most alone, and as many
that do not communicate.  The profile standard first tunes both sides, in a fifth of its time, and
measures their best settings as well.

A recommender model is compared with sparse embeddings, unless dense ones are stated: all-reduce,
both kinds of servers, the hybrid, servers with rows in ranges as TensorFlow shards them; beside
these all-reduce of whole tables, and TensorFlow as it ships.  All variables but tables have the
most balanced placement.

Cost: 8 to 11 points per model in the profile quick, which takes five minutes, or ten on two
cores.

It should show which strategy is faster here, by how much, what placement alone is worth, and
whether either is faster than TensorFlow without the suite.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from experiments.studies.scope import Scope
from experiments.studies.study import Study
from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import room_for_workers
from ps_allreduce.point.measurement import Measurement, SteadyWarmup
from ps_allreduce.point.strategies import (
    AsynchronousServers,
    Horovod,
    Hybrid,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Embeddings, StrategySettings
from ps_allreduce.point.wire import Collective
from ps_allreduce.point.workload import Workload

#: Where whole tables travel for seconds in a step: of all points, since they are compared.
FEW_STEPS = Measurement(
    warmup=SteadyWarmup(least_steps=2, most_s=3.0), measured_steps=4, measured_s=1.0
)

SHIPPED_SERVERS: Sequence[StrategySettings] = (
    StrategySettings(),
    StrategySettings(steps_per_dispatch=8),
    StrategySettings(join_rounds=True),
)
SHIPPED_ALLREDUCE: Sequence[StrategySettings] = (
    StrategySettings(collective=Collective.AUTO),
    StrategySettings(collective=Collective.RING),
)


def _points(scope: Scope) -> Iterator[Experiment]:
    for workload in scope.workloads:
        dense = scope.settings.embeddings is Embeddings.DENSE
        if dense or workload.sparse_refusal():
            yield from _of_whole_variables(scope, workload)
        else:
            yield from _of_rows(_with_few_steps(scope), workload)


def _of_whole_variables(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    yield from scope.bases(workload)
    served = [*_served(scope, workload)]
    sizes = {*scope.sizes(workload), *map(room_for_workers, served)}
    yield from (scope.reduced(workload, workers) for workers in sorted(sizes))
    if not Horovod.refusal(workload):
        yield scope.point(workload, Horovod, max(sizes))
    yield from served
    yield from scope.tuned_of(workload)
    yield from dict.fromkeys(_as_shipped(scope, workload, max(sizes)))


def _with_few_steps(scope: Scope) -> Scope:
    """Briefly, whole tables take seconds to travel: their steps may be few, as all others'."""
    if not scope.brief:
        return scope
    return replace(scope, measurement=FEW_STEPS)


def _of_rows(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    """Sparse embeddings on every side, and at the most workers what else can be done with tables.

    That is rows in ranges, as TensorFlow shards, and whole tables.
    """
    stated = scope.settings
    sparse = replace(scope, settings=replace(stated, embeddings=Embeddings.SPARSE))
    yield from sparse.bases(workload)
    served = [*_served_rows(sparse, workload)]
    sizes = {*scope.sizes(workload), *map(room_for_workers, served)}
    yield from (sparse.reduced(workload, workers) for workers in sorted(sizes))
    yield from served
    if stated.table_rows is None:
        most = scope.scale.workers[-1]
        served_by = sparse.beside_rows(workload, sparse.servers_for(most))
        ranges = replace(served_by, table_rows=RowRule.RANGE)
        yield sparse.point(workload, SynchronousServers, most, ranges)
    if stated.embeddings is None:
        yield scope.reduced(workload, max(sizes))
    yield from sparse.tuned_of(workload)
    yield from dict.fromkeys(_as_shipped(scope, workload, max(sizes)))


def _served_rows(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    for workers in scope.sizes(workload):
        stated = scope.beside_rows(workload, scope.servers_for(workers))
        for strategy in (AsynchronousServers, SynchronousServers, Hybrid):
            yield scope.point(workload, strategy, workers, stated)


def _served(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    for workers in scope.sizes(workload):
        num_ps = scope.servers_for(workers)
        balanced = scope.balanced_policy(workload, num_ps)
        yield scope.served(workload, AsynchronousServers, workers, num_ps, balanced)
        for policy in scope.telling_policies(workload, num_ps):
            yield scope.served(workload, SynchronousServers, workers, num_ps, policy)


def _as_shipped(scope: Scope, workload: Workload, most: int) -> Iterator[Experiment]:
    """TensorFlow's own strategies with the most workers, as far as they can train the workload.

    Args:
        most: workers of the largest point of all-reduce, which may be on the hosts of servers.
    """
    shown, workers = slice(1 if scope.brief else None), scope.scale.workers[-1]
    if not StockServers.refusal(workload):
        num_ps = scope.shipped_servers_for(workload, workers)
        stated = replace(scope.settings, num_ps=num_ps, embeddings=None)
        rows = [] if workload.sparse_refusal() else [StrategySettings(embeddings=Embeddings.SPARSE)]
        for variant in (*SHIPPED_SERVERS[shown], *rows):
            yield scope.point(workload, StockServers, workers, stated.changed_by(variant))
    if not StockAllReduce.refusal(workload):
        for size, variant in itertools.product((workers, most), SHIPPED_ALLREDUCE[shown]):
            yield scope.point(workload, StockAllReduce, size, variant)


STUDY = Study(
    about=__doc__,
    points=_points,
    hosts=4,
    has_brief=True,
    chooses_exchange=True,
    optional=(Horovod, StockServers, StockAllReduce),
    tunes=True,
)
