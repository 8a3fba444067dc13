"""A gradient for every batch or for four: the study of PCAD, with linear models of the time.

Original: Brumati, Gulart, de Matos, "Performance Evaluation of TensorFlow Parallel Strategies for
Deep Learning Training on HPC Clusters": hosts with an RTX 4070 each and a slow network,
TinyImageNet-200 (100,000 images of 64 x 64, 200 classes).

Axes: ResNet50 and EfficientNetB0; the loop, "sync" (model.fit(), which exchanges gradients after
every batch) and "ctl" (a custom loop that exchanges them after four); batches of 32, 64 and 100; 1,
2 and 3 hosts.  That makes 36 settings.

Method: five launches of each in random order, 180 in all; linear and quadratic models of the time
of an epoch with interactions, analysis of variance, diagnostics (analysis/studies/pcad_shown.py).
Keras 3 does not run model.fit() on several hosts, so the strategy stock_allreduce is "sync":
TensorFlow's own step and exchange.  "ctl" is the suite's loop with TensorFlow's one pack.

The profile quick is a small form for one machine: emulated accelerators on 3 emulated hosts with
links of 1 Gbit/s, gradients of their real sizes.  Times of compute have the ratios that were
measured on processors (COMPUTE_S); all are scaled so that ResNet50 takes 0.3 s for 64 images.  1
step of warm-up and 3 measured ones, three launches of 24 settings: 1 host with every batch, 2 hosts
with 64, 3 hosts with 32 and 100.

Cost: in the profile quick 72 launches, 15 to 20 minutes on two cores.

It should show how much longer an epoch takes with more hosts if every batch is exchanged, how much
of that fewer exchanges take away, and that the size of the model decides how much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from experiments.studies.scope import Scope
from experiments.studies.study import SmallForm, Study, emulated, fixed_profiles
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.strategies import StockAllReduce
from ps_allreduce.point.workload import Workload

#: Of TinyImageNet-200.
IMAGE_SIZE, NUM_CLASSES = 64, 200

#: Batches between two exchanges of the custom loop.
ACCUMULATION = 4

#: Seconds of forward and backward pass by batch, measured on processors (docs/studies/pcad.md).
COMPUTE_S: Mapping[str, Mapping[int, float]] = {
    "ResNet50": {32: 0.498, 64: 0.905, 100: 1.53},
    "EfficientNetB0": {32: 0.184, 64: 0.357, 100: 0.534},
}

#: Of ResNet50 with a batch of 64 in the small form.
SCALED_TO_S = 0.3

#: Batches that several hosts train in the small form: the corners, and what quadratic models need.
SMALL_BATCHES: Mapping[int, tuple[int, ...]] = {2: (64,), 3: (32, 100)}

PROFILES = fixed_profiles(1, 3, launches=3)


def _small(model: str, batch: int) -> Workload:
    """The gradients of a model, and an accelerator that takes as long as stated above."""
    step_s = COMPUTE_S[model][batch] * SCALED_TO_S / COMPUTE_S["ResNet50"][64]
    return emulated(model, divisor=1, batch=batch, step_s=step_s)


def _large(model: str, batch: int) -> Workload:
    sized = ImageModel(name=model, image_size=IMAGE_SIZE, num_classes=NUM_CLASSES)
    return Workload(model=sized, batch_per_worker=batch)


def _all(make: Callable[[str, int], Workload]) -> tuple[Workload, ...]:
    return tuple(make(model, batch) for model, batches in COMPUTE_S.items() for batch in batches)


def _points(scope: Scope) -> Iterator[Experiment]:
    for workload in scope.workloads:
        accumulated = replace(workload, accumulation=ACCUMULATION)
        for workers in _hosts(scope, workload.batch_per_worker):
            yield scope.point(workload, StockAllReduce, workers)
            yield scope.reduced(accumulated, workers, 0)


def _hosts(scope: Scope, batch: int) -> list[int]:
    every = scope.scale.workers
    return [n for n in every if not scope.brief or batch in SMALL_BATCHES.get(n, (batch,))]


STUDY = Study(
    about=__doc__,
    points=_points,
    profiles=PROFILES,
    has_brief=True,
    workloads=_all(_large),
    small=SmallForm(workloads=_all(_small), workers=(1, 2, 3), hosts=3, bandwidth=1e9),
)
