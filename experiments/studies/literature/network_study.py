"""Which network a device needs: speed of the device x links x model x precision.

Original: Salvaris, "Distributed Deep Learning": clusters of 8 hosts with four K80, P40, P100 or
V100 each and InfiniBand; ResNet50, MobileNet V2 and others, synthetic images, batch 64, single and
mixed precision; all-reduce by Horovod over NCCL or Intel MPI.  Its text has no numbers.

Axes: the speed of the device, the rate of the links, the model and its precision.

Method: all-reduce of the suite at the largest number of workers; the time that a step computes
beside the time that its transfer takes on the links, and the step that was measured.  10 steps of
warm-up and 100 measured ones, 5 launches, with a single worker as base.  A cluster has one kind of
device and of link: the study takes both as they are (--interface chooses the links), every model in
single precision, and on GPUs in mixed precision as well; `make compare-results` holds two
clusters or links against each other.

The profile quick is a small form for one machine.  Devices are emulated at published speeds (K80,
P100, V100; `point.accelerators`); variables and links are 32 times smaller, so a transfer takes
as long as on links of 1, 10 and 56 Gbit/s.  2 workers stand for the 32 of the original: the busiest
link carries the gradients once with 2, and 1.94 times in a ring of 32.  VGG16 is left out at 1
Gbit/s, where a transfer takes 4.4 s.  2 steps of warm-up and 4 measured ones, 3
launches.

Cost: in the profile quick 42 launches, about 7 minutes on two cores.

It should show that the faster the device, the faster its network has to be, and that mixed
precision gains only what the links let through.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from experiments.studies.scope import Scope
from experiments.studies.study import SmallForm, Study, emulated, fixed_profiles, in_precisions
from ps_allreduce.bounds import nominal_network_s
from ps_allreduce.point.accelerators import SPEEDS
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import Workload

#: As in the original, of whose models these two are named.
BATCH = 64
WORKLOADS = tuple(
    Workload(model=ImageModel(name=name, image_size=224, num_classes=1000), batch_per_worker=BATCH)
    for name in ("ResNet50", "MobileNetV2")
)

#: Of variables and links in the small form.
DIVISOR = 32

#: Bits per second, before they are divided: Ethernet, and InfiniBand FDR.
LINKS = (1e9, 10e9, 56e9)

#: A step that sends longer than this is left out of the small form, seconds.
MOST_TRANSFER_S = 4.0

#: Of the small form.  In a ring of n the busiest link carries 2(n - 1)/n times the gradients.
WORKERS = 2

#: Of the small form; the default is five times as much, and would leave no message to overlap.
MESSAGE_BYTES = 100_000


PROFILES = fixed_profiles(2, 4, launches=3)


SMALL = SmallForm(
    workloads=tuple(
        emulated(s.model, divisor=DIVISOR, batch=BATCH, step_s=BATCH / s.images_per_sec)
        for s in SPEEDS
    ),
    workers=(WORKERS,),
    hosts=WORKERS,
    settings=StrategySettings(group_bytes=MESSAGE_BYTES, cut_bytes=MESSAGE_BYTES),
)


def _points(scope: Scope) -> Iterator[Experiment]:
    for workload in scope.workloads:
        point = scope.reduced(workload, scope.scale.workers[-1])
        if scope.brief and point.network is not None and point.network.is_unlimited:
            yield from _on_links(scope, point)
        else:
            yield from _as_it_is(scope, workload)


def _on_links(scope: Scope, point: Experiment) -> Iterator[Experiment]:
    """The point on links of every rate that it does not keep busy for too long."""
    assert point.network is not None
    gradients = sum(v.num_bytes for v in scope.describe(point.workload) if v.trainable)
    for rate in LINKS:
        bits_per_s = rate / DIVISOR
        if nominal_network_s(point, gradients, bits_per_s) <= MOST_TRANSFER_S:
            yield replace(point, network=replace(point.network, bits_per_s=bits_per_s))


def _as_it_is(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    """On the devices and links that there are."""
    for own in in_precisions(scope, workload):
        yield from scope.bases(own)
        yield scope.reduced(own, scope.scale.workers[-1])


STUDY = Study(
    about=__doc__,
    points=_points,
    profiles=PROFILES,
    has_brief=True,
    workloads=WORKLOADS,
    small=SMALL,
)
