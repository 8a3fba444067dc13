"""Settings of each side that are tried for a model on these hosts.

Axes: of all-reduce TensorFlow's packs, sizes of messages, messages in flight and threads; of
synchronous servers also their number, their layout and the placement of variables.

Method: the default, each single change, then combinations of changes, drawn with a fixed seed.  All
candidates take equally many hosts, those of servers counted.  Placements that put every variable on
the same server are one candidate.

Cost: as many launches of at most 24 candidates of each side as the stated minutes pay for.

It should show what the best setting of each side is here, for equal node minutes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, product, zip_longest

from experiments.studies.scope import UNBUCKETED, Scope, Threads
from experiments.studies.study import Study
from experiments.tuning.halving import MOST
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import hosts_without_workers
from ps_allreduce.point.placement import DEFAULT_SPLIT_BYTES, Plan, Policy, make_plan
from ps_allreduce.point.resources import LayoutKind, default_threads
from ps_allreduce.point.strategies import AllReduce, SynchronousServers
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import Workload

#: Of the combinations that are drawn.
SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One deviation from the default of a side.

    Attributes:
        threads: of every worker; None leaves them at their default.
    """

    settings: StrategySettings = field(default_factory=StrategySettings)
    threads: int | None = None


#: Alternatives of which a candidate has one at most.
Axis = tuple[Change, ...]


def _changes(*settings: StrategySettings) -> Axis:
    return tuple(Change(settings=each) for each in settings)


SIZES = tuple(StrategySettings(group_bytes=n, cut_bytes=n) for n in (2_000_000, 500_000))
PACKS = tuple(StrategySettings(bytes_per_pack=size) for size in (0, 2_000_000))
UNDER_WAY = _changes(*(StrategySettings(in_flight=count) for count in (2, 16, 4)))
PLACEMENTS = _changes(*(StrategySettings(placement=policy) for policy in Policy))


def _points(scope: Scope) -> list[Experiment]:
    if scope.scale.workers[-1] < 2:
        raise UserError("tune tries how workers exchange gradients: give it 2 workers or more.")
    return [
        point
        for workload in scope.workloads
        for side in (_reduced(scope, workload), _served(scope, workload))
        for point in islice(side, MOST)
    ]


STUDY = Study(about=__doc__, points=_points, hosts=4)


def _reduced(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    axes = (_changes(*PACKS, *SIZES), UNDER_WAY, _threads(scope))
    return _distinct(
        _with_threads(scope, change).point(
            workload, AllReduce, scope.scale.workers[-1], change.settings
        )
        for change in _in_order(axes)
        if not _contradicts(change.settings)
    )


def _contradicts(settings: StrategySettings) -> bool:
    """Packs leave nothing to say about messages."""
    return settings.bytes_per_pack is not None and len(settings.stated) > 1


def _served(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    axes = (
        _changes(UNBUCKETED, *SIZES),
        PLACEMENTS,
        _servers(scope),
        UNDER_WAY,
        _threads(scope),
    )

    def points() -> Iterator[Experiment]:
        for change in _in_order(axes):
            with suppress(UserError):  # fewer variables than servers, no room for their layout
                yield _point_with_servers(_with_threads(scope, change), workload, change.settings)

    return _distinct(points())


def _point_with_servers(scope: Scope, workload: Workload, changed: StrategySettings) -> Experiment:
    """On as many hosts as all-reduce has, those of servers counted."""
    room = scope.scale.workers[-1]
    num_ps = changed.num_ps or room
    policy = _policy(scope, workload, num_ps, changed.placement)
    settings = scope.of_servers(workload, num_ps, policy)
    settings = replace(settings, layout=LayoutKind.COLOCATED)  # on hosts of one kind in any case
    settings = settings.changed_by(changed.without(["num_ps", "placement"]))
    probe = scope.point(workload, SynchronousServers, 1, settings)
    per_host = scope.spread.workers_per_host if scope.spread else 0
    workers = room - hosts_without_workers(probe) * per_host
    return scope.point(workload, SynchronousServers, workers, settings)


def _policy(scope: Scope, workload: Workload, num_ps: int, asked: Policy | None) -> Policy:
    """The first of those with the same plan; where none is asked for, the one that is suggested."""
    policy = asked or scope.balanced_policy(workload, num_ps)
    if num_ps == 1:
        return Policy.ROUND_ROBIN

    def shards(policy: Policy) -> Plan:
        split_bytes = scope.of_servers(workload, num_ps, policy).split_bytes
        plan = make_plan(
            policy, scope.describe(workload), num_ps, split_bytes or DEFAULT_SPLIT_BYTES
        )
        return replace(plan, policy=Policy.ROUND_ROBIN)

    return next(other for other in Policy if shards(other) == shards(policy))


def _servers(scope: Scope) -> Axis:
    """One server, half as many as workers, as many; beside workers, and on hosts of their own."""
    room = scope.scale.workers[-1]
    counts = [(number, LayoutKind.COLOCATED) for number in dict.fromkeys((1, room // 2, room))]
    if scope.spread is not None:
        per_host = scope.spread.ps_per_host or 1
        hosts = -(-room // scope.spread.workers_per_host)
        apart = filter(None, dict.fromkeys((1, hosts // 3, hosts // 2)))
        counts += [(number * per_host, LayoutKind.DEDICATED) for number in apart]
    return _changes(*(StrategySettings(num_ps=number, layout=kind) for number, kind in counts))


def _threads(scope: Scope) -> Axis:
    cores = scope.scale.cores_per_worker
    return tuple(Change(threads=count) for count in (cores, default_threads(cores)))


def _with_threads(scope: Scope, change: Change) -> Scope:
    threads = Threads(allreduce=change.threads, ps=change.threads)
    return replace(scope, scale=replace(scope.scale, threads=threads))


def _in_order(axes: Sequence[Axis]) -> Iterator[Change]:
    """The default; each single change, of every axis in turn; combinations as they are drawn."""
    yield Change()
    for changes in zip_longest(*axes):
        yield from filter(None, changes)
    several = [
        chosen
        for each in product(*((None, *axis) for axis in axes))
        if len(chosen := [change for change in each if change]) > 1
    ]
    random.Random(SEED).shuffle(several)
    yield from map(_together, several)


def _together(changes: Iterable[Change]) -> Change:
    settings, threads = StrategySettings(), None
    for change in changes:
        settings = settings.changed_by(change.settings)
        threads = change.threads or threads
    return Change(settings=settings, threads=threads)


def _distinct(points: Iterable[Experiment]) -> Iterator[Experiment]:
    seen: set[Experiment] = set()
    for point in points:
        if point not in seen:
            seen.add(point)
            yield point
