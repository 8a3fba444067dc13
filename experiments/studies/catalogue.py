"""The sweeps that come with the suite, each a function that returns all of its points.

`compare` answers the question of the whole suite; the others look at one side or one factor.
Every sweep holds its baselines, so that its efficiency has a base from the same session.
"""

from __future__ import annotations

from collections.abc import Callable

from experiments.studies.request import SERVER_STRATEGIES, Request
from experiments.studies.tuning_sweep import tuning_sweep
from experiments.sweep.sweep import expand
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import (
    Experiment,
)
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.point.workload import Workload

#: None is buckets; of TensorFlow's packs, 0 is its default, one single pack.
PACK_BYTES = (None, 0, 500_000, 2_000_000)


def compare(request: Request) -> tuple[Experiment, ...]:
    """Every strategy at every number of workers, servers with round robin and the best placement.

    There are as many servers as workers unless stated.  On one server all placements are the same
    and are measured once, as round robin.
    """
    points: list[Experiment] = []
    for workload in request.workloads:
        points += request.baselines(workload)
        points += [request.reduced(workload, workers) for workers in request.scale.workers]
        for workers in request.scale.workers:
            num_ps = request.num_ps or workers
            policies = [Policy.ROUND_ROBIN]
            if num_ps > 1:
                policies.append(_contrast(request, workload, num_ps))
            points += expand(
                {"strategy": SERVER_STRATEGIES, "policy": policies},
                lambda strategy, policy, w=workload, n=workers, p=num_ps: request.served(
                    w, strategy, n, p, policy
                ),
            )
    return tuple(points)


def _contrast(request: Request, workload: Workload, num_ps: int) -> Policy:
    """The best placement; where that is round robin itself, the most balanced other one."""
    best = request.best_policy(workload, num_ps)
    return best if best is not Policy.ROUND_ROBIN else Policy.LARGEST_FIRST


def ps_sweep(request: Request) -> tuple[Experiment, ...]:
    """Workers x servers x placement x synchronous or not."""
    most = request.num_ps or max(request.scale.workers)
    servers = [request.num_ps] if request.num_ps else [n for n in (1, 2, 4, 8) if n <= most]
    points: list[Experiment] = []
    for workload in request.workloads:
        points += request.baselines(workload)
        points += expand(
            {
                "workers": request.scale.workers,
                "num_ps": servers,
                "policy": tuple(Policy),
                "strategy": SERVER_STRATEGIES,
            },
            lambda workers, num_ps, policy, strategy, w=workload: (
                request.served(w, strategy, workers, num_ps, policy)
                if _differs(num_ps, policy) and request.has_room(workers, num_ps)
                else None
            ),
        )
    return tuple(points)


def _differs(num_ps: int, policy: Policy) -> bool:
    """On one server every policy is the same: buckets cut what is large, whatever was placed."""
    return num_ps > 1 or policy is Policy.ROUND_ROBIN


def allreduce_sweep(request: Request) -> tuple[Experiment, ...]:
    """Workers x bytes per pack."""
    if request.num_ps is not None:
        raise UserError("allreduce-sweep has no parameter servers: leave NUM_PS out.")
    points: list[Experiment] = []
    for workload in request.workloads:
        points += request.baselines(workload)
        points += expand(
            {"workers": request.scale.workers, "bytes_per_pack": PACK_BYTES},
            lambda workers, bytes_per_pack, w=workload: request.reduced(w, workers, bytes_per_pack),
        )
    return tuple(points)


def placement_sweep(request: Request) -> tuple[Experiment, ...]:
    """Model x servers x policy, synchronous, at the largest number of workers."""
    servers = [request.num_ps] if request.num_ps else [2, 3, 4]
    workers = request.scale.workers[-1]
    points: list[Experiment] = []
    for workload in request.workloads:
        points += request.baselines(workload)
        points += expand(
            {"num_ps": servers, "policy": tuple(Policy)},
            lambda num_ps, policy, w=workload: request.served(
                w, Strategy.PS_SYNC, workers, num_ps, policy
            ),
        )
    return tuple(points)


STUDIES: dict[str, Callable[[Request], tuple[Experiment, ...]]] = {
    "compare": compare,
    "ps-sweep": ps_sweep,
    "allreduce-sweep": allreduce_sweep,
    "placement-sweep": placement_sweep,
    "tuning-sweep": tuning_sweep,
}
