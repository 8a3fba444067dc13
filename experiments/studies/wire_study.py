"""How close every strategy comes to the bound that its links set: eight cells.

Axes: 25 and 100 MB of gradients in 16 tensors; 2 and 4 workers with two dedicated servers, 4 and 8
with a server beside each; synchronous and asynchronous servers, all-reduce, Horovod where it is
installed, and TensorFlow as it ships.

Method: workers only communicate.  Every cell states the rate of its links, so that a step takes 0.3
to 3 s and two cores are less than 0.85 busy.  All-reduce is measured once where cells differ in
servers only.  With 25 MB and 4 workers, all-reduce and synchronous servers again with an
accelerator that computes for as long as the links need.

Cost: 44 points, three launches each, in an hour on two cores; 8 hosts.  The profile standard makes
five launches, with 60 steps or more of the suite's servers, in about three hours.

It should show how much of its links each strategy uses, how evenly its steps end, and whether plain
TensorFlow is faster anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from experiments.studies.scope import SERVER_STRATEGIES, Scope
from experiments.studies.study import Study
from experiments.sweep.sweep import QUICK, STANDARD, Profile
from ps_allreduce.bounds import nominal_network_s
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.models.weights import TensorSet
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import LayoutKind
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    Horovod,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import EmulatedCompute, Workload

SMALL, LARGE = 25_000_000, 100_000_000

#: Tensors of a model: each is several messages.
FEW = 16

#: By bytes of gradients and workers.  Eight workers need 7 s of processor time per GB.  25 MB leave
#: two cores half idle at 250 Mbit/s; with 100 MB no rate does that and lets a step take 2 s.
RATES: Mapping[tuple[int, int], float] = {
    (SMALL, 2): 600e6,
    (SMALL, 4): 800e6,
    (SMALL, 8): 250e6,
    (LARGE, 2): 1e9,
    (LARGE, 4): 1e9,
    (LARGE, 8): 500e6,
}

#: Workers, servers, and where these are.
SHAPES = (
    (2, 2, LayoutKind.DEDICATED),
    (4, 2, LayoutKind.DEDICATED),
    (4, 4, LayoutKind.COLOCATED),
    (8, 8, LayoutKind.COLOCATED),
)

#: The shortest that can be emulated; the bound of a point that only communicates leaves it out.
#: All gradients at once: to release groups within a millisecond only costs processor time.
NO_COMPUTE = EmulatedCompute(forward_s=0.001, backward_s=0.001, groups=1)

#: Of every gradient; small enough for shards of equal total size on every server.
SPLIT_BYTES = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CellWindow:
    """How long is measured: about so many seconds, if these are not fewer nor more steps."""

    seconds: float
    fewest: int
    most: int

    def of(self, step_s: float) -> Measurement:
        """The window where a step takes so long."""
        steps = max(self.fewest, min(self.most, round(self.seconds / step_s)))
        warmup = FixedWarmup(least_steps=2, least_s=0.5)
        return Measurement(warmup=warmup, measured_steps=steps)


#: Of servers: how evenly steps end is seen in many of them only.  A profile may ask for more.
LONG = CellWindow(seconds=8.0, fewest=6, most=25)

SHORT = CellWindow(seconds=3.0, fewest=4, most=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A model, workers and servers, and the rate of links."""

    num_bytes: int
    workers: int
    num_ps: int
    layout: LayoutKind

    @property
    def settings(self) -> StrategySettings:
        """Its servers, with equal shares."""
        return StrategySettings(
            num_ps=self.num_ps,
            layout=self.layout,
            placement=Policy.PARTITIONED,
            split_bytes=SPLIT_BYTES,
        )


CELLS = tuple(
    Cell(num_bytes=size, workers=workers, num_ps=servers, layout=layout)
    for size, (workers, servers, layout) in product((SMALL, LARGE), SHAPES)
)


def _points(scope: Scope) -> Iterator[Experiment]:
    if scope.network is None:
        raise UserError("wire states the rates of emulated links: use LAUNCHER=emulated.")
    asked = [cell for cell in CELLS if cell.workers in scope.scale.workers]
    cells = [(cell, _at_rate_of(cell, scope)) for cell in asked]
    yield from dict.fromkeys(point for each in cells for point in _of_cell(*each))
    for cell, own in cells:
        if (cell.num_bytes, cell.workers, cell.num_ps) == (SMALL, 4, 4):
            yield from (
                _computing(_sent(cell, own, each)) for each in (AllReduce, SynchronousServers)
            )


def _at_rate_of(cell: Cell, scope: Scope) -> Scope:
    assert scope.network is not None
    rate = RATES[cell.num_bytes, cell.workers]
    return replace(scope, network=replace(scope.network, bits_per_s=rate))


def _of_cell(cell: Cell, scope: Scope) -> Iterator[Experiment]:
    window = replace(LONG, fewest=scope.measurement.measured_steps)
    for strategy in SERVER_STRATEGIES:
        point = _sent(cell, scope, strategy)
        yield replace(point, measurement=window.of(_network_s(point)))
    for other in (AllReduce, Horovod, StockAllReduce, StockServers):
        yield _sent(cell, scope, other)


def _sent(cell: Cell, scope: Scope, strategy: type[AnyStrategy]) -> Experiment:
    model = TensorSet(count=FEW, num_bytes=cell.num_bytes)
    return sending_point(scope, strategy, cell.workers, model, cell.settings)


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
    return replace(point, measurement=SHORT.of(_network_s(point)))


def _computing(point: Experiment) -> Experiment:
    """The same with an accelerator; a third of its time is the forward pass."""
    network_s = _network_s(point)
    emulated = EmulatedCompute(forward_s=network_s / 3, backward_s=network_s * 2 / 3)
    return replace(
        point,
        workload=replace(point.workload, emulated=emulated),
        measurement=SHORT.of(network_s * 4 / 3),
    )


def _network_s(point: Experiment) -> float:
    model, network = point.workload.model, point.network
    assert isinstance(model, TensorSet)
    assert network is not None
    assert network.bits_per_s is not None
    return nominal_network_s(point, model.num_bytes, network.bits_per_s)


PROFILES = {
    name: Profile(
        name=name,
        repetitions=repetitions,
        deadline_s=300.0,
        measurement=Measurement(measured_steps=fewest),
    )
    for name, repetitions, fewest in ((QUICK, 3, LONG.fewest), (STANDARD, 5, 60))
}

STUDY = Study(
    about=__doc__,
    points=_points,
    profiles=PROFILES,
    hosts=max(workers for workers, _, _ in SHAPES),
    looks_first=False,
    optional=(Horovod,),
)
