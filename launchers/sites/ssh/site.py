"""The hosts of a host file, reached by ssh.

Decides that every host is asked before anything is planned for it, and that its fork server serves
all runs until it is lost.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from launchers.fork_servers.client import ForkServerClient
from launchers.fork_servers.host_servers import HostServers
from launchers.sites.ssh.hostfile import SshHost, parse_host_file
from launchers.sites.ssh.sentences import refuse_misfits
from launchers.sites.ssh.server import SshServer
from launchers.sites.ssh.words import remote_command
from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.hosts import HostFacts
from ps_allreduce.scratch import scratch_prefix


class SshSite:
    """Hosts that share nothing but a network, in the order of their file.

    Args:
        container: words that are put before the container's own `python3`.
    """

    one_machine = False
    shares_files = False
    job_id = None

    def __init__(self, host_file: Path, container: Sequence[str] = ()) -> None:
        self._source = str(host_file)
        self._described = {host.name: host for host in read_host_file(host_file)}
        self.hosts = tuple(self._described)
        self._command = remote_command(container, os.environ)
        self._folder: TemporaryDirectory[str] | None = None
        self._servers: dict[str, SshServer] = {}
        self._facts: dict[str, HostFacts] = {}
        self._used: Sequence[str] = ()

    def __enter__(self) -> Self:
        if shutil.which("ssh") is None:
            raise UserError(
                "the launcher ssh needs the program ssh of OpenSSH, which is not here; install it "
                "(Debian and Ubuntu: openssh-client)."
            )
        self._folder = TemporaryDirectory(prefix=scratch_prefix(), ignore_cleanup_errors=True)
        for name, host in self._described.items():
            log = Path(self._folder.name) / f"{name}.log"
            self._servers[name] = SshServer(host, self._command, log)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in self._servers.values():
            server.hang_up()  # so that all of them end at the same time
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def check(self, experiment: Experiment) -> None:
        """Whatever fits on the hosts can be run."""

    def cores(self) -> Mapping[str, Sequence[int]]:
        """Those that the fork servers may use; all hosts are asked, once.

        Raises:
            LaunchError: a host cannot be reached, or its fork server does not come up.
            UserError: hosts are not what the file says.
        """
        if not self._facts:
            facts = {host: c.ready.facts for host, c in self._ready(self.hosts).items()}
            refuse_misfits(tuple(self._described.values()), facts, self._source)
            self._facts = facts
        return {host: facts.cores for host, facts in self._facts.items()}

    @contextmanager
    def servers(
        self, cores: Mapping[str, int], experiment: Experiment | None
    ) -> Iterator[HostServers]:
        """The hosts' own fork servers, kept for the runs to come."""
        self._used = tuple(cores)
        yield HostServers(self._ready(self._used))

    def _ready(self, hosts: Sequence[str]) -> dict[str, ForkServerClient]:
        """Fork servers that are ready, started all at once.

        Raises:
            LaunchError: with all hosts where none comes up, in one line.
        """
        for host in hosts:
            self._servers[host].start()
        clients, troubles = {}, []
        for host in hosts:
            try:
                clients[host] = self._servers[host].client()
            except LaunchError as error:
                troubles.append(str(error).rstrip("."))
        if troubles:
            raise LaunchError(f"{'; '.join(troubles)}.")
        return clients

    def preset_address(self, host: str) -> str | None:
        """The private address in the host file; without one, the host's interfaces tell."""
        return self._described[host].address

    def time_left_s(self) -> None:
        """There is no limit."""

    def is_over(self) -> bool:
        """There is no scheduler."""
        return False

    def post_mortem(self) -> str:
        """What ssh said about the lines that were lost in the last run."""
        return "; ".join(filter(None, (self._servers[host].last_words() for host in self._used)))


def read_host_file(path: Path) -> tuple[SshHost, ...]:
    """The hosts of a file.

    Raises:
        UserError: it cannot be read, or a line of it is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"the host file {path} cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise UserError(f"the host file {path} is no text.") from error
    return parse_host_file(text, str(path))
