"""A sweep of short runs in a process of its own, to be killed by tests.

`python -m tests.real.tiny_sweep RESULTS`
"""

from __future__ import annotations

import sys

from experiments import __main__ as command_line
from experiments.studies.scope import Scope
from experiments.studies.study import Study
from experiments.sweep.sweep import Profile
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import Single, SynchronousServers
from ps_allreduce.point.workload import Workload

TINY = Profile(
    name="quick",
    measurement=Measurement(warmup=FixedWarmup(least_steps=2, least_s=0.3), measured_steps=10),
    repetitions=2,
    deadline_s=60.0,
)


def tiny(scope: Scope) -> tuple[Experiment, ...]:
    """Three short points."""
    workload = Workload()
    return (
        scope.point(workload, Single, 1),
        scope.reduced(workload, 2),
        scope.served(workload, SynchronousServers, 2, 2, Policy.GREEDY),
    )


if __name__ == "__main__":
    study = Study(about="Three short points.", points=tiny, profiles={"quick": TINY})
    command_line.add_study("compare", study)
    words = ["compare", "--results", sys.argv[1], "--allow-login-node"]
    sys.exit(command_line.main(words))
