"""Sweeps of settings: all-reduce, servers, placements, Horovod, one at a time, rung by rung.

Each function has the points of one study, and its docstring is what the study is about.  All have a
single worker and workers that do not communicate as their bases.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from experiments.studies.scope import SERVER_STRATEGIES, UNBUCKETED, Scope
from experiments.studies.study import Study
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Horovod,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.strategies.stock import LADDERS
from ps_allreduce.point.wire import WIRE_SETTINGS, WireType
from ps_allreduce.point.workload import Precision, Workload


def _study(
    points: Callable[[Scope], Iterable[Experiment]],
    *,
    hosts: int | None = None,
    has_brief: bool = False,
    chooses_exchange: bool = False,
) -> Study:
    return Study(
        about=inspect.cleandoc(points.__doc__ or ""),
        points=points,
        hosts=hosts,
        has_brief=has_brief,
        chooses_exchange=chooses_exchange,
    )


#: None is buckets; of TensorFlow's packs, 0 is its default, one single pack.
PACK_BYTES = (None, 0, 500_000, 2_000_000)


def _allreduce_sweep(scope: Scope) -> Iterator[Experiment]:
    """All-reduce: workers x what is reduced at once.

    Axes: workers; the suite's buckets, TensorFlow's one single pack, and its packs of 0.5 and 2 MB.

    Method: all points use the same collective.  Bases are a single worker and workers that do not
    communicate.

    Cost: 16 points per model at 1, 2 and 4 workers, which take less than ten minutes in the profile
    quick.

    It should show what sending in parts is worth, and that the best size depends on the model.
    """
    for workload in scope.workloads:
        yield from scope.bases(workload)
        for workers, bytes_per_pack in itertools.product(scope.scale.workers, PACK_BYTES):
            yield scope.reduced(workload, workers, bytes_per_pack)


ALLREDUCE_SWEEP = _study(_allreduce_sweep, hosts=4)

PLACED_ON = (2, 4)


def _placement_sweep(scope: Scope) -> Iterator[Experiment]:
    """Where variables go: model x servers x placement.

    Axes: 2 and 4 servers; every placement.

    Method: the largest number of workers, synchronous, so that every step waits for the server that
    carries most.  Bases are a single worker and workers that do not communicate.

    Cost: 12 points per model at 1, 2 and 4 workers, which take less than ten minutes in the profile
    quick.

    It should show that the bytes of the hottest server explain the time of a step.
    """
    workers, stated = scope.scale.workers[-1], scope.settings.num_ps
    for workload in scope.workloads:
        yield from scope.bases(workload)
        for num_ps in [stated] if stated else PLACED_ON:
            for policy in scope.policies(workload, num_ps):
                yield scope.served(workload, SynchronousServers, workers, num_ps, policy)


PLACEMENT_SWEEP = _study(_placement_sweep, hosts=4, chooses_exchange=True)

NUM_PS = (1, 2, 4, 8)


def _ps_sweep(scope: Scope) -> Iterator[Experiment]:
    """Parameter servers: workers x servers x placement, synchronous or not.

    Axes: workers; 1, 2, 4 and 8 servers, no more than workers; of synchronous servers two
    placements: round robin, as TensorFlow places variables by itself, and the most balanced other
    one; of asynchronous ones the most balanced.

    Method: on one server every placement is the same and is measured once, because buckets cut what
    is large wherever it was placed.  On hosts, points with more colocated servers than hosts of
    workers are left out.  Bases are a single worker and workers that do not communicate.
    placement-sweep has every placement.

    Cost: 19 points per model at 1, 2 and 4 workers, which take about eleven minutes in the profile
    quick on two cores.

    It should show when more servers help, and which placement makes them help.
    """
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


PS_SWEEP = _study(_ps_sweep, hosts=4, chooses_exchange=True)

#: What is changed about Horovod, one thing at a time.
CHANGES_OF_HOROVOD = (
    StrategySettings(),
    StrategySettings(fusion_bytes=0),
    StrategySettings(fusion_bytes=2_000_000),
    StrategySettings(cycle_ms=0.2),
    StrategySettings(cycle_ms=5.0),
)


def _horovod_sweep(scope: Scope) -> Iterator[Experiment]:
    """Horovod: workers x its own settings, beside the suite's all-reduce.

    Axes: workers; Horovod by default, without fusion, with buffers of 2 MB, and with cycles of 0.2
    and 5 ms; the suite's buckets, and TensorFlow's one pack.

    Method: Horovod and TensorFlow reduce the same gradients of the same step.  One setting of
    Horovod's is changed at a time.  The environment needs Horovod (make setup HOROVOD=1).  Bases
    are a single worker and workers that do not communicate.

    Cost: 15 points per model at 1 and 2 workers.

    It should show what limits Horovod over Gloo: the time until it looks at what is ready, the size
    of what travels at once, or the links.
    """
    for workload in scope.workloads:
        yield from scope.bases(workload)
        for workers in scope.scale.workers:
            for change in CHANGES_OF_HOROVOD:
                settings = scope.settings.only(Horovod.understands()).changed_by(change)
                yield scope.point(workload, Horovod, workers, settings)
            yield scope.reduced(workload, workers)
            yield scope.reduced(workload, workers, 0)


HOROVOD_SWEEP = _study(_horovod_sweep)

#: What is changed, in the order of the points.
CHANGES = (
    *(StrategySettings(bytes_per_pack=size) for size in (0, 2_000_000)),
    UNBUCKETED,
    *(StrategySettings(group_bytes=size) for size in (0, 2_000_000)),
    *(StrategySettings(cut_bytes=size) for size in (0, 125_000, 2_000_000)),
    *(StrategySettings(in_flight=count) for count in (0, 1, 2, 16)),
    *(StrategySettings(gradients=each) for each in WireType),
    *(StrategySettings(staleness=steps) for steps in (1, 4)),
    *(StrategySettings(steps_per_dispatch=steps) for steps in (4, 16)),
    StrategySettings(host_aggregation=True),
)

ACCUMULATION = 4


def _tuning_sweep(scope: Scope) -> list[Experiment]:
    """One setting of the exchange at a time, all others at their default.

    Axes: sizes of messages, messages in flight, format of gradients, all settings of buckets off at
    once, TensorFlow's packs, staleness, steps per dispatch, aggregation on hosts, accumulation and
    precision; each strategy that communicates is given those that it understands.

    Method: the largest number of workers, as many servers, the most balanced placement.  A stated
    setting is the default of all points.  Bases are a single worker and workers that do not
    communicate.

    Cost: about fifty points per model.

    It should show which settings are worth a thought here, and how much the best of them gain.
    """
    if scope.scale.workers[-1] < 2:
        raise UserError("tuning-sweep changes how workers exchange gradients: give it 2 or more.")
    points: list[Experiment] = []
    for workload in scope.workloads:
        points += scope.bases(workload)
        for strategy, settings in _defaults(scope, workload):
            points += _around(scope, workload, strategy, settings)
    return list(dict.fromkeys(points))


def _defaults(scope: Scope, workload: Workload) -> list[tuple[type[AnyStrategy], StrategySettings]]:
    workers = scope.scale.workers[-1]
    wanted = scope.servers_for(workers)
    num_ps = wanted if scope.has_room(workers, wanted) else 1
    served = scope.of_servers(workload, num_ps, scope.balanced_policy(workload, num_ps))
    return [*((each, served) for each in SERVER_STRATEGIES), (AllReduce, scope.settings)]


def _around(
    scope: Scope, workload: Workload, strategy: type[AnyStrategy], settings: StrategySettings
) -> Iterator[Experiment]:
    workers = scope.scale.workers[-1]
    yield scope.point(workload, strategy, workers, settings)
    for changed in _changed(strategy, settings):
        with suppress(UserError):  # what was stated leaves no room for this change
            yield scope.point(workload, strategy, workers, changed)
    accumulated = replace(workload, accumulation=ACCUMULATION)
    yield scope.point(accumulated, strategy, workers, settings)
    if workload.emulated is None:
        precise = replace(workload, precision=Precision.MIXED_BFLOAT16)
        yield scope.point(precise, strategy, workers, settings)


def _changed(strategy: type[AnyStrategy], settings: StrategySettings) -> Iterator[StrategySettings]:
    for change in CHANGES:
        if not strategy.understands().issuperset(change.stated):
            continue
        if change.bytes_per_pack is not None:
            yield settings.without(WIRE_SETTINGS).changed_by(change)
        elif change is not UNBUCKETED or not strategy.uses_collective:
            yield settings.changed_by(change)


TUNING_SWEEP = _study(_tuning_sweep)

#: What rungs differ in, and what plain TensorFlow does not have.
_OF_RUNGS = {*WIRE_SETTINGS, "altered", "bytes_per_pack"}


def _ladder(scope: Scope) -> Iterator[Experiment]:
    """From TensorFlow as it ships to the suite's defaults: what each change brings.

    Axes: the rungs of both sides.  TensorFlow as it ships; the optimizer as one operation for each
    variable; statistics of batch norm on the worker; the suite's own step, unbucketed or in one
    pack; buckets; a bounded number of messages in flight.

    Method: each rung changes one thing and is held against the rung before it.  The largest number
    of workers, as many servers unless stated, variables placed round robin, as TensorFlow does.
    Models without such statistics have no rung for them.  Servers train asynchronously, because
    those that TensorFlow ships can do nothing else.  Bases are a single worker and workers that do
    not communicate; the profile quick has these only where workers share cores.

    Cost: 13 or 14 points per model in the profile quick.

    It should show where plain TensorFlow is slower than the suite, where it is faster, and why.
    """
    if stated := sorted(_OF_RUNGS.intersection(scope.settings.stated)):
        raise UserError(f"the rungs of ladder differ in {', '.join(stated)}: leave that out.")
    workers = scope.scale.workers[-1]
    for workload in scope.workloads:
        yield from scope.bases(workload)
        settings = scope.of_servers(
            workload, scope.shipped_servers_for(workload, workers), Policy.ROUND_ROBIN
        )
        for rung in itertools.chain.from_iterable(LADDERS.values()):
            if rung.settings.altered in (None, *scope.alterations(workload)):
                changed = settings.changed_by(rung.settings)
                yield scope.point(workload, rung.strategy, workers, changed)


LADDER = _study(_ladder, hosts=4, has_brief=True)
