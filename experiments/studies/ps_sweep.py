"""Parameter servers: workers x servers x placement, synchronous or not.

Axes: workers; 1, 2, 4 and 8 servers, no more than workers; of synchronous servers two placements:
round robin, as TensorFlow places variables by itself, and the most balanced other one; of
asynchronous ones the most balanced.

Method: on one server every placement is the same and is measured once, because buckets cut what is
large wherever it was placed.  On hosts, points with more colocated servers than hosts of workers
are left out.  Bases are a single worker and workers that do not communicate.  placement-sweep has
every placement.

Cost: 19 points per model at 1, 2 and 4 workers, which take about eleven minutes in the profile
quick on two cores.

It should show when more servers help, and which placement makes them help.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from experiments.studies.scope import Scope
from experiments.studies.study import Study
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import AsynchronousServers, SynchronousServers

NUM_PS = (1, 2, 4, 8)


def _points(scope: Scope) -> Iterator[Experiment]:
    numbers = itertools.product(scope.scale.workers, _numbers_of_servers(scope))
    with_room = [each for each in numbers if scope.has_room(*each)]
    for workload in scope.workloads:
        yield from scope.bases(workload)
        for workers, num_ps in with_room:
            for policy in scope.telling_policies(workload, num_ps):
                yield scope.served(workload, SynchronousServers, workers, num_ps, policy)
            balanced = scope.balanced_policy(workload, num_ps)
            yield scope.served(workload, AsynchronousServers, workers, num_ps, balanced)


def _numbers_of_servers(scope: Scope) -> list[int]:
    if scope.settings.num_ps is not None:
        return [scope.settings.num_ps]
    return [number for number in NUM_PS if number <= max(scope.scale.workers)]


STUDY = Study(about=__doc__, points=_points, hosts=4, chooses_exchange=True)
