"""Where variables go: model x servers x placement.

Axes: 2 and 4 servers; every placement.

Method: the largest number of workers, synchronous, so that every step waits for the server that
carries most.  Bases are a single worker and workers that do not communicate.

Cost: 12 points per model at 1, 2 and 4 workers, which take less than ten minutes in the profile
quick.

It should show that the bytes of the hottest server explain the time of a step.
"""

from __future__ import annotations

from collections.abc import Iterator

from experiments.studies.scope import Scope
from experiments.studies.study import Study
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import SynchronousServers

NUM_PS = (2, 4)


def _points(scope: Scope) -> Iterator[Experiment]:
    workers, stated = scope.scale.workers[-1], scope.settings.num_ps
    for workload in scope.workloads:
        yield from scope.bases(workload)
        for num_ps in [stated] if stated else NUM_PS:
            for policy in scope.policies(workload, num_ps):
                yield scope.served(workload, SynchronousServers, workers, num_ps, policy)


STUDY = Study(about=__doc__, points=_points, hosts=4, chooses_exchange=True)
