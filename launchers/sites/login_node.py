"""Is this a cluster's login node, where training is not welcome?"""

from __future__ import annotations

from collections.abc import Mapping

from launchers.processes import run_quietly
from ps_allreduce.errors import UserError

#: Variables that a Slurm job sets; with one of them this is a compute node.
JOB_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOBID")

PING_TIMEOUT_S = 5.0


def is_login_node(environment: Mapping[str, str]) -> bool:
    """A Slurm controller answers and no job is active here."""
    if any(environment.get(name) for name in JOB_VARIABLES):
        return False
    answer = run_quietly(["scontrol", "ping"], PING_TIMEOUT_S)
    return answer is not None and answer.status == 0 and " is UP" in answer.out


def refuse_login_node(environment: Mapping[str, str]) -> None:
    """See that training is welcome here.

    Raises:
        UserError: this looks like a login node.
    """
    if is_login_node(environment):
        raise UserError(
            "a Slurm controller answers and no job is active: this looks like a login node, where "
            "training is not welcome. Use LAUNCHER=slurm, run the same command inside salloc or "
            "sbatch, or overrule with --allow-login-node."
        )
