"""A fork server that this process starts, on whatever host.

Decides that it is started when it is needed, serves until it is lost, and is then started again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from launchers.fork_servers.client import ForkServerClient
from launchers.processes import ChildProcess


class StartedForkServer(ABC):
    """A fork server, and the program by which it was started.

    Args:
        host: the host name that the launcher knows it by.
    """

    def __init__(self, host: str) -> None:
        self.host = host
        self._program: ChildProcess | None = None
        self._client: ForkServerClient | None = None

    @abstractmethod
    def _start_program(self) -> tuple[ChildProcess, Path]:
        """Start the program; also return its log."""

    def _wait_ready(self, client: ForkServerClient) -> None:
        client.wait_ready()

    def start(self) -> None:
        """Start it unless it runs; it may not be ready yet."""
        if not self._is_running():
            self.close()
            self._program, log = self._start_program()
            self._client = ForkServerClient(self._program.connection, log, self.host)

    def _is_running(self) -> bool:
        if self._program is None or self._client is None:
            return False
        return not self._client.lost and self._program.status() is None

    def client(self) -> ForkServerClient:
        """The line to it, once it is ready.

        Raises:
            LaunchError: it does not come up.
            UserError: its host has another checkout.
        """
        self.start()
        assert self._client is not None
        if not self._client.is_ready:
            try:
                self._wait_ready(self._client)
            except BaseException:
                # Still importing, it would not notice for seconds that nobody listens any more.
                self._kill()
                raise
        return self._client

    def _kill(self) -> None:
        if self._program is not None:
            self._program.kill()
        self._program = self._client = None

    def close(self) -> None:
        """End the server, and everything it forked."""
        if self._program is not None:
            self._program.end()
        self._program = self._client = None
