"""Is this a cluster's login node, where training is not welcome?"""

from __future__ import annotations

from collections.abc import Mapping

from launchers.processes import run_quietly

#: Variables that a Slurm job sets; with one of them this is a compute node.
JOB_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOBID")

PING_TIMEOUT_S = 5.0


def is_login_node(environment: Mapping[str, str]) -> bool:
    """A Slurm controller answers and no job is active here."""
    if any(environment.get(name) for name in JOB_VARIABLES):
        return False
    answer = run_quietly(["scontrol", "ping"], PING_TIMEOUT_S)
    return answer is not None and answer[0] == 0 and " is UP" in answer[1]
