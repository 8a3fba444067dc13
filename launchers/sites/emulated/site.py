"""Hosts that are emulated on this machine, with shaped links between them.

Decides that a network exists from the first run that needs it to the end, and that every host has a
fork server of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Self

from launchers.fork_servers.host_servers import HostServers
from launchers.processes import FORK_SERVER
from launchers.settings import LauncherSettings
from launchers.site import Site, SiteKind
from launchers.sites.emulated.held_network import hold_network
from launchers.sites.local import LocalForkServer
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Device


class EmulatedSite(Site):
    """Network namespaces as hosts; all of them share the cores and the files of this machine.

    A run may state other links between as many hosts: such a network comes into being with the
    first run on it, beside those that there are.
    """

    one_machine = True

    def __init__(self, network: EmulatedNetwork, fork_server: Sequence[str] = FORK_SERVER) -> None:
        self.network = network
        self.hosts = tuple(f"emulated{number}" for number in range(network.num_hosts))
        self._words = fork_server
        self._stack = ExitStack()
        self._servers: dict[EmulatedNetwork, dict[str, LocalForkServer]] = {}
        self._addresses: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._build(self.network)
        return self

    def _build(self, network: EmulatedNetwork) -> None:
        """A network, and on each of its hosts a fork server that is not started yet."""
        with ExitStack() as stack:
            held = stack.enter_context(hold_network(network, self.hosts))
            servers = {
                host.name: LocalForkServer((*host.enter, *self._words), host.name)
                for host in held.hosts
            }
            for server in servers.values():
                stack.callback(server.close)
            # A host has the same address on every network.
            self._addresses = {host.name: host.address for host in held.hosts}
            self._servers[network] = servers
            self._stack.push(stack.pop_all())

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check(self, experiment: Experiment) -> None:
        """The network that the experiment states connects the hosts that are here."""
        network = experiment.network
        if network is None or network.num_hosts != self.network.num_hosts:
            raise ValueError("an experiment for other emulated hosts")
        if experiment.resources.device is not Device.CPU:
            raise UserError("emulated hosts have no GPUs; use the device cpu.")

    def cores(self) -> Mapping[str, Sequence[int]]:
        """Every host may use all cores of this machine, which they share."""
        return dict.fromkeys(self.hosts, sorted(os.sched_getaffinity(0)))

    @contextmanager
    def servers(
        self, cores: Mapping[str, int], experiment: Experiment | None
    ) -> Iterator[HostServers]:
        """The hosts' own fork servers, started all at once and kept for the runs to come."""
        network = (experiment.network if experiment else None) or self.network
        if network not in self._servers:
            self._build(network)
        servers = self._servers[network]
        for server in servers.values():
            server.start()
        # All of them: one that still imports would take processor time from a run elsewhere.
        yield HostServers({host: server.client() for host, server in servers.items()}).only(cores)

    def preset_address(self, host: str) -> str:
        """That of its only link."""
        return self._addresses[host]


def network_of(settings: LauncherSettings) -> EmulatedNetwork:
    """The network that some settings describe.

    Raises:
        UserError: the number of hosts is missing, or something makes no sense.
    """
    if settings.hosts is None:
        raise UserError(
            "the launcher emulated needs --hosts, and --bandwidth for shaped links, for instance "
            "--hosts 4 --bandwidth 1gbit."
        )
    return EmulatedNetwork(
        num_hosts=settings.hosts,
        bits_per_s=settings.bandwidth,
        delay_s=settings.delay or 0.0,
        slow_host=settings.slow_host,
        slow_bits_per_s=settings.slow_bandwidth,
        racks=1 if settings.racks is None else settings.racks,
        uplink_bits_per_s=settings.uplink,
    )


EMULATED = SiteKind(
    name="emulated",
    make=lambda settings: EmulatedSite(network_of(settings)),
    understands=frozenset(
        {"hosts", "bandwidth", "delay", "slow_host", "slow_bandwidth", "racks", "uplink"}
    ),
    network=network_of,
)
