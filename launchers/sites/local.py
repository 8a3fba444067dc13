"""All tasks on this machine, over loopback: a site of one host.

Decides that one fork server serves every run until it dies, and that login nodes are left alone.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from launchers.fork_servers.client import ForkServerClient, fork_server_environment
from launchers.fork_servers.host_servers import HostServers
from launchers.processes import FORK_SERVER, Program, start_with_socket
from launchers.run.launcher import HostsLauncher
from launchers.sites.login_node import refuse_login_node
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.scratch import scratch_prefix

LOOPBACK = "127.0.0.1"


class OwnServer:
    """A fork server on this machine that is started when it is needed and lives until it dies.

    Args:
        words: the command, without the option that names its socket.
        host: the host name that the launcher knows it by.
    """

    def __init__(self, words: Sequence[str], host: str) -> None:
        self._words = words
        self._host = host
        self._folder: TemporaryDirectory[str] | None = None
        self._program: Program | None = None
        self._client: ForkServerClient | None = None

    def start(self) -> None:
        """Start it unless it runs; it may not be ready yet."""
        if self._client is None or self._client.lost:
            self.close_program()
            log = self._log_folder() / "fork_server.log"
            environment = fork_server_environment(os.environ)
            self._program = start_with_socket(self._words, log, environment)
            self._client = ForkServerClient(self._program.connection, log, self._host)

    def _log_folder(self) -> Path:
        """Made when it is needed: a site that refuses its work has none to remove."""
        if self._folder is None:
            prefix = scratch_prefix()
            self._folder = TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
        return Path(self._folder.name)

    def client(self) -> ForkServerClient:
        """The line to it, once it is ready.

        Raises:
            LaunchError: it does not come up.
        """
        self.start()
        assert self._client is not None
        if not self._client.is_ready:
            try:
                self._client.wait_ready()
            except BaseException:
                # Still importing, it would not notice for seconds that nobody listens any more.
                self._client.lost = True
                if self._program is not None:
                    self._program.kill()
                raise
        return self._client

    def close_program(self) -> None:
        """End the server and everything it forked."""
        if self._program is not None:
            self._program.end()
        self._program = self._client = None

    def close(self) -> None:
        """End the server; remove its log."""
        self.close_program()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


class LocalSite:
    """This machine as the only host."""

    one_machine = True
    shares_files = True
    job_id = None

    def __init__(
        self, *, allow_login_node: bool = False, fork_server: Sequence[str] = FORK_SERVER
    ) -> None:
        self._allow_login_node = allow_login_node
        self.hosts = (socket.gethostname(),)
        self._server = OwnServer(fork_server, self.hosts[0])

    def __enter__(self) -> Self:
        if not self._allow_login_node:
            refuse_login_node(os.environ)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()

    def check(self, experiment: Experiment) -> None:
        """There is one host: tasks cannot be spread over several."""
        if experiment.spread is not None:
            raise UserError("the launcher local has one host; to spread tasks, use another one.")

    def cores(self) -> Mapping[str, Sequence[int]]:
        """Those that this process may use."""
        return {self.hosts[0]: sorted(os.sched_getaffinity(0))}

    @contextmanager
    def servers(
        self, cores: Mapping[str, int], experiment: Experiment | None
    ) -> Iterator[HostServers]:
        """The one fork server, the same for all runs."""
        yield HostServers({self.hosts[0]: self._server.client()})

    def preset_address(self, host: str) -> str:
        """Tasks on one host meet over loopback."""
        return LOOPBACK

    def time_left_s(self) -> None:
        """There is no limit."""

    def is_over(self) -> bool:
        """There is no scheduler."""
        return False

    def post_mortem(self) -> str:
        """There is no scheduler."""
        return ""


class LocalLauncher(HostsLauncher):
    """Runs experiments on this machine."""

    def __init__(
        self,
        data_dir: Path,
        *,
        allow_login_node: bool = False,
        fork_server: Sequence[str] = FORK_SERVER,
    ) -> None:
        site = LocalSite(allow_login_node=allow_login_node, fork_server=fork_server)
        super().__init__(site, data_dir)
