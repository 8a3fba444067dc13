"""What learns first: seconds until a loss on held-out examples, by strategy.

Axes: the task (images, text, embeddings: docs/examples), the strategy (synchronous servers, with
gradients in 16 bits and with two batches a step; asynchronous servers, and with a bound on the
staleness; all-reduce), links (equal ones, and one host of which is four times as slow), and seeds.

Method: four workers and four servers on four hosts.  A seed decides initial weights and the order
of examples, and is the same for all strategies.  A search first trains every strategy with three
learning rates, one seed each, and the rate that reaches the target first is taken.  Targets and
bounds are fixed in the modules of the tasks, seeds in this one.  Every run is evaluated on the same
held-out examples again and again, off its clock.  Where the target was reached between two
evaluations, the straight line between them tells when.

Cost: for each task 18 launches of the search and 60 others, about 12 minutes on two cores.

It should show whether what asynchronous servers gain in steps per second outweighs what staleness
costs in examples, and on which links.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from experiments.studies.scope import Scope
from experiments.studies.study import Search, Study
from experiments.sweep.sweep import QUICK, Profile
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import Learning
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import AllReduce, AsynchronousServers, SynchronousServers
from ps_allreduce.point.wire import WireType
from ps_allreduce.point.workload import Workload

#: Of initial weights and the order of examples; another one is that of the search.
SEEDS = (1, 2, 3, 4, 5)
SEARCHED_SEED = 101

#: Learning rates of the search, times that of the model.
RATES = (0.5, 1.0, 2.0)

#: Of a model: six strategies, on two kinds of links.
LAUNCHES = 6 * (len(RATES) + 2 * len(SEEDS))

#: Bits per second of links, and of that of the last host where one is slow.
LINKS, SLOW_LINK = 100e6, 25e6

STALENESS = 2
BATCHES_A_STEP = 2

#: A text, images, and embeddings; each states its target and its bound.
MODELS = tuple(
    f"docs/examples/{name}.py:build" for name in ("handwriting", "next_character", "preferences")
)


def _points(scope: Scope) -> Iterator[Experiment]:
    for workload in scope.workloads:
        tuned = [point for point in scope.tuned if point.workload.model == workload.model]
        for point in tuned or _strategies(scope, workload):
            for network in _networks(scope):
                for seed in SEEDS:
                    seeded = replace(point.workload, seed=seed)
                    yield replace(point, workload=seeded, network=network)


def _networks(scope: Scope) -> list[EmulatedNetwork | None]:
    """Equal links and a slow one; those of a cluster, and links that are stated, as they are."""
    if scope.network is None or not scope.network.is_unlimited:
        return [scope.network]
    equal = replace(scope.network, bits_per_s=LINKS)
    slow = replace(equal, slow_host=equal.num_hosts - 1, slow_bits_per_s=SLOW_LINK)
    return [equal, slow]


def _searched(scope: Scope) -> Iterator[Experiment]:
    """Every strategy with every learning rate, on links one of which is slow."""
    for workload in scope.workloads:
        for point in _strategies(scope, workload):
            for factor in RATES:
                optimizer = point.workload.optimizer
                rate = optimizer.learning_rate * factor
                changed = replace(
                    point.workload,
                    optimizer=replace(optimizer, learning_rate=rate),
                    seed=SEARCHED_SEED,
                )
                yield replace(point, workload=changed, network=_networks(scope)[-1])


def _strategies(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    workers = scope.scale.workers[-1]
    served = scope.of_servers(workload, scope.servers_for(workers), Policy.PARTITIONED)
    twice = replace(workload, accumulation=BATCHES_A_STEP)
    short = replace(served, gradients=WireType.FLOAT16)
    for point in (
        scope.point(workload, SynchronousServers, workers, served),
        scope.point(workload, SynchronousServers, workers, short),
        scope.point(twice, SynchronousServers, workers, served),
        scope.point(workload, AsynchronousServers, workers, served),
        scope.point(workload, AsynchronousServers, workers, replace(served, staleness=STALENESS)),
        scope.point(workload, AllReduce, workers),
    ):
        yield replace(point, measurement=_learning_of(workload))


def _learning_of(workload: Workload) -> Learning:
    learning = workload.model.learning if isinstance(workload.model, OwnModel) else None
    if learning is None:
        raise UserError(
            f"model {workload.model.name} does not say when it has learned enough: state LEARNED "
            "in your model's module (docs/own_model.md)."
        )
    return learning


def _contest(point: Experiment) -> Iterator[tuple[str, ...]]:
    """All rates of a strategy and a task."""
    yield point.workload.model.name, *_told(point)


def _told(point: Experiment) -> tuple[str, ...]:
    return str(point.strategy), *point.strategy.title_parts(), str(point.workload.accumulation)


STUDY = Study(
    about=__doc__,
    points=_points,
    profiles={QUICK: Profile(name=QUICK, repetitions=1, deadline_s=120.0)},
    hosts=4,
    looks_first=False,
    models=MODELS,
    search=Search(points=_searched, contests=_contest),
)
