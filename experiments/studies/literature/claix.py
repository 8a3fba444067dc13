"""Training and evaluation timed apart: the study of CLAIX, whose test phase limited the whole.

Original: Kozhokanova, "Performance Analysis of Large Scale Distributed DL: A Case Study",
aiXcelerate 2021: ResNet-50 on BigEarthNet (12 bands of 120 x 120, up to 12 of 43 labels), Horovod
0.18 over NCCL on hosts with two V100, up to 64 of them; strong and weak scaling, POP metrics.

Axes: workers; weak and strong scaling; a sequential evaluation, by one worker, and a distributed
one; sizes of Horovod's fusion buffer.

Method: all-reduce of the suite and, where it is installed, Horovod.  Batches of 64.  The evaluation
has 4 batches for each worker, so that its rate is known; an epoch is then 60 % of the 590,326
patches at the rate of training and 20 % at that of evaluation (analysis/studies/claix_shown.py).
10 steps of warm-up and 100 measured ones, 5 launches; bases are a single worker and workers that do
not communicate.  On GPUs the largest number of workers also trains in mixed precision.  --input
takes converted BigEarthNet patches (docs/data.md); without it examples are made up.

The profile quick is a small form for one machine: up to 8 emulated hosts, variables of ResNet50 32
times smaller, an emulated accelerator, buffers 32 times smaller too (docs/studies/claix.md).  2
steps of warm-up and 5 measured ones, 3 launches; strong scaling and buffers with up to 4 workers.

Cost: in the profile quick 27 launches, about 8 minutes on two cores.

It should show that a sequential evaluation bounds what more workers bring, and that a distributed
one does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from experiments.studies.scope import Scope
from experiments.studies.study import SmallForm, Study, emulated, fixed_profiles
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data_set import Target
from ps_allreduce.point.measurement import Evaluation, EvaluationMode, Measurement
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.models.weights import ScaledModel
from ps_allreduce.point.resources import Device
from ps_allreduce.point.strategies import Horovod
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import Precision, Scaling, Workload

#: Of the evaluation, for each worker.
BATCHES_PER_WORKER = 4

#: Horovod's buffer: its default, and a larger one, which the original advises to try.
FUSION_BYTES = (64_000_000, 256_000_000)

#: Of variables and buffers in the small form.
DIVISOR = 32

#: What the original trained.
WORKLOAD = Workload(
    model=ImageModel(
        name="ResNet50", image_size=120, channels=12, num_classes=43, target=Target.LABELS
    ),
    batch_per_worker=64,
)

#: Seconds of a step of the small form, derived in docs/studies/claix.md.
STEP_S = 0.6

#: So small that gradients travel while later ones are computed.
MESSAGE_BYTES = 100_000

SMALL = SmallForm(
    workloads=(emulated("ResNet50", divisor=DIVISOR, batch=64, step_s=STEP_S),),
    workers=(1, 4, 8),
    hosts=8,
    bandwidth=100e6,
    settings=StrategySettings(group_bytes=MESSAGE_BYTES, cut_bytes=MESSAGE_BYTES),
)

PROFILES = fixed_profiles(2, 5, launches=3)


def _points(scope: Scope) -> Iterator[Experiment]:
    for weak in scope.workloads:
        yield from scope.bases(weak)[1:]
        yield from _scaled(scope, weak)
        yield from _fused(scope, weak)
        yield from _strong(scope, weak)
        if scope.device is Device.GPU and weak.emulated is None:
            mixed = replace(weak, precision=Precision.MIXED_FLOAT16)
            point = scope.reduced(mixed, scope.scale.workers[-1])
            yield _evaluated(point, EvaluationMode.DISTRIBUTED)


def _scaled(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    """With both evaluations, which are the same for one worker."""
    for point in _trained(scope, workload, scope.scale.workers):
        for mode in EvaluationMode if point.num_workers > 1 else (EvaluationMode.SEQUENTIAL,):
            yield _evaluated(point, mode)


def _strong(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    """Workers share the batch; the evaluation is that of the original."""
    shared = replace(workload, scaling=Scaling.STRONG)
    for point in _trained(scope, shared, _fewer(scope)):
        yield _evaluated(point, EvaluationMode.SEQUENTIAL)


def _fewer(scope: Scope) -> tuple[int, ...]:
    """Numbers of workers; in the small form all but the most, whose launches take longest."""
    numbers = scope.scale.workers
    return numbers[:-1] if scope.brief and len(numbers) > 1 else numbers


def _trained(scope: Scope, workload: Workload, numbers: Sequence[int]) -> Iterator[Experiment]:
    yield scope.bases(workload)[0]
    for workers in numbers:
        if workers > 1:
            yield scope.reduced(workload, workers)


def _fused(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    """Horovod with many workers, by the size of its buffer."""
    workers = _fewer(scope)[-1]
    divisor = DIVISOR if isinstance(workload.model, ScaledModel) else 1
    for size in FUSION_BYTES if workers > 1 else ():
        settings = scope.settings.only(Horovod.understands())
        changed = settings.changed_by(StrategySettings(fusion_bytes=size // divisor))
        point = scope.point(workload, Horovod, workers, changed)
        yield _evaluated(point, EvaluationMode.DISTRIBUTED)


def _evaluated(point: Experiment, mode: EvaluationMode) -> Experiment:
    """The point, with so many batches for each worker."""
    assert isinstance(point.measurement, Measurement)
    evaluation = Evaluation(batches=BATCHES_PER_WORKER * point.num_workers, mode=mode)
    measurement = replace(point.measurement, evaluation=evaluation)
    return replace(point, measurement=measurement)


STUDY = Study(
    about=__doc__,
    points=_points,
    profiles=PROFILES,
    has_brief=True,
    optional=(Horovod,),
    workloads=(WORKLOAD,),
    small=SMALL,
)
