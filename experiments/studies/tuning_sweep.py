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

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from experiments.studies.scope import SERVER_STRATEGIES, UNBUCKETED, Scope
from experiments.studies.study import Study
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import AllReduce, AnyStrategy
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.wire import WIRE_SETTINGS, WireType
from ps_allreduce.point.workload import Precision, Workload

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


def _points(scope: Scope) -> list[Experiment]:
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


STUDY = Study(about=__doc__, points=_points)
