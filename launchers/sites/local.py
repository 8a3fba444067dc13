"""All tasks on this machine, over loopback: a site of one host.

Decides that one fork server serves every run.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from launchers.fork_servers.bring_up import StartedForkServer
from launchers.fork_servers.host_servers import HostServers
from launchers.processes import (
    FORK_SERVER,
    ChildProcess,
    fork_server_environment,
    start_with_socket,
)
from launchers.site import Site, SiteKind
from ps_allreduce.errors import UserError
from ps_allreduce.kernel_files import usable_cores
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.provenance import default_congestion

LOOPBACK = "127.0.0.1"


class LocalForkServer(StartedForkServer):
    """A fork server on this machine.

    Args:
        words: the command, without the option that names its socket.
    """

    def __init__(self, words: Sequence[str], host: str) -> None:
        super().__init__(host)
        self._words = words

    def _start_program(self, log: Path) -> ChildProcess:
        return start_with_socket(self._words, log, fork_server_environment(os.environ))


class LocalSite(Site):
    """This machine as the only host."""

    one_machine = True

    def __init__(self, fork_server: Sequence[str] = FORK_SERVER) -> None:
        self.hosts = (socket.gethostname(),)
        self.congestion = default_congestion()
        self._server = LocalForkServer(fork_server, self.hosts[0])

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def check(self, experiment: Experiment) -> None:
        """There is one host: tasks cannot be spread over several."""
        if experiment.spread is not None:
            raise UserError("the launcher local has one host; to spread tasks, use another one.")

    def cores(self) -> Mapping[str, Sequence[int]]:
        """Those that this process may use."""
        return {self.hosts[0]: usable_cores()}

    @contextmanager
    def servers(
        self, cores: Mapping[str, int], experiment: Experiment | None
    ) -> Iterator[HostServers]:
        """The one fork server, the same for all runs."""
        yield HostServers({self.hosts[0]: self._server.client()})

    def preset_address(self, host: str) -> str:
        """Tasks on one host meet over loopback."""
        return LOOPBACK


LOCAL = SiteKind(name="local", make=lambda _: LocalSite(), several_hosts=False)
