"""What a sweep, a plan and a login node need of a batch system; `sites` has one for each.

Decides what a job consists of.  How it is written down and handed over is the scheduler's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from launchers.settings import LauncherSettings
from ps_allreduce.errors import UserError, at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """What a job asks for and does.

    Attributes:
        num_hosts: without those named for servers.
        minutes: time limit.
        settings: what the user asks of the scheduler and its nodes.
        log: takes the output of the batch script.
        folder: working directory.
        after: a job that this one waits for, however that ends.
    """

    name: str
    num_hosts: int
    minutes: int
    settings: LauncherSettings
    log: Path
    folder: Path
    variables: Mapping[str, str]
    command: tuple[str, ...]
    after: str | None = None

    def __post_init__(self) -> None:
        at_least(1, hosts=self.num_hosts)
        asked = self.settings
        if asked.ps_hosts is not None:
            at_least(1, ps_hosts=asked.ps_hosts)
        elif asked.ps_sbatch:
            raise UserError("--ps-sbatch is about the hosts of --ps-hosts: state how many.")
        for line in (*self.values, *asked.sbatch, *asked.ps_sbatch, *asked.setup):
            if "\n" in line:
                raise UserError(f"a line break has no place in a job's options: {line!r}.")

    @property
    def values(self) -> list[str]:
        """What stands behind the options that the suite itself writes."""
        asked = self.settings
        stated = (asked.partition, asked.account, asked.constraint, asked.gpus_per_node, self.after)
        return [self.name, *(value for value in stated if value is not None)]

    @property
    def node_hours(self) -> float:
        """What the job costs if it uses its whole limit."""
        return (self.num_hosts + self.num_ps_hosts) * self.minutes / 60

    @property
    def num_ps_hosts(self) -> int:
        """Hosts that are named for servers."""
        return self.settings.ps_hosts or 0


class Scheduler(Protocol):
    """A batch system: a module, or an object.

    Whatever cannot be done, or makes no sense, is a `UserError` that says what to do.
    """

    def inside_job(self) -> bool:
        """This process runs inside a job."""

    def refuse_login_node(self) -> None:
        """Refuse to train where jobs are handed over, unless this process runs inside one."""

    def hosts_of(self, nodelist: str) -> tuple[str, ...]:
        """The hosts of a list as the scheduler writes it; of an empty one, those of this job."""

    def check_options(self, settings: LauncherSettings, *, jobs_by_size: bool) -> None:
        """Refuse what contradicts the jobs that the suite asks for."""

    def cores_per_node(self, settings: LauncherSettings) -> int:
        """Cores of the smallest node that may be granted."""

    def script(self, job: BatchJob) -> str:
        """The text of a job's batch script."""

    def submit(self, script: Path) -> str:
        """Hand a script over; return the job's identifier."""

    def cancel_command(self, job_ids: Sequence[str]) -> str:
        """What a user types to end jobs."""

    def is_over(self, job_id: str) -> bool:
        """The job has ended, or nobody knows it any more."""

    def explain(self, job_id: str) -> str:
        """Why a job ended, or is ending, badly; empty if it is not."""

    def state(self, job_id: str) -> str:
        """What a job is doing, in words: `job 12 pending (Resources)`."""
