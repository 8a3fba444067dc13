"""The sweep that shows what each setting of the exchange does: one at a time, the others as usual.

Decides which values are tried; what the settings mean is decided in `ps_allreduce.point.wire` and
`ps_allreduce.point.experiment`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from experiments.studies.request import SERVER_STRATEGIES, Request
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.spread import workers_together
from ps_allreduce.point.wire import STOCK, Wire, WireType
from ps_allreduce.point.workload import Precision, Workload

PACK_BYTES = (0, 2_000_000)

ACCUMULATION = 4

STALENESS = (1, 4)

STEPS_PER_DISPATCH = (4, 16)


def tuning_sweep(request: Request) -> tuple[Experiment, ...]:
    """One setting of the exchange at a time, every strategy, at the largest number of workers."""
    points: list[Experiment] = []
    for workload in request.workloads:
        points += request.baselines(workload)
        for usual in _usual(request, workload):
            points += [usual, *_variants(usual)]
    return tuple(dict.fromkeys(points))


def _usual(request: Request, workload: Workload) -> list[Experiment]:
    workers = request.scale.workers[-1]
    if workers < 2:
        raise UserError("tuning-sweep changes how workers exchange gradients: give it 2 or more.")
    num_ps = request.num_ps or (workers if request.has_room(workers, workers) else 1)
    policy = request.best_policy(workload, num_ps)
    served = [request.served(workload, s, workers, num_ps, policy) for s in SERVER_STRATEGIES]
    return [*served, request.reduced(workload, workers)]


def _variants(usual: Experiment) -> Iterator[Experiment]:
    wires = [STOCK, *_wires(usual.wire)]
    if usual.traits.uses_collective:
        yield from (replace(usual, wire=Wire(), bytes_per_pack=size) for size in PACK_BYTES)
        wires = wires[1:]  # TensorFlow's own way is a pack
    yield from (replace(usual, wire=other) for other in wires)
    if usual.traits.deals_steps:
        yield from _dealt(usual)
    if usual.traits.aggregates:
        yield from _aggregated(usual)
    workload = usual.workload
    yield replace(usual, workload=replace(workload, accumulation=ACCUMULATION))
    if workload.emulated is None:
        yield replace(usual, workload=replace(workload, precision=Precision.MIXED_BFLOAT16))


def _dealt(usual: Experiment) -> Iterator[Experiment]:
    """A bound on staleness leaves room for so many steps per dispatch and no more."""
    for staleness in STALENESS:
        if staleness >= usual.steps_per_dispatch:
            yield replace(usual, staleness=staleness)
    for steps in STEPS_PER_DISPATCH:
        if usual.staleness is None or steps <= usual.staleness:
            yield replace(usual, steps_per_dispatch=steps)


def _wires(wire: Wire) -> list[Wire]:
    return [
        *(replace(wire, group_bytes=size) for size in (0, 2_000_000)),
        *(replace(wire, cut_bytes=size) for size in (0, 125_000, 2_000_000)),
        *(replace(wire, in_flight=count) for count in (0, 1, 2, 16)),
        *(replace(wire, gradients=kind) for kind in WireType),
    ]


def _aggregated(usual: Experiment) -> Iterator[Experiment]:
    """Only where workers share hosts, equally many on each."""
    if workers_together(usual.num_workers, usual.spread) < 2:
        return
    try:
        yield replace(usual, wire=replace(usual.wire, host_aggregation=True))
    except UserError:
        return
