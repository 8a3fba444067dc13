"""Parameter servers: workers x servers x placement, synchronous or not.

Axes: workers; 1, 2, 4 and 8 servers, no more than workers; two placements: round robin, as
TensorFlow places variables by itself, and the most balanced other one; both strategies with
servers.

Method: on one server every placement is the same and is measured once, because buckets cut what is
large wherever it was placed.  On hosts, points with more colocated servers than hosts of workers
are left out.  Bases are a single worker and workers that do not communicate.  placement-sweep has
every placement.

Cost: 22 points per model at 1, 2 and 4 workers, which take about a quarter of an hour in the
profile quick on two cores.

It should show when more servers help, and which placement makes them help.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from experiments.studies.scope import SERVER_STRATEGIES, Scope
from experiments.studies.study import Study
from ps_allreduce.point.experiment import Experiment

NUM_PS = (1, 2, 4, 8)


def _points(scope: Scope) -> Iterator[Experiment]:
    numbers = itertools.product(scope.scale.workers, _numbers_of_servers(scope))
    with_room = [each for each in numbers if scope.has_room(*each)]
    for workload in scope.workloads:
        yield from scope.bases(workload)
        for workers, num_ps in with_room:
            policies = scope.telling_policies(workload, num_ps)
            for policy, strategy in itertools.product(policies, SERVER_STRATEGIES):
                yield scope.served(workload, strategy, workers, num_ps, policy)


def _numbers_of_servers(scope: Scope) -> list[int]:
    if scope.settings.num_ps is not None:
        return [scope.settings.num_ps]
    return [number for number in NUM_PS if number <= max(scope.scale.workers)]


STUDY = Study(about=__doc__, points=_points, hosts=4, chooses_exchange=True)
