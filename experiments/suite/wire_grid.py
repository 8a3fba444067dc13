"""The points at which every strategy is held against the bound that the links set.

Decides the grid, the targets and how long a point is measured.  Running the points and judging what
they reached is the business of `wire_bench`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from launchers import EMULATED
from ps_allreduce.bounds import link_bytes, network_time_s
from ps_allreduce.point.architectures import tensor_set
from ps_allreduce.point.experiment import Collective, Experiment, Profile, server_settings
from ps_allreduce.point.layout import place_tasks, tasks_of
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.spread import LayoutKind, Spread
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.point.wire import STOCK, Wire
from ps_allreduce.point.workload import EmulatedCompute, Workload

MEGABYTES = (25, 100)

TENSORS = (16, 160)

WORKERS = (2, 4)

#: The share of its bound that a step reaches at least.
TARGETS = {Strategy.PS_SYNC: 0.93, Strategy.ALLREDUCE: 0.92, Strategy.PS_ASYNC: 0.95}

#: The fastest links that targets are for; on faster ones processors are the limit.
TARGET_BITS_PER_S = 1e9

#: Where communication hides behind computation that takes as long.
OVERLAP_TARGET = 0.85

#: The shortest that can be emulated; the bound of a point that only communicates leaves it out.
#: All gradients at once: to release groups within a millisecond only costs processor time.
NO_COMPUTE = EmulatedCompute(forward_s=0.001, backward_s=0.001, groups=1)

#: Of every gradient; small enough for shards of equal total size on every server.
SPLIT_BYTES = 2_000_000

#: What the duration of a step is estimated by where links have no rate of their own.
UNSHAPED_BITS_PER_S = 10e9

MEASURED_S = 5.0

FEWEST_STEPS, MOST_STEPS = 4, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A row of the table before it is measured.

    Attributes:
        compute_s: of the emulated accelerator; 0 where the point only communicates.
        target: the share of the bound to be reached; None where rows are shown for contrast.
        tuned: gradients travel as the suite sends them, not as TensorFlow does on its own.
    """

    experiment: Experiment
    compute_s: float = 0.0
    target: float | None = None
    tuned: bool = True

    @property
    def num_tensors(self) -> int:
        """Gradients of a worker."""
        return _tensors(self.experiment)[0]

    @property
    def gradient_bytes(self) -> int:
        """Of one worker, in float32."""
        return math.prod(_tensors(self.experiment)) * 4

    @property
    def purpose(self) -> str:
        """Points of one purpose are summed up together."""
        name = str(self.experiment.strategy)
        return f"{name}, overlap" if self.compute_s else name

    def rival_of(self, stock: Point) -> bool:
        """The same tensors between the same tasks, as the suite sends them."""
        names = ("strategy", "num_workers", "num_ps", "layout", "workload", "network")
        mine, theirs = self.experiment, stock.experiment
        return self.tuned and all(getattr(mine, name) == getattr(theirs, name) for name in names)


def _tensors(experiment: Experiment) -> tuple[int, int]:
    tensors = tensor_set(experiment.workload.model)
    if tensors is None:
        raise ValueError("points of the bench send sets of tensors")
    return tensors.count, tensors.elements


def wire_grid(network: EmulatedNetwork) -> list[Point]:
    """All points, the strategies in turn."""
    if network.bits_per_s is None or network.bits_per_s > TARGET_BITS_PER_S:
        return [*_on_fast_links(network), *_stock(network)]
    return [*_communicating(network), *_overlapping(network), *_stock(network)]


def _communicating(network: EmulatedNetwork) -> Iterator[Point]:
    """Nothing but communication."""
    for megabytes, tensors, workers in itertools.product(MEGABYTES, TENSORS, WORKERS):
        shape = _shape(network, workers, tensors, megabytes)
        yield _point(Strategy.ALLREDUCE, {"collective": Collective.RING}, shape)
        for servers in _servers(workers):
            for strategy in (Strategy.PS_SYNC, Strategy.PS_ASYNC):
                yield _point(strategy, servers, shape)


def _overlapping(network: EmulatedNetwork) -> Iterator[Point]:
    """An accelerator that computes for as long as the links need."""
    for megabytes, workers in itertools.product(MEGABYTES, WORKERS):
        shape = _shape(network, workers, TENSORS[0], megabytes)
        dedicated, _, colocated = _servers(workers)
        yield _computing(_point(Strategy.ALLREDUCE, {"collective": Collective.RING}, shape))
        yield _computing(_point(Strategy.PS_SYNC, dedicated, shape))
        yield _computing(_point(Strategy.PS_SYNC, colocated, shape))


def _on_fast_links(network: EmulatedNetwork) -> Iterator[Point]:
    """What processors are the limit of: no targets, and servers that share a host as well."""
    for megabytes, workers in itertools.product(MEGABYTES, WORKERS):
        shape = _shape(network, workers, TENSORS[0], megabytes)
        one, two, colocated = _servers(workers)
        sharing = two | {"spread": Spread(ps_per_host=2)}
        points = [_point(Strategy.ALLREDUCE, {"collective": Collective.RING}, shape)]
        points += [_point(Strategy.PS_SYNC, each, shape) for each in (one, two, sharing, colocated)]
        points += [_point(Strategy.PS_ASYNC, each, shape) for each in (one, two, sharing)]
        yield from (replace(point, target=None) for point in points)


def _stock(network: EmulatedNetwork) -> Iterator[Point]:
    """What TensorFlow makes of the same points on its own."""
    for workers in WORKERS:
        shape = _shape(network, workers, TENSORS[0], MEGABYTES[0])
        packed = {"collective": Collective.RING, "bytes_per_pack": 0}
        whole = server_settings(1, Policy.ROUND_ROBIN, LayoutKind.DEDICATED) | {"wire": STOCK}
        for strategy, settings in (
            (Strategy.PS_SYNC, whole),
            (Strategy.PS_ASYNC, whole),
            (Strategy.ALLREDUCE, packed),
        ):
            yield replace(_point(strategy, settings, shape), target=None, tuned=False)


def _servers(workers: int) -> list[dict[str, Any]]:
    """Servers apart, one and two; and one beside every worker."""
    layouts = ((1, LayoutKind.DEDICATED), (2, LayoutKind.DEDICATED))
    return [
        server_settings(count, Policy.PARTITIONED, layout, SPLIT_BYTES)
        for count, layout in (*layouts, (workers, LayoutKind.COLOCATED))
    ]


def _shape(network: EmulatedNetwork, workers: int, tensors: int, megabytes: int) -> dict[str, Any]:
    model = f"Tensors-{tensors}-{megabytes}MB"
    return {
        "num_workers": workers,
        "launcher": EMULATED,
        "spread": Spread(),
        "network": network,
        "wire": Wire(),
        "workload": Workload(model=model, batch_per_worker=1, emulated=NO_COMPUTE),
        "profile": Profile(name="wire"),
    }


def _point(strategy: Strategy, settings: dict[str, Any], shape: dict[str, Any]) -> Point:
    experiment = Experiment(strategy=strategy, **(shape | settings))
    step_s = nominal_network_s(experiment)
    timed = replace(experiment, profile=_profile(step_s))
    return Point(experiment=timed, target=TARGETS[strategy])


def _computing(point: Point) -> Point:
    """The same with an accelerator; a third of its time is the forward pass."""
    network_s = nominal_network_s(point.experiment)
    emulated = EmulatedCompute(forward_s=network_s / 3, backward_s=network_s * 2 / 3)
    experiment = replace(
        point.experiment,
        workload=replace(point.experiment.workload, emulated=emulated),
        profile=_profile(network_s * 4 / 3),
    )
    return replace(point, experiment=experiment, compute_s=network_s, target=OVERLAP_TARGET)


def nominal_network_s(experiment: Experiment) -> float:
    """Time on the busiest link at the rate that was asked for, servers loaded equally."""
    placed = place_tasks(experiment, [str(number) for number in range(len(tasks_of(experiment)))])
    gradient_bytes = math.prod(_tensors(experiment)) * 4
    shares = [gradient_bytes // experiment.num_ps] * experiment.num_ps if experiment.num_ps else []
    host_of = {str(task): host for task, host in placed.items()}
    rate = experiment.network.bits_per_s if experiment.network else None
    crossings = link_bytes(experiment, host_of, shares, gradient_bytes)
    return network_time_s(crossings, rate or UNSHAPED_BITS_PER_S)


def _profile(step_s: float) -> Profile:
    """Some seconds of measuring, long steps a few times at least."""
    steps = min(MOST_STEPS, max(FEWEST_STEPS, round(MEASURED_S / step_s)))
    return Profile(
        name="wire",
        warmup_steps=2,
        warmup_s=0.5,
        measured_steps=steps,
        measured_s=MEASURED_S / 2,
        repetitions=1,
        deadline_s=90.0 + 8 * (steps + 4) * step_s,
    )
