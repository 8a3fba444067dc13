"""One and eight workers per host: the study of Amazon's p2 instances, which aggregate on the host.

Original: Bugliarello, "Distributed TensorFlow: A performance evaluation", CSCS 2017.  TensorFlow
1.1, InceptionV3, batch 64, K80; p2.xlarge has one GPU, p2.8xlarge has eight and ten times the link.
Workers of a p2.8xlarge add their gradients up before one of them sends the sum.

Axes: workers from 1 to all hosts; workers per host (--workers-per-host 1,8); round robin and
partitioned placement.

Method: synchronous servers, one on every host; workers that share a host send one mean gradient.
10 steps of warm-up and 100 measured ones, 5 launches; bases are a single worker and workers that do
not communicate.  The original searched for the best number of servers: it had one on every host
nearly everywhere.  Every --input is measured: --input synthetic --input FOLDER tells what real
images cost, which in the original was constant with eight workers per host.

The profile quick is a small form for one machine: up to 8 emulated hosts, real communication, an
emulated accelerator, all variables of InceptionV3 32 times smaller, links of one rate for both
kinds of hosts, round robin only (docs/studies/p2.md).  2 steps of warm-up and 6 measured ones, 3
launches; the base is a single worker.  Real images are read by one worker and by eight on one host.

Cost: in the profile quick 24 launches, about 9 minutes on two cores.

It should show that eight workers behind one link keep the efficiency that eight hosts lose, because
they send eight times less.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from experiments.studies.literature.piz_daint import PROFILES, SMALL, WORKLOAD
from experiments.studies.scope import Scope
from experiments.studies.study import Study
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import InputFiles, RecordFiles
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import SynchronousServers
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import Workload

PLACEMENTS = (Policy.ROUND_ROBIN, Policy.PARTITIONED)

#: With eight workers per host a job of 16 has two hosts; with one, 16 do not fit on 8 hosts.
SMALL_FORM = replace(SMALL, workers=(1, 4, 8, 16), workers_per_host=(1, 8))

#: Workers of a host whose reading is measured in the small form.
FULL_HOST = 8

#: Of hosts that have several workers.
TOGETHER = StrategySettings(host_aggregation=True)


def _points(scope: Scope) -> Iterator[Experiment]:
    for workload in scope.workloads:
        numbers = _measured(scope, workload)
        if numbers:
            yield from scope.bases(workload)
        yield from _served(scope, workload, [number for number in numbers if number > 1])


def _measured(scope: Scope, workload: Workload) -> Sequence[int]:
    """All numbers of workers; of the small form those that fill hosts, and with real images one."""
    per_host = 1 if scope.spread is None else scope.spread.workers_per_host
    most = per_host * SMALL_FORM.hosts
    filling = [n for n in scope.scale.workers if n == 1 or per_host <= n <= most]
    if not scope.brief:
        return scope.scale.workers
    if not isinstance(workload.data, InputFiles):
        return filling
    reads = per_host == FULL_HOST and isinstance(workload.data, RecordFiles)
    return (1, FULL_HOST) if reads else ()


def _served(scope: Scope, workload: Workload, several: Sequence[int]) -> Iterator[Experiment]:
    policies = PLACEMENTS[:1] if scope.brief else PLACEMENTS
    per_host = 1 if scope.spread is None else scope.spread.workers_per_host
    for workers, policy in itertools.product(several, policies):
        num_ps = scope.settings.num_ps or -(-workers // per_host)
        if num_ps > 1 or policy is policies[0]:  # on one server every placement is the same
            settings = scope.of_servers(workload, num_ps, policy).changed_by(TOGETHER)
            yield scope.point(workload, SynchronousServers, workers, settings)


STUDY = Study(
    about=__doc__,
    points=_points,
    profiles=PROFILES,
    has_brief=True,
    workloads=(WORKLOAD,),
    small=SMALL_FORM,
)
