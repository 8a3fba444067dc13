"""Horovod: workers x its own settings, beside the suite's all-reduce.

Axes: workers; Horovod by default, without fusion, with buffers of 2 MB, and with cycles of 0.2 and
5 ms; the suite's buckets, and TensorFlow's one pack.

Method: Horovod and TensorFlow reduce the same gradients of the same step.  One setting of Horovod's
is changed at a time.  The environment needs Horovod (make setup HOROVOD=1).  Bases are a single
worker and workers that do not communicate.

Cost: 15 points per model at 1 and 2 workers.

It should show what limits Horovod over Gloo: the time until it looks at what is ready, the size of
what travels at once, or the links.
"""

from __future__ import annotations

from collections.abc import Iterator

from experiments.studies.scope import Scope
from experiments.studies.study import Study
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import Horovod
from ps_allreduce.point.strategies.stated import StrategySettings

#: What is changed about Horovod, one thing at a time.
CHANGES = (
    StrategySettings(),
    StrategySettings(fusion_bytes=0),
    StrategySettings(fusion_bytes=2_000_000),
    StrategySettings(cycle_ms=0.2),
    StrategySettings(cycle_ms=5.0),
)


def _points(scope: Scope) -> Iterator[Experiment]:
    for workload in scope.workloads:
        yield from scope.bases(workload)
        for workers in scope.scale.workers:
            for change in CHANGES:
                settings = scope.settings.only(Horovod.understands()).changed_by(change)
                yield scope.point(workload, Horovod, workers, settings)
            yield scope.reduced(workload, workers)
            yield scope.reduced(workload, workers, 0)


STUDY = Study(about=__doc__, points=_points)
