"""Processes and threads of a host, batches, then weak and strong scaling: the study of Ohio State.

Original: Chen, Liu, Isaacson, Xu, "CSE 5194.01 Lab 2: TF_Horovod", Ohio State University 2020:
ResNet50, InceptionV3 and VGG16 on IMDB-WIKI (faces, whose age is learned), Horovod over MVAPICH2 on
hosts of OSC Owens with 28 cores, and on hosts with one GPU each.

Axes: the model; processes x threads of a host, 1 x 28, 2 x 14 and 4 x 7 there and the same shares
of the cores here; the batch of a host; then 1, 2, 4 and 8 hosts with weak and with strong scaling;
Horovod where it is installed, the suite's all-reduce, synchronous servers.

Method: the base is one process of a host with all its cores.  A search launches every number of
processes with every batch on one host, once each; the original varied the batch only with its best
number of processes.  The best of each model is then measured with all strategies on more and more
hosts, on launches of their own. 10 steps of warm-up and 100 measured ones, 5 launches.  The
original says neither how many steps nor how many launches it made.  --input takes converted
IMDB-WIKI images (docs/data.md); without it images are made up.

The profile quick is a small form for one machine.  One emulated host really trains ResNet50 and
VGG16 with small images, by processes and for ResNet50 by batches; there is no search.  Then 4
emulated hosts with emulated accelerators, all equally many times as fast as the original's hosts,
and variables 128 times smaller (docs/studies/osu.md).  2 steps of warm-up and 4 measured ones, 3
launches.

Cost: in the profile quick 45 launches, about 6 minutes on two cores.

It should show that several processes use a host's cores better than one, that throughput stops
growing with the batch, and that weak scaling is nearly even where hosts compute for seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace

from experiments.studies.scope import Scope, Threads
from experiments.studies.study import Search, SmallForm, Study, emulated, fixed_profiles
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data_set import Target
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.optimizers import Momentum
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Device
from ps_allreduce.point.strategies import AllReduce, Horovod, Single, SynchronousServers
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import Scaling, Workload

#: Processes of a host; each has an equal share of its cores, and a thread for each of them.
PROCESSES = (1, 2, 4)

#: Batches of a host, of all its processes together.
BATCHES = (8, 32, 128, 512)

#: Images per second of a host with 4 processes and a batch of 128, weak scaling (published).
HOST_RATES: Mapping[str, float] = {"ResNet50": 22.84, "InceptionV3": 19.4, "VGG16": 8.82}

#: A host of the original had this batch.
HOST_BATCH = 128

#: Hosts of the small form compute so many times as fast as those of the original.
SPEED_UP = 16

#: Of variables in the small form.
DIVISOR = 128

#: Pixels that each model takes at least; the small form trains with them for real.  InceptionV3
#: takes 75, and its launches alone would take four minutes.
SMALL_SIZES: Mapping[str, int] = {"ResNet50": 32, "VGG16": 32}

#: Of a host in the small form, and those of the model whose batch varies.
SMALL_BATCH, SMALL_BATCHES, VARIED = 16, (4,), "ResNet50"

#: Hosts of the small form.
SMALL_HOSTS = (1, 4)

MESSAGE_BYTES = 50_000

#: Small, because ages of made-up images cannot be learned: with the default the loss of ResNet50
#: leaves all bounds within steps.
LEARNING_RATE = 1e-5

PROFILES = fixed_profiles(2, 4, launches=3)


def _faces(name: str, size: int, batch: int) -> Workload:
    """A model that learns the age of a face."""
    return Workload(
        model=ImageModel(name=name, image_size=size, num_classes=1, target=Target.VALUE),
        optimizer=Momentum(learning_rate=LEARNING_RATE),
        batch_per_worker=batch,
    )


def _emulated(name: str) -> Workload:
    step_s = HOST_BATCH / HOST_RATES[name] / SPEED_UP
    return emulated(name, divisor=DIVISOR, batch=HOST_BATCH, step_s=step_s)


def _searched(scope: Scope) -> Iterator[Experiment]:
    for workload, processes, batch in itertools.product(scope.workloads, PROCESSES, BATCHES):
        if _has_cores(scope, processes) and batch >= processes:
            yield _on_one_host(scope, workload, processes, batch)


def _contests(point: Experiment) -> Iterable[Hashable]:
    yield point.workload.model.name


def _has_cores(scope: Scope, processes: int) -> bool:
    """GPUs are one for each process, as the hosts have them."""
    if scope.device is Device.GPU:
        return processes == 1
    return scope.host_cores % processes == 0


def _on_one_host(scope: Scope, workload: Workload, processes: int, batch: int) -> Experiment:
    own = replace(workload, batch_per_worker=batch // processes)
    strategy = Single if processes == 1 else AllReduce
    return _divided(scope, processes, scope.host_cores).point(own, strategy, processes)


def _divided(scope: Scope, processes: int, host_cores: int) -> Scope:
    """The scope, with so many processes on a host."""
    cores = host_cores // processes
    threads = Threads(allreduce=cores, ps=cores)
    return replace(
        scope,
        spread=scope.spread and replace(scope.spread, workers_per_host=processes),
        scale=replace(scope.scale, cores_per_worker=cores, threads=threads),
    )


def _points(scope: Scope) -> Iterator[Experiment]:
    for workload in scope.workloads if not scope.brief else ():
        yield _on_one_host(scope, workload, 1, HOST_BATCH)
    for best in scope.tuned:
        yield from _on_hosts(scope, best)
    for workload in scope.workloads if scope.brief else ():
        yield from (_small_scaling if workload.emulated else _small_host)(scope, workload)


def _on_hosts(scope: Scope, best: Experiment) -> Iterator[Experiment]:
    """Weak and strong scaling of the best setting of a host."""
    processes, weak = best.num_workers, best.workload
    own = _divided(scope, processes, scope.host_cores)
    strong = replace(
        weak, batch_per_worker=processes * weak.batch_per_worker, scaling=Scaling.STRONG
    )
    for workload, hosts in itertools.product((weak, strong), scope.scale.workers):
        workers = processes * hosts
        if workers == 1:
            yield own.point(workload, Single, 1)
        elif workload is weak or strong.batch_per_worker % workers == 0:
            yield from _compared(own, workload, workers, hosts)


def _compared(scope: Scope, workload: Workload, workers: int, hosts: int) -> Iterator[Experiment]:
    yield scope.reduced(workload, workers)
    yield scope.point(workload, Horovod, workers)
    settings = scope.of_servers(workload, scope.settings.num_ps or hosts, Policy.PARTITIONED)
    yield scope.point(workload, SynchronousServers, workers, settings)


def _small_host(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    """Real training on one host: by processes, and of one model by batches."""
    for processes in PROCESSES:
        if _has_cores(scope, processes):
            yield _on_one_host(scope, workload, processes, SMALL_BATCH)
    for batch in SMALL_BATCHES if workload.model.name == VARIED else ():
        yield _on_one_host(scope, workload, 1, batch)


def _small_scaling(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    """All-reduce on more hosts; of one model all strategies, and strongly."""
    several = [hosts for hosts in scope.scale.workers if hosts > 1]
    yield scope.point(workload, Single, 1)
    if workload.model.name != f"{VARIED}/{DIVISOR}":
        yield from (scope.reduced(workload, hosts) for hosts in several)
        return
    strong = replace(workload, scaling=Scaling.STRONG)
    yield scope.point(strong, Single, 1)
    for hosts in several:
        yield from _compared(scope, workload, hosts, hosts)
        yield scope.reduced(strong, hosts)


STUDY = Study(
    about=__doc__,
    points=_points,
    profiles=PROFILES,
    has_brief=True,
    optional=(Horovod,),
    workloads=tuple(_faces(name, 224, HOST_BATCH) for name in HOST_RATES),
    small=SmallForm(
        workloads=(
            *(_faces(name, size, SMALL_BATCH) for name, size in SMALL_SIZES.items()),
            *map(_emulated, HOST_RATES),
        ),
        workers=SMALL_HOSTS,
        hosts=SMALL_HOSTS[-1],
        bandwidth=1e9,
        settings=StrategySettings(group_bytes=MESSAGE_BYTES, cut_bytes=MESSAGE_BYTES),
    ),
    search=Search(points=_searched, contests=_contests),
)
