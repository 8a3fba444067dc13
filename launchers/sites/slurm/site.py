"""The hosts of the Slurm job that this process is part of.

Decides which jobs can be used: plain ones, from inside them and once.  On nodes that the job has
for itself, the fork servers of one step with all that the job has serve every run, and tasks are
pinned.  On shared nodes a run gets a step of its own with no more than it needs, and what is asked
of the hosts between runs shares one.
"""

from __future__ import annotations

import os
import re
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Self

from launchers.fork_servers.host_servers import HostServers
from launchers.settings import LauncherSettings
from launchers.site import Advice, Site, SiteKind
from launchers.sites.slurm.batch_script import exclude_text
from launchers.sites.slurm.hostlist import parse_hostlist, parse_tasks_per_node
from launchers.sites.slurm.ownership import owns_nodes
from launchers.sites.slurm.slurm_scheduler import (
    SlurmScheduler,
    explain_job,
    node_cpus,
    show_job,
    sick_nodes,
    with_advice,
)
from launchers.sites.slurm.step import NodeCopy
from launchers.sites.slurm.step_servers import KeptServers, ServerSteps
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment

_UNTOUCHED = "suite directly in the job, with Slurm's variables untouched."


def read_allocation(environment: Mapping[str, str]) -> tuple[str, dict[str, int]]:
    """The job that these variables describe: its number, and the CPUs that it has on each host.

    Hosts come in Slurm's order, and CPUs are counted as Slurm does.

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
            + _UNTOUCHED
        ) from None
    hosts, counts = parse_hostlist(nodes), parse_tasks_per_node(cpus)
    if len(set(hosts)) < len(hosts) or min(counts, default=0) < 1:
        raise UserError(
            f"job {job_id}: SLURM_JOB_NODELIST ({nodes!r:.200}) or SLURM_JOB_CPUS_PER_NODE "
            f"({cpus!r:.200}) has no host, a host twice or one without CPUs; start the {_UNTOUCHED}"
        )
    if len(hosts) != len(counts):
        raise UserError(
            f"job {job_id}: SLURM_JOB_NODELIST names {len(hosts)} hosts and "
            f"SLURM_JOB_CPUS_PER_NODE {len(counts)}; start the suite in a job of its own, not "
            "inside a part of another one."
        )
    return job_id, dict(zip(hosts, counts, strict=True))


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
    if int(environment.get("SLURM_HET_SIZE", "1")) > 1:
        raise UserError(
            f"job {job_id} is heterogeneous; use a plain job, in which all hosts are alike."
        )
    if int(environment.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        raise UserError(
            "srun has started this suite more than once; start it without srun, it makes steps of "
            "its own."
        )


class SlurmSite(Site):
    """A job's hosts, in Slurm's order."""

    advice = Advice(
        alike="ask for hosts that are alike (--constraint=NAME, or --sbatch=--exclude=HOST)",
        memory="end what else runs there, ask Slurm for more (--mem), or use fewer tasks per host",
        gpus="look at nvidia-smi there, and at what Slurm granted (--gres)",
        own_disk="/tmp, /scratch/local, $SLURM_TMPDIR",
    )

    job_id: str

    def __init__(self, settings: LauncherSettings) -> None:
        self.job_id, self._num_cores = read_allocation(os.environ)
        self.hosts = tuple(self._num_cores)
        self._settings = settings
        self._copied: NodeCopy | None = None
        self._owns_nodes = False
        self._steps = ServerSteps(settings.container)
        self._kept = KeptServers(self._steps)

    def __enter__(self) -> Self:
        job, whole = show_job(self.job_id), node_cpus(self.hosts)
        self._owns_nodes = owns_nodes(job, self._num_cores, whole)
        if not self._owns_nodes and not self._settings.shared_nodes:
            raise UserError(
                f"job {self.job_id} does not have its nodes for itself: others would "
                "disturb the measurement, and TensorFlow's servers obey whoever reaches them. Ask "
                "for --exclusive, or accept it with --shared-nodes."
            )
        if self._settings.copy_environment:
            self._copied = NodeCopy(self.hosts, Path(sysconfig.get_path("purelib")))
            self._copied.spread()
            self._steps.import_from(self._copied.folder)
        return self

    def __exit__(self, *_: object) -> None:
        """A run ends its own step; one that is kept, and a copy of packages, ends here."""
        self._kept.close()
        if self._copied is not None:
            self._copied.remove()

    def cores(self) -> Mapping[str, Sequence[int]]:
        """As many as the job was granted; which ones, the step tells."""
        return {host: range(count) for host, count in self._num_cores.items()}

    @contextmanager
    def servers(
        self, cores: Mapping[str, int], experiment: Experiment | None
    ) -> Iterator[HostServers]:
        """Fork servers in a step that is kept, or on shared nodes in one that the run has alone."""
        if self._owns_nodes or experiment is None:
            yield self._kept.ready({host: self._num_cores[host] for host in cores})
            return
        self._kept.close()
        with self._steps.open(cores) as clients:
            yield HostServers(clients)

    def time_left_s(self) -> float | None:
        """Until the job's limit."""
        end = show_job(self.job_id).get("EndTime", "")
        with suppress(ValueError):
            return datetime.fromisoformat(end).timestamp() - time.time()
        return None

    def is_over(self) -> bool:
        """The job runs no more; a command of `salloc` is not told so by any signal."""
        job = show_job(self.job_id)
        return bool(job) and job.get("JobState") != "RUNNING"

    def post_mortem(self) -> str:
        """What Slurm says about the job and its nodes."""
        reasons = [with_advice(explain_job(self.job_id)), sick_nodes(self.hosts)]
        if not any(reasons) and self.is_over():
            return f"job {self.job_id} was ended"
        return "; ".join(filter(None, reasons))

    def avoid(self, hosts: Sequence[str]) -> str:
        """Options for the next job."""
        return exclude_text(hosts)


SLURM = SiteKind(
    name="slurm",
    make=SlurmSite,
    understands=frozenset(
        {
            *("hosts", "partition", "account", "time_limit", "constraint", "gpus_per_node"),
            *("sbatch", "setup", "container", "shared_nodes", "copy_environment"),
        }
    ),
    scheduler=SlurmScheduler(),
)
