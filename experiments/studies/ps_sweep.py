"""Parameter servers: workers x servers x placement, synchronous or not.

Axes: workers; 1, 2, 4 and 8 servers, no more than workers; every placement; both strategies with
servers.

Method: on one server every placement is the same and is measured once, because buckets cut what is
large wherever it was placed.  On hosts, points with more colocated servers than hosts of workers
are left out.  Bases are a single worker and workers that do not communicate.

Cost: 23 points per model at 1 and 2 workers.

It should show when more servers help, and which placement makes them help.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from experiments.studies.scope import SERVER_STRATEGIES, Scope
from experiments.studies.study import Study
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy

NUM_PS = (1, 2, 4, 8)


def _points(scope: Scope) -> Iterator[Experiment]:
    numbers = itertools.product(scope.scale.workers, _numbers_of_servers(scope))
    with_room = [each for each in numbers if scope.has_room(*each)]
    for workload in scope.workloads:
        yield from scope.bases(workload)
        for workers, num_ps in with_room:
            policies = Policy if num_ps > 1 else [Policy.ROUND_ROBIN]
            for policy, strategy in itertools.product(policies, SERVER_STRATEGIES):
                yield scope.served(workload, strategy, workers, num_ps, policy)


def _numbers_of_servers(scope: Scope) -> list[int]:
    if scope.settings.num_ps is not None:
        return [scope.settings.num_ps]
    return [number for number in NUM_PS if number <= max(scope.scale.workers)]


STUDY = Study(about=__doc__, points=_points, chooses_exchange=True)
