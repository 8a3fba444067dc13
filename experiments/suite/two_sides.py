"""The two points that are enough where one comparison is what a sweep is made for.

Decides which they are: one setting of each side, with two workers.  What is compared with what, and
how often they are launched, is decided by the sweep.
"""

from __future__ import annotations

from experiments.studies.scope import Scope
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import AllReduce, SynchronousServers
from ps_allreduce.point.strategies.base import StrategySettings


def two_sides(num_ps: int, scope: Scope) -> list[Experiment]:
    """An all-reduce, and synchronous servers, so many of them."""
    (workload,) = scope.workloads
    return [
        scope.point(workload, AllReduce, 2),
        scope.point(workload, SynchronousServers, 2, StrategySettings(num_ps=num_ps)),
    ]
