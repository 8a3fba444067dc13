"""What learns first: seconds until a loss on held-out examples, by strategy.

Axes: the task (images, text, embeddings: docs/examples), the strategy (synchronous servers, with
gradients in 16 bits and with two batches a step; asynchronous servers, with a bound on the
staleness, and synchronous at first; all-reduce), links (one host of which is four times as slow,
and equal ones, there without these variants), seeds, and workers, where several numbers are stated
or in the profile standard.

Method: four workers on four hosts, and servers on all of these but the slow one.  A seed decides
initial weights and the order of examples, and is the same for all strategies.  A search first
trains with three learning rates and three seeds, and the rate whose slowest seed reaches the target
first is taken; where an update is the mean of all workers, these rates are taken times the workers
(linear scaling).  What trains alike is searched once: synchronous servers, those with gradients in
16 bits and all-reduce have one rate.  Targets and bounds are fixed in the modules of the tasks.
There are five seeds; in the profile standard more, up to twelve, if by the spread of the first
three a difference of 20 % would not be decided.  Every run is evaluated on the same held-out
examples again and again, off its clock.  Where the target was reached between two evaluations, the
straight line between them tells when.

Cost: for each task 45 launches of the search and 50 others, about 20 minutes on two cores.

It should show whether what asynchronous servers gain in steps per second outweighs what staleness
costs in examples, and on which links.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.special import stdtrit

from experiments.studies.scope import Scope
from experiments.studies.study import Search, Study
from experiments.sweep.definition import Choices
from experiments.sweep.sweep import QUICK, STANDARD, Profile
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import Learning
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.optimizers import Optimizer
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.wire import WireType
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import RunRecord

#: Of the search; those that are compared count from 1.  With one seed, the search took a rate at
#: which another seed diverged, one in five.
SEARCHED_SEEDS = (101, 102, 103)

#: Learning rates of the search, times that of the model.
RATES = (0.5, 1.0, 2.0)

#: Seeds made in any case, those of them whose spread counts, and the most.  Only spreads are looked
#: at, before anything is known of who is faster, so going on favours no answer (Stein, "A
#: Two-Sample Test for a Linear Hypothesis Whose Power Is Independent of the Variance", Annals of
#: Mathematical Statistics 16, 1945).
LEAST, FIRST, MOST = 5, 3, 12

#: A difference that is to be decided, at this level, in so many of such cases.
DIFFERENCE, LEVEL, POWER = 0.2, 0.05, 0.8

#: Of a model: five ways to train are searched; of seven strategies three are also on equal links.
LAUNCHES = 5 * len(RATES) * len(SEARCHED_SEEDS) + (7 + 3) * LEAST

#: Bits per second of links, and of that of the last host where one is slow.
LINKS, SLOW_LINK = 100e6, 25e6

STALENESS = 2
BATCHES_A_STEP = 2

#: Share of the steps that a training may make, after which it is asynchronous.
SWITCHED_AFTER = 0.1

#: A text, images, and embeddings; each states its target and its bound.
MODELS = tuple(
    f"docs/examples/{name}.py:build" for name in ("handwriting", "next_character", "preferences")
)


def _points(scope: Scope) -> Iterator[Experiment]:
    for workload in scope.workloads:
        plain = [*_plain(scope, _scaled(workload))]
        for point in (*plain, *_variants(scope, _scaled(workload))):
            networks = _networks(scope, point.num_workers)[0 if point in plain else -1 :]
            seeds = range(1, 1 + (scope.choices.answer(_question(workload), int) or LEAST))
            for made in itertools.product(networks, _rates(scope, point), seeds):
                yield _with(point, *made)


def _rates(scope: Scope, point: Experiment) -> list[Optimizer]:
    """The optimizer with the rate that was found; none where no rate reached an end."""
    if not scope.tuned:
        return [point.workload.optimizer]
    own = _training(point)
    return [best.workload.optimizer for best in scope.tuned if _training(best) == own]


def _with(
    point: Experiment, network: EmulatedNetwork | None, optimizer: Optimizer, seed: int
) -> Experiment:
    workload = replace(point.workload, optimizer=optimizer, seed=seed)
    return replace(point, workload=workload, network=network)


def _question(workload: Workload) -> str:
    return f"seeds of {workload.model.name}"


def _goes_on(records: Sequence[RunRecord], choices: Choices) -> bool:
    """Decide once how many seeds each model takes, and whether that is more than were made."""
    wanted = [LEAST]
    for model in dict.fromkeys(record.experiment.workload.model for record in records):
        own = [each for each in records if each.experiment.workload.model == model]
        question, spread = _question(own[0].experiment.workload), spread_of(seconds_of(own))
        if spread is not None and choices.answer(question, int) is None:
            wanted.append(choices.decide(question, int, partial(seeds_wanted, spread)))
    return max(wanted) > LEAST


#: Seconds to a target by seed, of every setting.
Seconds = Mapping[str, Mapping[int, float]]


def seconds_of(records: Iterable[RunRecord]) -> Seconds:
    """Those of every setting on every kind of links; misses are left out."""
    found: dict[str, dict[int, float]] = {}
    for record in records:
        if record.learned is not None and record.learned.target_s:
            own = record.experiment
            found.setdefault(own.point_id, {})[own.workload.seed] = record.learned.target_s
    return found


def spread_of(seconds: Seconds) -> float | None:
    """Of ratios of two settings with the same seed: root mean square over all settings.

    A setting is held against the mean logarithm of all settings with the same seed.  None where no
    setting has reached the target with enough of the first seeds.
    """
    seeds = sorted({seed for own in seconds.values() for seed in own})[:FIRST]
    rows = [[own[seed] for seed in seeds] for own in seconds.values() if {*seeds} <= {*own}]
    if len(seeds) < FIRST or len(rows) < 2:
        return None
    logs = np.log(np.asarray(rows))
    left = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean()
    freedom = (len(rows) - 1) * (FIRST - 1)
    return math.sqrt(2 * float((left**2).sum()) / freedom)


def seeds_wanted(spread: float) -> int:
    """So many that the difference is decided by pairs whose ratios have this spread (logarithm)."""
    for number in range(LEAST, MOST):
        quantiles = stdtrit(number - 1, np.asarray([1 - LEVEL / 2, POWER]))
        if float(quantiles.sum()) * spread / math.sqrt(number) <= math.log1p(DIFFERENCE):
            return number
    return MOST


def _networks(scope: Scope, workers: int) -> list[EmulatedNetwork | None]:
    """Equal links, and a slow one of the last worker; stated links and those of a cluster stay."""
    if scope.network is None or not scope.network.is_unlimited:
        return [scope.network]
    equal = replace(scope.network, bits_per_s=LINKS)
    host = (workers - 1) // (scope.spread.workers_per_host if scope.spread else 1)
    slow = replace(equal, slow_host=host, slow_bits_per_s=SLOW_LINK)
    return [equal, slow]


def _searched(scope: Scope) -> Iterator[Experiment]:
    """Every way to train with every learning rate, on links one of which is slow."""
    for workload in map(_scaled, scope.workloads):
        ways: dict[Hashable, Experiment] = {}
        for point in (*_plain(scope, workload), *_variants(scope, workload)):
            ways.setdefault(_training(point), point)
        for point in ways.values():
            network, optimizer = _networks(scope, point.num_workers)[-1], point.workload.optimizer
            for factor, seed in itertools.product(RATES, SEARCHED_SEEDS):
                rate = optimizer.learning_rate * factor
                yield _with(point, network, replace(optimizer, learning_rate=rate), seed)


def _training(point: Experiment) -> Hashable:
    """What trains the same weights but for the rounding of gradients has the same rates."""
    load, strategy = point.workload, point.strategy
    stale = tuple(strategy.title_parts()) if isinstance(strategy, AsynchronousServers) else None
    return load.model.name, point.num_workers, load.accumulation, stale


def _scaled(workload: Workload) -> Workload:
    """With rates that fit the examples of an update: else a search would have to reach further."""
    return replace(workload, schedule=replace(workload.schedule, linear_scaling=True))


def _sizes(scope: Scope) -> tuple[int, ...]:
    """Of one worker only if there are no others: alone, strategies do not differ."""
    several = tuple(number for number in scope.scale.workers if number > 1)
    return several or scope.scale.workers[-1:]


def _plain(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    for workers in _sizes(scope):
        for kind in (SynchronousServers, AsynchronousServers):
            yield _learning(scope, workload, kind, workers)
        reduced = scope.point(workload, AllReduce, workers)
        yield replace(reduced, measurement=_learning_of(workload))


def _variants(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    learning = _learning_of(workload)
    twice = replace(workload, accumulation=BATCHES_A_STEP)
    for workers in _sizes(scope):
        steps = learning.most_examples // (workers * workload.batch_per_worker)
        switched = max(1, round(SWITCHED_AFTER * steps))
        for load, kind, stated in (
            (workload, SynchronousServers, StrategySettings(gradients=WireType.FLOAT16)),
            (twice, SynchronousServers, StrategySettings()),
            (workload, AsynchronousServers, StrategySettings(staleness=STALENESS)),
            (workload, AsynchronousServers, StrategySettings(synchronous_steps=switched)),
        ):
            yield _learning(scope, load, kind, workers, stated)


def _learning(
    scope: Scope,
    workload: Workload,
    kind: type[AnyStrategy],
    workers: int,
    stated: StrategySettings | None = None,
) -> Experiment:
    """A point with servers."""
    # None on the last host, whose link may be slow: a server there would slow down all workers.
    servers = scope.settings.num_ps or max(1, workers - 1)
    served = scope.of_servers(workload, servers, Policy.PARTITIONED)
    settings = served.changed_by(stated or StrategySettings())
    point = scope.point(workload, kind, workers, settings)
    return replace(point, measurement=_learning_of(workload))


def _learning_of(workload: Workload) -> Learning:
    learning = workload.model.learning if isinstance(workload.model, OwnModel) else None
    if learning is None:
        raise UserError(
            f"model {workload.model.name} does not say when it has learned enough: state LEARNED "
            "in your model's module (docs/own_model.md)."
        )
    return learning


STUDY = Study(
    about=__doc__,
    points=_points,
    profiles={
        QUICK: Profile(name=QUICK, repetitions=1, deadline_s=120.0),
        STANDARD: Profile(name=STANDARD, repetitions=1, deadline_s=900.0),
    },
    hosts=4,
    looks_first=False,
    has_brief=True,
    models=MODELS,
    search=Search(points=_searched, contests=lambda point: [_training(point)]),
    goes_on=_goes_on,
)
