"""From TensorFlow as it ships to the suite's defaults: what each change brings.

Axes: the rungs of both sides.  TensorFlow as it ships; the optimizer as one operation for each
variable; statistics of batch norm on the worker; the suite's own step, unbucketed or in one pack;
buckets; a bounded number of messages in flight.

Method: each rung changes one thing and is held against the rung before it.  The largest number of
workers, as many servers unless stated, variables placed round robin, as TensorFlow does.  Models
without such statistics have no rung for them.  Servers train asynchronously, because those that
TensorFlow ships can do nothing else.  Bases are a single worker and workers that do not
communicate; the profile quick has these only where workers share cores.

Cost: 13 or 14 points per model in the profile quick.

It should show where plain TensorFlow is slower than the suite, where it is faster, and why.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from experiments.studies.scope import Scope
from experiments.studies.study import Study
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies.stock import LADDERS
from ps_allreduce.point.wire import WIRE_SETTINGS

#: What rungs differ in, and what plain TensorFlow does not have.
_CHANGED = {*WIRE_SETTINGS, "altered", "bytes_per_pack"}


def _points(scope: Scope) -> Iterator[Experiment]:
    if stated := sorted(_CHANGED.intersection(scope.settings.stated)):
        raise UserError(f"the rungs of ladder differ in {', '.join(stated)}: leave that out.")
    workers = scope.scale.workers[-1]
    for workload in scope.workloads:
        yield from scope.bases(workload)
        settings = scope.of_servers(workload, scope.servers_for(workers), Policy.ROUND_ROBIN)
        for rung in chain.from_iterable(LADDERS.values()):
            if rung.settings.altered in (None, *scope.alterations(workload)):
                changed = settings.changed_by(rung.settings)
                yield scope.point(workload, rung.strategy, workers, changed)


STUDY = Study(about=__doc__, points=_points, hosts=4, has_brief=True)
