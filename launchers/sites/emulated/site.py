"""Hosts that are emulated on this machine, with shaped links between them.

Decides that the network exists from the first run that needs it to the end, and that every host has
a fork server of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

from launchers.fork_servers.host_servers import HostServers
from launchers.processes import FORK_SERVER
from launchers.sites.emulated.network import hold_network
from launchers.sites.local import OwnServer
from launchers.sites.login_node import refuse_login_node
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Device, Experiment
from ps_allreduce.point.network import EmulatedNetwork


class EmulatedSite:
    """Network namespaces as hosts; all of them share the cores and the files of this machine."""

    one_machine = True
    shares_files = True
    job_id = None

    def __init__(
        self,
        network: EmulatedNetwork,
        *,
        allow_login_node: bool = False,
        fork_server: Sequence[str] = FORK_SERVER,
    ) -> None:
        self.network = network
        self.hosts = tuple(f"emulated{number}" for number in range(network.num_hosts))
        self._allow_login_node = allow_login_node
        self._words = fork_server
        self._stack = ExitStack()
        self._servers: dict[str, OwnServer] = {}
        self._addresses: dict[str, str] = {}

    def __enter__(self) -> Self:
        if not self._allow_login_node:
            refuse_login_node(os.environ)
        with ExitStack() as stack:
            held = stack.enter_context(hold_network(self.network, self.hosts))
            for host in held.hosts:
                server = OwnServer((*host.enter, *self._words), host.name)
                self._servers[host.name] = server
                stack.callback(server.close)
            self._addresses = {host.name: host.address for host in held.hosts}
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def check(self, experiment: Experiment) -> None:
        """The network that the experiment states is the one that is here."""
        if experiment.network != self.network:
            raise ValueError("an experiment for another emulated network")
        if experiment.resources.device is not Device.CPU:
            raise UserError("emulated hosts have no GPUs; use the device cpu.")

    def cores(self) -> Mapping[str, Sequence[int]]:
        """Every host may use all cores of this machine, which they share."""
        machine = sorted(os.sched_getaffinity(0))
        return dict.fromkeys(self.hosts, machine)

    @contextmanager
    def servers(
        self, cores: Mapping[str, int], experiment: Experiment | None
    ) -> Iterator[HostServers]:
        """The hosts' own fork servers, started all at once and kept for the runs to come."""
        for server in self._servers.values():
            server.start()
        # All of them: one that still imports would take processor time from a run elsewhere.
        clients = {host: server.client() for host, server in self._servers.items()}
        yield HostServers({host: clients[host] for host in cores})

    def preset_address(self, host: str) -> str:
        """That of its only link."""
        return self._addresses[host]

    def time_left_s(self) -> None:
        """There is no limit."""

    def is_over(self) -> bool:
        """There is no scheduler."""
        return False

    def post_mortem(self) -> str:
        """There is no scheduler."""
        return ""
