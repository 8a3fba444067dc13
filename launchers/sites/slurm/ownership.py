"""Whether a job has its nodes for itself.  Pure.

Decides how the answers of several versions of Slurm are read; who asks Slurm is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping


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
