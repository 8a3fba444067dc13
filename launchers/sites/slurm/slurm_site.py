"""The hosts of the Slurm job that this process is part of.

Which jobs can be used is decided in `allocation`.  Decides that on nodes that the job has for
itself, the fork servers of one step with all that the job has serve every run, and tasks are
pinned.  On shared nodes a run gets a step of its own with no more than it needs, and what is asked
of the hosts between runs shares one.
"""

from __future__ import annotations

import os
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
from launchers.sites.slurm import slurm_scheduler
from launchers.sites.slurm.allocation import owns_nodes, read_allocation
from launchers.sites.slurm.batch_script import exclude_text
from launchers.sites.slurm.slurm_scheduler import (
    explain,
    node_cpus,
    show_job,
    sick_nodes,
    with_advice,
)
from launchers.sites.slurm.step_servers import KeptServers, NodeCopy, ServerSteps
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment


class SlurmSite(Site):
    """A job's hosts, in Slurm's order; those of the second component are named for servers."""

    advice = Advice(
        alike="ask for hosts that are alike (--constraint=NAME, or --sbatch=--exclude=HOST)",
        memory="end what else runs there, ask Slurm for more (--mem), or use fewer tasks per host",
        gpus="look at nvidia-smi there, and at what Slurm granted (--gres)",
        own_disk="/tmp, /scratch/local, $SLURM_TMPDIR",
    )

    job_id: str

    def __init__(self, settings: LauncherSettings) -> None:
        self._components = read_allocation(os.environ)
        self.job_id = self._components[0].job_id
        self._num_cores = {h: n for each in self._components for h, n in each.cores.items()}
        self.hosts = tuple(self._num_cores)
        self.num_ps_hosts = sum(len(each.cores) for each in self._components[1:])
        self._settings = settings
        self._copied: NodeCopy | None = None
        self._owns_nodes = False
        self._steps = ServerSteps(settings.container, self._components)
        self._kept = KeptServers(self._steps)

    def __enter__(self) -> Self:
        whole = node_cpus(self.hosts)
        self._owns_nodes = all(
            owns_nodes(show_job(each.job_id), each.cores, whole) for each in self._components
        )
        if not self._owns_nodes and not self._settings.shared_nodes:
            raise UserError(
                f"job {self.job_id} does not have its nodes for itself: others would "
                "disturb the measurement, and TensorFlow's servers obey whoever reaches them. Ask "
                "for --exclusive, or accept it with --shared-nodes."
            )
        if self._settings.copy_environment:
            if self.num_ps_hosts:
                raise UserError(
                    "--copy-environment copies to the nodes of a plain job only: leave it out, or "
                    "name no hosts for servers."
                )
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
        reasons = [with_advice(explain(self.job_id)), sick_nodes(self.hosts)]
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
            *("hosts", "ps_hosts", "partition", "account", "time_limit", "constraint"),
            *("gpus_per_node", "sbatch", "ps_sbatch", "setup", "container", "shared_nodes"),
            "copy_environment",
        }
    ),
    scheduler=slurm_scheduler,
)
