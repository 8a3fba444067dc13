"""A sweep of short runs in a process of its own, to be killed by tests: `tiny_sweep.py RESULTS`."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments import __main__ as command_line
from experiments.studies import catalogue
from experiments.studies.request import Request
from experiments.sweep import profiles
from ps_allreduce.point.experiment import Experiment, Profile
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.point.workload import Workload

TINY = Profile(
    name="quick",
    warmup_steps=2,
    warmup_s=0.3,
    measured_steps=10,
    repetitions=2,
    deadline_s=60.0,
)


def tiny(request: Request) -> tuple[Experiment, ...]:
    """Three short points."""
    workload = Workload()
    return (
        request.point(workload, Strategy.SINGLE, 1),
        request.reduced(workload, 2),
        request.served(workload, Strategy.PS_SYNC, 2, 2, Policy.GREEDY),
    )


if __name__ == "__main__":
    profiles.PROFILES = {"quick": TINY}
    catalogue.STUDIES["compare"] = tiny
    words = ["compare", "--results", str(Path(sys.argv[1])), "--allow-login-node"]
    sys.exit(command_line.main(words))
