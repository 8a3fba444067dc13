"""The line to one host: ssh, and the fork server at its other end.

Decides that a server lives until its line is cut, and that it runs the same program as is here.
What is run on it is not known here.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

from launchers.fork_servers.client import PIECE_BYTES, ROOT, ForkServerClient
from launchers.processes import Program, start_with_standard_streams
from launchers.sites.ssh.hostfile import SshHost
from launchers.sites.ssh.sentences import explain_loss, explain_no_start, explain_other_source
from launchers.sites.ssh.words import ssh_words
from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.fork_server.messages import FileRead, ReadFile

#: How long ssh may take to end once its line is cut.
END_S = 2.0

#: What is measured.
SOURCES = "ps_allreduce"


class SshServer:
    """A fork server on another host; started when it is needed, and again when it was lost.

    Args:
        command: for the shell of the host.
        log: file for what ssh and the server print.
    """

    def __init__(self, host: SshHost, command: str, log: Path) -> None:
        self._host = host
        self._words = ssh_words(host, command)
        self._log = log
        self._program: Program | None = None
        self._client: ForkServerClient | None = None

    def start(self) -> None:
        """Start it unless it runs; it may not be ready yet."""
        if self._is_running():
            return
        self.close()
        self._log.unlink(missing_ok=True)
        self._program = start_with_standard_streams(self._words, self._log, os.environ)
        self._client = ForkServerClient(self._program.connection, self._log, self._host.name)

    def _is_running(self) -> bool:
        if self._program is None or self._client is None:
            return False
        return not self._client.lost and self._program.status() is None

    def client(self) -> ForkServerClient:
        """The line to it, once it is ready.

        Raises:
            LaunchError: it does not come up.
            UserError: the host has another checkout.
        """
        self.start()
        assert self._client is not None
        if not self._client.is_ready:
            try:
                self._client.wait_ready()
                refuse_other_sources(self._client)
            except LaunchError as error:
                raise self._give_up(self._client, error) from error
            except BaseException:
                self.kill()
                raise
        return self._client

    def _give_up(self, client: ForkServerClient, error: LaunchError) -> LaunchError:
        """The reason in one line, the program's end being the better one."""
        assert self._program is not None
        status = self._program.status(END_S) if client.lost else None
        self.kill()
        if status is None:
            return LaunchError(str(error).splitlines()[0])
        printed = client.greeting.decode(errors="replace")
        return LaunchError(explain_no_start(self._host, status, printed, self._said()))

    def kill(self) -> None:
        """End ssh at once; a server that still imports would not notice for seconds."""
        if self._program is not None:
            self._program.kill()
        self._program = self._client = None

    def last_words(self) -> str:
        """How the line was lost, if it was."""
        if self._program is None or self._client is None or not self._client.lost:
            return ""
        return explain_loss(self._host.name, self._program.status(END_S), self._said())

    def _said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def hang_up(self) -> None:
        """Cut the line, by which the server ends and kills what it forked; wait for nothing."""
        if self._client is not None:
            self._client.close()

    def close(self) -> None:
        """End the server, and ssh with it."""
        self.hang_up()
        if self._program is not None:
            self._program.end()
        self._program = self._client = None


def refuse_other_sources(client: ForkServerClient) -> None:
    """See that the host's checkout is the same as this one, as far as it is measured.

    Raises:
        UserError: a file differs, or is not there.
        LaunchError: the fork server is gone.
    """
    for path in sorted((ROOT / SOURCES).rglob("*.py")):
        request = ReadFile(path=str(path), offset=0, length=PIECE_BYTES)
        there = client.answer(request, FileRead)
        if base64.b64decode(there.content) != path.read_bytes():
            raise UserError(explain_other_source(client.host, str(path)))
