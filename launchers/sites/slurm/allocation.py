"""What Slurm gave the job that this process is part of, and whether the job has it alone.  Pure.

Decides which jobs can be used: plain ones, and heterogeneous ones of two components, whose second
one holds the hosts that are named for servers; from inside them and once.  Decides how the answers
of several versions of Slurm about its nodes are read; who asks Slurm is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from launchers.sites.slurm.hostlist import parse_hostlist, parse_tasks_per_node
from ps_allreduce.errors import UserError

_UNTOUCHED = "suite directly in the job, with Slurm's variables untouched."


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A part of a job with hosts of its own.

    Attributes:
        job_id: Slurm counts every component as a job.
        cores: CPUs of every host, in Slurm's order and as Slurm counts them.
        het_group: its number in a heterogeneous job; None in a plain one.
    """

    job_id: str
    cores: Mapping[str, int]
    het_group: int | None = None


def read_allocation(environment: Mapping[str, str]) -> tuple[Component, ...]:
    """The components of this process's job: one, or one of workers and one of servers.

    Raises:
        UserError: there is no job, or it is of a kind that cannot be used.
    """
    job_id = environment.get("SLURM_JOB_ID", "")
    if not job_id:
        raise UserError(
            "no Slurm job is active here (SLURM_JOB_ID is not set); run this in salloc or sbatch."
        )
    _refuse(environment, job_id)
    size = int(environment.get("SLURM_HET_SIZE", "1"))
    if size == 1:
        return (Component(job_id=job_id, cores=_cores(environment, job_id, "")),)
    components = tuple(_component(environment, job_id, group) for group in range(size))
    hosts = [host for component in components for host in component.cores]
    if len(set(hosts)) < len(hosts):
        raise UserError(f"job {job_id}: a host is in both components; ask for whole nodes.")
    return components


def _component(environment: Mapping[str, str], job_id: str, group: int) -> Component:
    suffix = f"_HET_GROUP_{group}"
    return Component(
        job_id=environment.get(f"SLURM_JOB_ID{suffix}", job_id),
        cores=_cores(environment, job_id, suffix),
        het_group=group,
    )


def _cores(environment: Mapping[str, str], job_id: str, suffix: str) -> dict[str, int]:
    nodes_name, cpus_name = f"SLURM_JOB_NODELIST{suffix}", f"SLURM_JOB_CPUS_PER_NODE{suffix}"
    try:
        nodes, cpus = environment[nodes_name], environment[cpus_name]
    except KeyError as missing:
        raise UserError(
            f"job {job_id}: {missing.args[0]} is not set, so its hosts are unknown; start the "
            + _UNTOUCHED
        ) from None
    hosts, counts = parse_hostlist(nodes), parse_tasks_per_node(cpus)
    if len(set(hosts)) < len(hosts) or min(counts, default=0) < 1:
        raise UserError(
            f"job {job_id}: {nodes_name} ({nodes!r:.200}) or {cpus_name} "
            f"({cpus!r:.200}) has no host, a host twice or one without CPUs; start the {_UNTOUCHED}"
        )
    if len(hosts) != len(counts):
        raise UserError(
            f"job {job_id}: {nodes_name} names {len(hosts)} hosts and "
            f"{cpus_name} {len(counts)}; start the suite in a job of its own, not "
            "inside a part of another one."
        )
    return dict(zip(hosts, counts, strict=True))


def _refuse(environment: Mapping[str, str], job_id: str) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_HET_SIZE", "SLURM_STEP_NUM_TASKS"):
        if re.fullmatch("[0-9]{1,18}", environment.get(name, "1")) is None:
            raise UserError(
                f"{name} is {environment[name]!r:.80}, which is no number; start the {_UNTOUCHED}"
            )
    if "SLURM_ARRAY_JOB_ID" in environment:
        raise UserError(
            f"job {job_id} is a task of an array, and every task would make the same runs; submit "
            "without --array: one job makes all runs of a sweep."
        )
    if not 1 <= int(environment.get("SLURM_HET_SIZE", "1")) <= 2:
        raise UserError(
            f"job {job_id} has {environment['SLURM_HET_SIZE']} components; use a plain job, or one "
            "of two components: hosts of workers, then hosts of servers."
        )
    if int(environment.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        raise UserError(
            "srun has started this suite more than once; start it without srun, it makes steps of "
            "its own."
        )


def owns_nodes(
    job: Mapping[str, str], granted: Mapping[str, int], whole: Mapping[str, int]
) -> bool:
    """No other job can be on the nodes; a job of which Slurm tells nothing is taken to have them.

    Slurm says so where `--exclusive` or the partition gives whole nodes away: `OverSubscribe=NO`,
    and since 26.05 `Exclusive=NODE`, where `OverSubscribe=NO` says only that no CPU is shared.
    Where nothing was asked for (older: `OK`) the job has its nodes if it has all their CPUs, as it
    always does with select/linear.

    Args:
        job: the fields of `scontrol show job`.
        granted: the job's CPUs on every host.
        whole: all CPUs of a host that jobs can get, as far as they are known.

    Source: `get_job_share_value` and `get_job_exclusive_display_value` of Slurm's
    slurm_protocol_defs.c and job_mgr.c, 21.08 to 26.05.
    """
    has_all = all(whole.get(host) == count for host, count in granted.items())
    shared = job.get("OverSubscribe", "NO")
    if "Exclusive" in job:
        return job["Exclusive"] in ("NODE", "TOPO") or (shared == "NO" and has_all)
    return shared in ("NO", "TOPO") or (shared == "OK" and has_all)
