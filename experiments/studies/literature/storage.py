"""What reading costs: storage x format of files x settings of the pipeline x model x precision.

Original: Salvaris, "Distributed Deep Learning", effects of storage and of data type: ResNet50 in
three frameworks on clusters of V100, synthetic and real images on local disks, NFS and Blob
storage, batch 64; TFRecord files against loose images.  Its text has no numbers.

Axes: the input, synthetic and every path that is stated with --input (a folder of TFRecord files,
or images:FOLDER; the same images on several kinds of storage); settings of the pipeline: the
default, one set badly (one image at a time, nothing prefetched, no reading ahead), one that keeps
decoded images in memory; models of different sizes, and on GPUs single and mixed precision.

Method: all-reduce of the suite at the largest number of workers; rates relative to those with
synthetic images, mean and highest launch, and the share of a step that waits for input.  10 steps
of warm-up and 100 measured ones, 5 launches.  The operating system keeps what was read in memory:
a data set that fits there is read from a disk once (docs/data.md).

The profile quick is a small form for one machine: 2 emulated hosts, devices emulated at published
speeds, real images that are made on the spot as loose files and as TFRecord files
(docs/studies/storage.md).  3 steps of warm-up and 10 measured ones, 3 launches.

Cost: in the profile quick 63 launches, about 8 minutes on two cores.

It should show that the faster the device, the sooner reading limits it; how much of that a badly
set pipeline takes; and what the format of files adds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from experiments.data_sets.sample_images import SampleImages
from experiments.studies.literature.network_study import SMALL as NETWORK_FORM
from experiments.studies.scope import Scope
from experiments.studies.study import SmallForm, Study, fixed_profiles, in_precisions
from ps_allreduce.point.accelerators import SPEEDS
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import InputFiles
from ps_allreduce.point.inputs.data_set import Cache, Pipeline
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.workload import Workload

#: One image at a time, and a batch only when it is asked for.
BADLY_SET = Pipeline(parallel_reads=1, parallel_maps=1, prefetch=0)

PIPELINES = (Pipeline(), BADLY_SET, Pipeline(cache=Cache.MEMORY))

#: Devices and models of the study `network`, from the slowest on.
SMALL_SPEEDS = (("P100", "VGG16"), ("V100", "ResNet50"))

#: Of which models of different sizes.
MODELS = ("VGG16", "ResNet50", "MobileNetV2")

WORKERS = 2

PROFILES = fixed_profiles(3, 10, launches=3)


def _points(scope: Scope) -> Iterator[Experiment]:
    workers = scope.scale.workers[-1]
    for workload in scope.workloads:
        for own in in_precisions(scope, workload):
            yield from (scope.reduced(read, workers) for read in _read(own))


def _read(workload: Workload) -> Iterator[Workload]:
    """With every pipeline; made-up images need none.  The place of files is what is compared."""
    data = workload.data
    if not isinstance(data, InputFiles):
        yield workload
        return
    placed = replace(data, place=data.path)
    for pipeline in PIPELINES:
        changed = replace(
            workload.pipeline,
            parallel_reads=pipeline.parallel_reads,
            parallel_maps=pipeline.parallel_maps,
            prefetch=pipeline.prefetch,
            cache=pipeline.cache,
        )
        yield replace(workload, data=placed, pipeline=changed)


STUDY = Study(
    about=__doc__,
    points=_points,
    profiles=PROFILES,
    has_brief=True,
    workloads=tuple(
        Workload(model=ImageModel(name=name, image_size=224, num_classes=1000), batch_per_worker=64)
        for name in MODELS
    ),
    small=SmallForm(
        workloads=tuple(
            workload
            for speed, workload in zip(SPEEDS, NETWORK_FORM.workloads, strict=True)
            if (speed.device, speed.model) in SMALL_SPEEDS
        ),
        workers=(WORKERS,),
        hosts=WORKERS,
        bandwidth=1e9,
        settings=NETWORK_FORM.settings,
        samples=SampleImages(count=2000, pixels=224),
    ),
)
