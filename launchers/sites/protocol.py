"""What a launcher needs of the place where its hosts are: the small protocol of the siblings.

A site knows its hosts and gets fork servers onto them: on this machine, in network namespaces, by
`srun`, by `ssh`.  Everything else about a run is the same everywhere (`hosts_launcher`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self

from launchers.fork_servers.host_servers import HostServers
from ps_allreduce.point.experiment import Experiment


class Site(Protocol):
    """Hosts, and the way onto them.  Used as a context: nothing it started outlives it."""

    @property
    def hosts(self) -> Sequence[str]:
        """Names, in the order in which they are used."""

    @property
    def one_machine(self) -> bool:
        """The hosts share the cores of this machine."""

    @property
    def job_id(self) -> str | None:
        """Of the scheduler's job; None without one."""

    def __enter__(self) -> Self:
        """Get ready."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End everything that was started."""

    def check(self, experiment: Experiment) -> None:
        """Refuse what this site cannot run, beyond what any host can tell.

        Raises:
            UserError: with the reason and what to do.
        """

    def cores(self) -> Mapping[str, Sequence[int]]:
        """The cores of every host, as far as they are known without asking it."""

    def servers(
        self, cores: Mapping[str, int], experiment: Experiment | None
    ) -> AbstractContextManager[HostServers]:
        """Fork servers that are ready, for one run or job.

        Args:
            cores: the hosts, in their order, and how many cores of each will be used.
            experiment: what they are for, None for a job that is no run.

        Raises:
            LaunchError: one does not come up.
        """

    def preset_address(self, host: str) -> str | None:
        """The address of a host's tasks where none is asked for; None: look at its interfaces."""

    @property
    def shares_files(self) -> bool:
        """All hosts see the same files, so that input is prepared once."""

    def time_left_s(self) -> float | None:
        """How long runs may still be made; None without a limit."""

    def is_over(self) -> bool:
        """The scheduler has ended the job, so that no further run can be made in it."""

    def post_mortem(self) -> str:
        """What the scheduler says about the end of its job; empty if nothing."""
