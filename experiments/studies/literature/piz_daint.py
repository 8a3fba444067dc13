"""InceptionV3 on up to 128 hosts: the study of Piz Daint, whose efficiency fell behind 64 of them.

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
emulated accelerator, all variables of InceptionV3 32 times smaller.  With 8 workers the hottest
server sends for as large a part of a computation as with 128 there (docs/studies/piz-daint.md).
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
from dataclasses import replace

from experiments.data_sets.sample_images import SampleImages
from experiments.studies.literature.hottest_server import (
    BACKWARD,
    FORWARD,
    KNEE,
    hot_bytes,
    links_for,
    share_of,
)
from experiments.studies.literature.method import fixed_profiles
from experiments.studies.scope import Scope
from experiments.studies.study import Search, SmallForm, Study
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import RecordFiles
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.models.weights import ScaledModel
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import SynchronousServers
from ps_allreduce.point.strategies.base import StrategySettings
from ps_allreduce.point.workload import EmulatedCompute, Workload

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
    looks_first=False,
    has_brief=True,
    workloads=(WORKLOAD,),
    small=SMALL,
    search=Search(points=_searched, contests=_contests),
)
