"""How a fork server comes up that is started by this process.

Decides that it serves until it is lost or silent, and is then started again.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path

from launchers.fork_servers.client import ForkServerClient
from launchers.processes import ChildProcess
from ps_allreduce.scratch import scratch_folder


class StartedForkServer(ABC):
    """A fork server, and the program by which it was started.

    Args:
        host: the host name that the launcher knows it by.
    """

    def __init__(self, host: str) -> None:
        self.host = host
        self._folder = ExitStack()
        self._program: ChildProcess | None = None
        self._client: ForkServerClient | None = None

    @abstractmethod
    def _start_program(self, log: Path) -> ChildProcess:
        """Start the program; what it prints goes to a log."""

    def _wait_ready(self, client: ForkServerClient) -> None:
        client.wait_ready()

    def start(self) -> None:
        """Start it unless it runs and answers; it may not be ready yet."""
        running = self._program is not None and self._program.status() is None
        if running and self._client is not None and self._client.is_well():
            return
        self.close()
        # The folder is made now: a site that refuses its work has none to remove.
        folder = self._folder.enter_context(scratch_folder(Path(tempfile.gettempdir())))
        log = folder / "fork_server.log"
        program = self._program = self._start_program(log)
        self._client = ForkServerClient(program.connection, log, self.host)

    def client(self) -> ForkServerClient:
        """The line to it, once it is ready.

        Raises:
            HostFault: it does not come up.
            UserError: its host has another checkout.
        """
        self.start()
        assert self._program is not None
        assert self._client is not None
        if not self._client.is_ready:
            try:
                self._wait_ready(self._client)
            except BaseException:
                self.close()
                raise
        return self._client

    def hang_up(self) -> None:
        """Cut the line, by which the server ends and kills what it forked; wait for nothing."""
        if self._client is not None:
            self._client.close()

    def close(self) -> None:
        """End the server, and everything it forked; remove its log."""
        if self._program is not None:
            self._program.end()
        self._folder.close()
        self._program = self._client = None
