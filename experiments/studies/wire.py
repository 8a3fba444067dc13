"""How close every strategy comes to the bound that its links set, on an emulated network.

Axes: 25 and 100 MB of gradients in 16 and 160 tensors; 2 and 4 workers; all-reduce, and both
strategies with one server or two on hosts of their own, and with one beside every worker.

Method: workers only communicate; then all-reduce and synchronous servers again with an accelerator
that computes for as long as the links need; then, for contrast, the smallest points unbucketed and
in one pack, TensorFlow as it ships, and the rungs between both.  On links that processors cannot
fill, 16 tensors are sent, and servers share a host as well.

Cost: 86 points in half an hour at 1 Gbit/s with one launch each, 50 on faster links.

It should show where the links are the limit, where something else is, and where plain TensorFlow is
faster, and which rung causes that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from experiments.studies.scope import SERVER_STRATEGIES, UNBUCKETED, Scope
from experiments.studies.study import Study
from experiments.sweep.sweep import QUICK, STANDARD, Profile
from ps_allreduce.bounds import nominal_network_s
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.models.weights import TensorSet
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    SynchronousServers,
)
from ps_allreduce.point.strategies.base import Altered, StrategySettings
from ps_allreduce.point.strategies.stock import LADDERS
from ps_allreduce.point.workload import EmulatedCompute, Workload

#: On faster links processors are the limit.
SLOW_BITS_PER_S = 1e9

SMALL, LARGE = 25_000_000, 100_000_000

FEW, MANY = 16, 160

WORKERS = (2, 4)

#: The shortest that can be emulated; the bound of a point that only communicates leaves it out.
#: All gradients at once: to release groups within a millisecond only costs processor time.
NO_COMPUTE = EmulatedCompute(forward_s=0.001, backward_s=0.001, groups=1)

#: Of every gradient; small enough for shards of equal total size on every server.
SPLIT_BYTES = 2_000_000

#: What the duration of a step is estimated by where links have no rate of their own.
UNSHAPED_BITS_PER_S = 10e9

MEASURED_S = 5.0

FEWEST_STEPS, MOST_STEPS = 4, 10


def _points(scope: Scope) -> Iterator[Experiment]:
    if scope.network is None:
        raise UserError("wire needs links of a known rate: use LAUNCHER=emulated.")
    rate = scope.network.bits_per_s
    slow = rate is not None and rate <= SLOW_BITS_PER_S
    if slow:
        yield from _communicating(scope)
        yield from _overlapping(scope)
    else:
        yield from _on_fast_links(scope)
    yield from _for_contrast(scope)


def _communicating(scope: Scope) -> Iterator[Experiment]:
    """Nothing but communication."""
    for size, count, workers in itertools.product((SMALL, LARGE), (FEW, MANY), WORKERS):
        model = TensorSet(count=count, num_bytes=size)
        yield sending_point(scope, AllReduce, workers, model)
        for servers, strategy in itertools.product(_servers(workers), SERVER_STRATEGIES):
            yield sending_point(scope, strategy, workers, model, servers)


def _overlapping(scope: Scope) -> Iterator[Experiment]:
    """An accelerator that computes for as long as the links need."""
    for size, workers in itertools.product((SMALL, LARGE), WORKERS):
        model = TensorSet(count=FEW, num_bytes=size)
        one, _, beside = _servers(workers)
        yield _computing(sending_point(scope, AllReduce, workers, model))
        yield _computing(sending_point(scope, SynchronousServers, workers, model, one))
        yield _computing(sending_point(scope, SynchronousServers, workers, model, beside))


def _on_fast_links(scope: Scope) -> Iterator[Experiment]:
    """What processors are the limit of; two servers also share a host."""
    for size, workers in itertools.product((SMALL, LARGE), WORKERS):
        model = TensorSet(count=FEW, num_bytes=size)
        one, two, beside = _servers(workers)
        yield sending_point(scope, AllReduce, workers, model)
        yield sending_point(scope, SynchronousServers, workers, model, beside)
        for strategy in SERVER_STRATEGIES:
            apart = sending_point(scope, strategy, workers, model, two)
            yield from (sending_point(scope, strategy, workers, model, one), apart)
            yield replace(apart, spread=Spread(ps_per_host=2))


def _for_contrast(scope: Scope) -> Iterator[Experiment]:
    """The smallest points on every rung from TensorFlow as it ships up to the suite's defaults.

    Tensors have no statistics, and the defaults are there already.
    """
    one = StrategySettings(num_ps=1, layout=LayoutKind.DEDICATED)
    model = TensorSet(count=FEW, num_bytes=SMALL)
    for workers in WORKERS:
        yield sending_point(scope, SynchronousServers, workers, model, one.changed_by(UNBUCKETED))
        for rung in chain.from_iterable(ladder[:-1] for ladder in LADDERS.values()):
            if rung.settings.altered is not Altered.STATISTICS:
                settings = one.changed_by(rung.settings)
                yield sending_point(scope, rung.strategy, workers, model, settings)


def _servers(workers: int) -> list[StrategySettings]:
    """Servers apart, one and two; and one beside every worker."""
    layouts = (
        (1, LayoutKind.DEDICATED),
        (2, LayoutKind.DEDICATED),
        (workers, LayoutKind.COLOCATED),
    )
    cut = StrategySettings(placement=Policy.PARTITIONED, split_bytes=SPLIT_BYTES)
    return [replace(cut, num_ps=count, layout=layout) for count, layout in layouts]


def sending_point(
    scope: Scope,
    strategy: type[AnyStrategy],
    workers: int,
    model: TensorSet,
    settings: StrategySettings | None = None,
) -> Experiment:
    """Workers that only communicate, for some seconds."""
    workload = Workload(model=model, batch_per_worker=1, emulated=NO_COMPUTE)
    point = scope.point(workload, strategy, workers, settings)
    return replace(point, measurement=_measurement(_network_s(point)))


def _computing(point: Experiment) -> Experiment:
    """The same with an accelerator; a third of its time is the forward pass."""
    network_s = _network_s(point)
    emulated = EmulatedCompute(forward_s=network_s / 3, backward_s=network_s * 2 / 3)
    return replace(
        point,
        workload=replace(point.workload, emulated=emulated),
        measurement=_measurement(network_s * 4 / 3),
    )


def _network_s(point: Experiment) -> float:
    model = point.workload.model
    gradient_bytes = model.num_bytes if isinstance(model, TensorSet) else 0
    return nominal_network_s(point, gradient_bytes, _rate(point.network))


def _rate(network: EmulatedNetwork | None) -> float:
    return (network.bits_per_s if network else None) or UNSHAPED_BITS_PER_S


def _measurement(step_s: float) -> Measurement:
    """Some seconds, long steps a few times at least."""
    return Measurement(
        warmup=FixedWarmup(least_steps=2, least_s=0.5),
        measured_steps=min(MOST_STEPS, max(FEWEST_STEPS, round(MEASURED_S / step_s))),
        measured_s=MEASURED_S / 2,
    )


#: The longest steps at 1 Gbit/s are those of four workers that send 100 MB each to one server and
#: compute for as long; slower links take longer.
PROFILES = {
    QUICK: Profile(name=QUICK, repetitions=1, deadline_s=400.0),
    STANDARD: Profile(name=STANDARD, repetitions=3, deadline_s=4000.0),
}

STUDY = Study(about=__doc__, points=_points, profiles=PROFILES, hosts=6, looks_first=False)
