"""All-reduce: workers x what is reduced at once.

Axes: workers; the suite's buckets, TensorFlow's one single pack, and its packs of 0.5 and 2 MB.

Method: all points use the same collective.  Bases are a single worker and workers that do not
communicate.

Cost: 16 points per model at 1, 2 and 4 workers, which take less than ten minutes in the profile
quick.

It should show what sending in parts is worth, and that the best size depends on the model.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from experiments.studies.scope import Scope
from experiments.studies.study import Study
from ps_allreduce.point.experiment import Experiment

#: None is buckets; of TensorFlow's packs, 0 is its default, one single pack.
PACK_BYTES = (None, 0, 500_000, 2_000_000)


def _points(scope: Scope) -> Iterator[Experiment]:
    for workload in scope.workloads:
        yield from scope.bases(workload)
        for workers, bytes_per_pack in itertools.product(scope.scale.workers, PACK_BYTES):
            yield scope.reduced(workload, workers, bytes_per_pack)


STUDY = Study(about=__doc__, points=_points, hosts=4)
