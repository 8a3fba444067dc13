"""What Slurm's environment variables say about the job that this process is part of.  Pure.

Decides which jobs can be used: plain ones, from inside them and once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from launchers.sites.slurm.hostlist import parse_hostlist, parse_tasks_per_node
from ps_allreduce.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A job's hosts.

    Attributes:
        hosts: in Slurm's order.
        num_cores: CPUs, as Slurm counts them, that the job has on each host.
    """

    job_id: str
    hosts: tuple[str, ...]
    num_cores: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.hosts) != len(self.num_cores):
            raise UserError(
                f"job {self.job_id}: SLURM_JOB_NODELIST names {len(self.hosts)} hosts and "
                f"SLURM_JOB_CPUS_PER_NODE {len(self.num_cores)}; start the suite in a job of its "
                "own, not inside a part of another one."
            )


def read_allocation(environment: Mapping[str, str]) -> Allocation:
    """The job that these variables describe.

    Raises:
        UserError: there is none, or it is of a kind that cannot be used.
    """
    job_id = environment.get("SLURM_JOB_ID", "")
    if not job_id:
        raise UserError(
            "no Slurm job is active here (SLURM_JOB_ID is not set); run this in salloc or sbatch."
        )
    _refuse(environment, job_id)
    try:
        nodes = environment["SLURM_JOB_NODELIST"]
        cpus = environment["SLURM_JOB_CPUS_PER_NODE"]
    except KeyError as missing:
        raise UserError(
            f"job {job_id}: {missing.args[0]} is not set, so its hosts are unknown; start the "
            "suite directly in the job, with Slurm's variables untouched."
        ) from None
    return Allocation(
        job_id=job_id, hosts=parse_hostlist(nodes), num_cores=parse_tasks_per_node(cpus)
    )


def _refuse(environment: Mapping[str, str], job_id: str) -> None:
    if "SLURM_ARRAY_JOB_ID" in environment:
        raise UserError(
            f"job {job_id} is a task of an array, and every task would make the same runs; submit "
            "without --array: one job makes all runs of a sweep."
        )
    if int(environment.get("SLURM_HET_SIZE", "1")) > 1:
        raise UserError(
            f"job {job_id} is heterogeneous; use a plain job, in which all hosts are alike."
        )
    if int(environment.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        raise UserError(
            "srun has started this suite more than once; start it without srun, it makes steps of "
            "its own."
        )
