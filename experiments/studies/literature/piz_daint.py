"""InceptionV3 on up to 128 hosts: the study of Piz Daint, whose efficiency fell beyond 64 hosts.

Original: Bugliarello, "Distributed TensorFlow: A performance evaluation", CSCS 2017.  TensorFlow
1.1, batch 64, hosts with one P100 each, servers beside workers, synthetic and real images.

Axes: workers from 1 to all hosts; numbers of servers from 1 to the number of workers; placements.
Round robin and greedy are those of the original.  Partitioned, which cuts large variables, is what
the original did not have.

Method: for every number of workers a search launches the numbers of servers with every placement,
once each.  The best number of servers of each placement is then measured on launches of its own.
10 steps of warm-up and 100 measured ones, 5 launches; the original says no more about its search.
Up to 8 servers all numbers are tried, then numbers that grow by half, and those next to the number
of workers.  Bases are a single worker and workers that do not communicate.  With several --input
the search has the first, and all are measured: real images then stand beside synthetic ones.

The profile quick is a small form for one machine: 1 to 8 emulated hosts, real communication, an
emulated accelerator, all variables of InceptionV3 32 times smaller.  The hottest server of 8
workers sends for as large a share of the time of computation as that of the original's 128
(docs/studies/piz-daint.md).
It searches nothing: there are as many servers as workers, as nearly in the original (116 for 128).
2 steps of warm-up and 6 measured ones, 3 launches; the base is a single worker.  Real images are
read by one worker, and by 4 with partitioned variables.

Cost: in the profile quick 24 launches, 10 to 15 minutes on two cores.

It should show that the hottest server's load makes a knee, and that partitioned variables remove
it.  The knee is less deep than the original's: here values come back while gradients still go out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from experiments.data_sets.sample_images import SampleImages
from experiments.studies.scope import Scope
from experiments.studies.study import Search, SmallForm, Study, fixed_profiles
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import RecordFiles
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.models.weights import ScaledModel
from ps_allreduce.point.placement import Policy, make_plan
from ps_allreduce.point.strategies import SynchronousServers
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import EmulatedCompute, Workload

#: Of InceptionV3's computation.  Not published for the original; that of the emulated accelerator.
FORWARD, BACKWARD = 0.35, 0.65

#: Of a frame of Ethernet, as links count them, what TCP carries with an MTU of 1500 bytes.
PAYLOAD = 1448 / 1514

#: Images per second of a single worker there.
ALONE = 138.23


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """A row of the original's table that was measured with greedy placement."""

    workers: int
    num_ps: int
    images_per_sec: float

    @property
    def efficiency(self) -> float:
        """On a single worker."""
        return self.images_per_sec / (self.workers * ALONE)

    @property
    def hot_bytes(self) -> int:
        """What the hottest server sends in a step, and gets."""
        whole = ScaledModel(base="InceptionV3", divisor=1)
        return hot_bytes(whole, Policy.GREEDY, self.workers, self.num_ps)


#: No server is hot: what is lost here is lost with every number of workers.
USUAL = PublishedRow(workers=8, num_ps=2, images_per_sec=1018.18)

#: One server is, for longer than a forward pass and shorter than a backward one.
HOT = PublishedRow(workers=64, num_ps=40, images_per_sec=7118.31)

#: What 8 workers are to load alike.
KNEE = PublishedRow(workers=128, num_ps=116, images_per_sec=9219.7)


def hot_bytes(model: ScaledModel, policy: Policy, workers: int, num_ps: int) -> int:
    """Bytes that the hottest server sends to the other hosts in a step, and gets from them.

    One worker shares its host, and so does not count.
    """
    return (workers - 1) * max(make_plan(policy, model.variables, num_ps).bytes_per_server())


def share_of(row: PublishedRow) -> float:
    """The share of the hottest server of a row, by its bytes.

    That is the time in which it sends its values to the other hosts once, over the computation of a
    step.  Nobody published what a host of Piz Daint sends through gRPC.  It follows from the row of
    64 workers, whose efficiency is lower than that of 8, where no server is hot.  The row of 128 is
    not used: what the share says of it is a prediction.

    How the original overlapped is read from its script (tf_cnn_benchmarks of 2017 in
    github.com/e-bug/distributed-tensorflow-benchmarks, variable_update=parameter_server): workers
    fetch values at the start of a step, send gradients as they come, and meet at a barrier before
    the next one.  So a step takes max(forward, share) + max(backward, share), in computations.
    """
    share_of_hot = USUAL.efficiency / HOT.efficiency - BACKWARD
    return share_of_hot * row.hot_bytes / HOT.hot_bytes


def links_for(num_bytes: int, seconds: float) -> float:
    """The rate of emulated links, in whole Mbit/s, on which bytes take so long; bits per second."""
    return float(round(8 * num_bytes / seconds / PAYLOAD, -6))


#: Those of the original, and what it did not have.
PLACEMENTS = (Policy.ROUND_ROBIN, Policy.GREEDY, Policy.PARTITIONED)

#: Of the small form.
FEW_PLACEMENTS = (Policy.ROUND_ROBIN, Policy.PARTITIONED)

#: Up to so many servers every number is tried.
EVERY_UP_TO = 8

#: Workers that read real images in the small form, besides a single one; and the images.
SMALL_READERS = 4
IMAGES = SampleImages(count=2000, pixels=64)

#: Workers of the small form where only the faster placement is measured.
FEW_WORKERS = 2

#: Larger numbers grow by this factor.
GROWTH = 1.5

#: Of the small form.  Every server gets several of them from each worker, so that values come back
#: while gradients go out; two cores could not handle 32 times smaller ones.
MESSAGE_BYTES = 60_000

#: What the original trained.
WORKLOAD = Workload(
    model=ImageModel(name="InceptionV3", image_size=299, num_classes=1000), batch_per_worker=64
)

#: Workers of the small form at most, on a host each, with a server each.
MOST = 8

COMPUTE_S = 1.0
SCALED = ScaledModel(base="InceptionV3", divisor=32)
LINKS = links_for(
    hot_bytes(SCALED, Policy.ROUND_ROBIN, MOST, MOST), seconds=share_of(KNEE) * COMPUTE_S
)

#: Derived in docs/studies/piz-daint.md.
SMALL = SmallForm(
    workloads=(
        Workload(
            model=SCALED,
            batch_per_worker=64,
            emulated=EmulatedCompute(
                forward_s=FORWARD * COMPUTE_S, backward_s=BACKWARD * COMPUTE_S
            ),
        ),
    ),
    workers=(1, 2, 4, MOST),
    hosts=MOST,
    bandwidth=LINKS,
    settings=StrategySettings(group_bytes=MESSAGE_BYTES, cut_bytes=MESSAGE_BYTES),
    samples=IMAGES,
)


PROFILES = fixed_profiles(2, 6, launches=3)


def _searched(scope: Scope) -> Iterator[Experiment]:
    for workload, workers in itertools.product(scope.workloads[:1], _several(scope)):
        for num_ps in _numbers_of_servers(workers):
            # On one server every placement is the same.
            for policy in PLACEMENTS if num_ps > 1 else PLACEMENTS[:1]:
                yield scope.served(workload, SynchronousServers, workers, num_ps, policy)


def _several(scope: Scope) -> list[int]:
    return [number for number in scope.scale.workers if number > 1]


def _numbers_of_servers(workers: int) -> list[int]:
    """From 1 to the number of workers."""
    numbers = {workers - 1, workers, *range(1, min(EVERY_UP_TO, workers) + 1)}
    number = float(EVERY_UP_TO)
    while (number := number * GROWTH) < workers:
        numbers.add(round(number))
    return sorted(numbers)


def _contests(point: Experiment) -> Iterator[tuple[int, Policy]]:
    """By workers and placement; a single server stands for all placements."""
    servers = point.strategy.servers
    if servers is not None:
        for policy in PLACEMENTS if servers.num_ps == 1 else (servers.placement,):
            yield point.num_workers, policy


def _points(scope: Scope) -> Iterator[Experiment]:
    for workload in scope.workloads:
        if scope.brief:
            yield from _small(scope, workload)
            continue
        yield from scope.bases(workload)
        for best in scope.tuned_of(scope.workloads[0]):
            yield replace(best, workload=workload)


def _small(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    """All placements with synthetic images, the best one with real ones."""
    if isinstance(workload.data, ImageFiles):
        return
    yield from scope.bases(workload)
    if isinstance(workload.data, RecordFiles):
        readers = SMALL_READERS
        yield scope.served(workload, SynchronousServers, readers, readers, Policy.PARTITIONED)
        return
    for workers, policy in itertools.product(_several(scope), FEW_PLACEMENTS):
        if workers > FEW_WORKERS or policy is Policy.PARTITIONED:
            yield scope.served(workload, SynchronousServers, workers, workers, policy)


STUDY = Study(
    about=__doc__,
    points=_points,
    profiles=PROFILES,
    has_brief=True,
    workloads=(WORKLOAD,),
    small=SMALL,
    search=Search(points=_searched, contests=_contests),
)
