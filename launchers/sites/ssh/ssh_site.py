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
from typing import Self

from launchers.fork_servers.bring_up import StartedForkServer
from launchers.fork_servers.client import ForkServerClient
from launchers.fork_servers.host_servers import HostServers
from launchers.processes import ChildProcess, start_with_standard_streams
from launchers.settings import LauncherSettings
from launchers.site import Site, SiteKind
from launchers.sites.ssh.command_line import (
    explain_loss,
    explain_no_start,
    remote_command,
    ssh_command,
)
from launchers.sites.ssh.hostfile import SshHost, parse_host_file, refuse_misfits
from ps_allreduce.errors import HostFault, LaunchError, UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.hosts import HostFacts
from ps_allreduce.scratch import open_regular

#: How long ssh may take to end once its line is cut.
END_S = 2.0


class SshForkServer(StartedForkServer):
    """A fork server on another host.

    Args:
        command: for the shell of the host.
    """

    def __init__(self, host: SshHost, command: str) -> None:
        super().__init__(host.name)
        self._described = host
        self._words = ssh_command(host, command)

    def _start_program(self, log: Path) -> ChildProcess:
        return start_with_standard_streams(self._words, log, os.environ)

    def _wait_ready(self, client: ForkServerClient) -> None:
        try:
            client.wait_ready()
        except LaunchError as error:
            raise HostFault(self._explain(client, error)) from error

    def _explain(self, client: ForkServerClient, error: LaunchError) -> str:
        """Why it did not come up, in one line; how ssh ended tells most."""
        assert self._program is not None
        status = self._program.status(END_S) if client.lost else None
        if status is None:
            return str(error).splitlines()[0]
        printed = client.greeting.decode(errors="replace")
        return explain_no_start(self._described, status, printed, _said(client))

    def last_words(self) -> str:
        """How the line was lost, if it was."""
        if self._program is None or self._client is None or not self._client.lost:
            return ""
        status = None if self._client.silent else self._program.status(END_S)
        return explain_loss(self.host, status, _said(self._client))


def _said(client: ForkServerClient) -> str:
    """What ssh printed, and the program at its other end."""
    return client.log.read_text(encoding="utf-8", errors="replace")


class SshSite(Site):
    """Hosts that share nothing but a network, in the order of their file; those for servers last.

    Args:
        container: words that are put before the container's own `python3`.
    """

    shares_files = False

    def __init__(self, host_file: Path, container: Sequence[str] = ()) -> None:
        self._source = str(host_file)
        read = read_host_file(host_file)
        # Sorting keeps the order of equals.
        self._described = {h.name: h for h in sorted(read, key=lambda host: host.for_servers)}
        self.num_ps_hosts = sum(host.for_servers for host in read)
        self.hosts = tuple(self._described)
        command = remote_command(container, os.environ)
        described = self._described.values()
        self._servers = {host.name: SshForkServer(host, command) for host in described}
        self._facts: dict[str, HostFacts] = {}
        self._used: Sequence[str] = ()

    def __enter__(self) -> Self:
        refuse_without_ssh()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.hang_up()  # so that all of them end at the same time
        for server in self._servers.values():
            server.close()

    def cores(self) -> Mapping[str, Sequence[int]]:
        """Those that the fork servers may use; all hosts are asked, once.

        Raises:
            HostFault: a host cannot be reached, or its fork server does not come up.
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
            HostFault: with all hosts where none comes up, in one line.
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
            raise HostFault(f"{'; '.join(troubles)}.")
        return clients

    def preset_address(self, host: str) -> str | None:
        """The private address in the host file; without one, the host's interfaces tell."""
        return self._described[host].address

    def post_mortem(self) -> str:
        """What ssh said about the lines that were lost in the last run."""
        return "; ".join(filter(None, (self._servers[host].last_words() for host in self._used)))


def refuse_without_ssh() -> None:
    """See that there is an ssh.

    Raises:
        UserError: there is none.
    """
    if shutil.which("ssh") is None:
        raise UserError(
            "hosts are reached by the program ssh of OpenSSH, which is not here; install it "
            "(Debian and Ubuntu: openssh-client)."
        )


def read_host_file(path: Path) -> tuple[SshHost, ...]:
    """The hosts of a file.

    Raises:
        UserError: it cannot be read, or a line of it is wrong.
    """
    try:
        with open_regular(path) as stream:
            text = stream.read().decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"the host file {path} cannot be read ({reason}).") from error
    except UnicodeDecodeError as error:
        raise UserError(f"the host file {path} is no text.") from error
    return parse_host_file(text, str(path))


def _site_of(settings: LauncherSettings) -> SshSite:
    if settings.host_file is None:
        raise UserError(
            "the launcher ssh needs --host-file, a file with a host per line: "
            "[user@]name[:port] [private-address] [ps]."
        )
    return SshSite(settings.host_file, settings.container)


SSH = SiteKind(name="ssh", make=_site_of, understands=frozenset({"host_file", "container"}))
