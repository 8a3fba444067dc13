"""What every task does in a few steps of each strategy, on one clock.

Axes: every strategy.  The largest number of workers; as many servers, or as many as hosts are named
for servers, unless stated, with the best placement.  Bases are a single worker and workers that do
not communicate; the profile quick has these only where workers share cores.

Method: after the window a few steps of every run are traced: each notes when the gradient of each
bucket was ready, when it was acknowledged, and when the new value was back.  The report draws one
step of each strategy, and writes a trace of all of them for Perfetto.  Of the steps of plain
TensorFlow only begin and end are known.  A launch of each point is enough to look at; --repetitions
makes more of them.

Cost: 6 or 7 points per model, launched once: about a minute.

It should show what a step waits for: the backward pass, a server, a link, or another worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from experiments.studies.scope import SERVER_STRATEGIES, Scope
from experiments.studies.study import Study
from experiments.sweep.sweep import PROFILES
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import StockAllReduce, StockServers
from ps_allreduce.point.strategies.stated import StrategySettings

#: Traced steps of every worker, by the profile's name.
TRACED = {"quick": 6, "standard": 20}

#: A stated collective is one of the suite's; as shipped it stays TensorFlow's choice.
SHIPPED = StrategySettings()

#: Launches of every point.
LAUNCHES = {"quick": 1, "standard": 3}


def _points(scope: Scope) -> Iterator[Experiment]:
    workers = scope.scale.workers[-1]
    for workload in scope.workloads:
        yield from scope.bases(workload)
        yield scope.reduced(workload, workers)
        num_ps = scope.servers_for(workers)
        even = scope.balanced_policy(workload, num_ps)
        for strategy in SERVER_STRATEGIES:
            yield scope.served(workload, strategy, workers, num_ps, even)
        if not StockServers.refusal(workload):
            fewer = scope.shipped_servers_for(workload, workers)
            shipped = replace(scope.settings, num_ps=fewer)
            yield scope.point(workload, StockServers, workers, shipped)
        if not StockAllReduce.refusal(workload):
            yield scope.point(workload, StockAllReduce, workers, SHIPPED)


STUDY = Study(
    about=__doc__,
    points=_points,
    profiles={
        name: replace(
            profile.without_budget(LAUNCHES[name]),
            measurement=replace(profile.measurement, event_steps=TRACED[name]),
        )
        for name, profile in PROFILES.items()
    },
    hosts=4,
    has_brief=True,
    chooses_exchange=True,
    optional=(StockServers, StockAllReduce),
)
