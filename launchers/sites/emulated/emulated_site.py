"""Hosts that are emulated on this machine, with shaped links between them.

Decides that a network exists from the first run that needs it to the end, that every host has a
fork server of its own, and who sends for how long where it is measured what plain TCP reaches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import psutil

from launchers.fork_servers.asking import measure_links
from launchers.fork_servers.host_servers import HostServers
from launchers.processes import FORK_SERVER
from launchers.settings import LauncherSettings
from launchers.site import Site, SiteKind
from launchers.sites.emulated.held_network import GONE, Holder, hold_network
from launchers.sites.local import LocalForkServer
from ps_allreduce.errors import UserError, at_least
from ps_allreduce.kernel_files import usable_cores
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts
from ps_allreduce.point.network import (
    CONGESTION,
    MIN_PORT_BUFFER_BYTES,
    PORT_BUFFER_BYTES,
    EmulatedNetwork,
    render_rate,
)

T = TypeVar("T")

#: What a fork server holds for itself when TensorFlow is imported.
FORK_SERVER_BYTES = 200_000_000

#: TCP's windows open in the first moments; what a port then still loses, it loses again and again.
FLOW_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class BuiltNetwork:
    """A network, its hosts' fork servers, and what ends all of it.

    Attributes:
        network: as it is now; None while its links are being changed, and after that failed.
    """

    network: EmulatedNetwork | None
    racks: int
    holder: Holder
    servers: Mapping[str, LocalForkServer]
    stack: ExitStack

    def end(self) -> None:
        """End the fork servers, all at the same time, then the network."""
        for server in self.servers.values():
            server.hang_up()
        self.stack.close()


class EmulatedSite(Site):
    """Network namespaces as hosts; all of them share the cores and the files of this machine.

    A run may state other links between the hosts: they are changed before it begins.

    Args:
        num_ps_hosts: the last hosts, that are named for servers.
    """

    one_machine = True

    def __init__(
        self,
        network: EmulatedNetwork,
        fork_server: Sequence[str] = FORK_SERVER,
        num_ps_hosts: int = 0,
    ) -> None:
        self.network = network
        self.num_ps_hosts = num_ps_hosts
        self.hosts = tuple(f"emulated{number}" for number in range(network.num_hosts))
        self._words = fork_server
        self._built: BuiltNetwork | None = None
        self._room_for = 0

    def __enter__(self) -> Self:
        self._built = self._build(self.network)
        return self

    def _build(self, network: EmulatedNetwork) -> BuiltNetwork:
        """A network, and on each of its hosts a fork server that is not started yet."""
        with ExitStack() as stack:
            holder = stack.enter_context(hold_network(network, self.hosts))
            servers = {
                host.name: LocalForkServer((*host.enter, *self._words), host.name)
                for host in holder.hosts
            }
            for server in servers.values():
                stack.callback(server.close)
            return BuiltNetwork(network, network.racks, holder, servers, stack.pop_all())

    def __exit__(self, *_: object) -> None:
        if self._built is not None:
            self._built.end()
        self._built = None

    @property
    def holder(self) -> Holder:
        """What keeps the network, from the beginning to the end."""
        assert self._built is not None
        return self._built.holder

    def check(self, experiment: Experiment) -> None:
        """The network that the experiment states connects the hosts that are here."""
        network = experiment.network
        if network is None or network.num_hosts != self.network.num_hosts:
            raise ValueError("an experiment for other emulated hosts")
        self._see_room(num_hosts(experiment))

    def _see_room(self, num_servers: int) -> None:
        """Once for each number: fork servers that are up take of the memory that was free."""
        if num_servers > self._room_for:
            refuse_crowd(num_servers, psutil.virtual_memory().available)
            self._room_for = num_servers

    def cores(self) -> Mapping[str, Sequence[int]]:
        """Every host may use all cores of this machine, which they share."""
        return dict.fromkeys(self.hosts, usable_cores())

    @contextmanager
    def servers(
        self, cores: Mapping[str, int], experiment: Experiment | None
    ) -> Iterator[HostServers]:
        """The hosts' own fork servers, started at the same time and kept for the runs to come."""
        network = (experiment.network if experiment else None) or self.network
        built = self._with_links_of(network)
        self._see_room(len(cores))
        for host in cores:
            built.servers[host].start()
        # All are waited for: one that still imports would take processor time from the run.
        clients = {host: built.servers[host].client() for host in cores}
        needed = {built.holder.program.connection: GONE}
        yield HostServers(clients, needed)

    def _with_links_of(self, network: EmulatedNetwork) -> BuiltNetwork:
        """The network, with these links; a new one if it is gone, or has other racks."""
        network = replace(network, traffic=())  # which tasks of a run make
        built = self._built
        if built is None or built.holder.is_gone or built.racks != network.racks:
            self.__exit__()
            built = self._build(network)
        elif built.network != network:
            # Some links may have been changed when one cannot be.
            self._built = replace(built, network=None)
            built.holder.change_links(network)
            built = replace(built, network=network)
        self._built = built
        return built

    def dropped(self) -> Mapping[str, int]:
        """Packets that the switch's port towards each host lost since its link was last changed."""
        return dict(zip(self.hosts, self.holder.dropped(), strict=True))

    def preset_address(self, host: str) -> str:
        """That of its only link."""
        return next(each.address for each in self.holder.hosts if each.name == host)


def refuse_crowd(num_hosts: int, free_bytes: int) -> None:
    """See that the fork servers of so many hosts find room in memory.

    Raises:
        UserError: they do not.
    """
    needed = num_hosts * FORK_SERVER_BYTES
    if needed > free_bytes:
        raise UserError(
            f"{num_hosts} emulated hosts need about {needed / 1e9:.1f} GB of memory before a model "
            f"is trained, and {free_bytes / 1e9:.1f} GB are free here: use fewer --hosts."
        )


def network_of(settings: LauncherSettings) -> EmulatedNetwork:
    """The network that some settings describe.

    Raises:
        UserError: the number of hosts is missing, or something makes no sense.
    """
    if settings.hosts is None:
        raise UserError(
            "the launcher emulated needs --hosts, and --bandwidth for links of a certain rate, for "
            "instance --hosts 4 --bandwidth 1gbit."
        )
    if settings.ps_hosts is not None:
        at_least(1, hosts=settings.hosts, ps_hosts=settings.ps_hosts)
    _refuse_senseless(settings)
    return EmulatedNetwork(
        num_hosts=settings.hosts + (settings.ps_hosts or 0),
        bits_per_s=None if settings.bandwidth == math.inf else settings.bandwidth,
        delay_s=settings.delay or 0.0,
        slow_host=settings.slow_host,
        slow_bits_per_s=settings.slow_bandwidth,
        racks=1 if settings.racks is None else settings.racks,
        uplink_bits_per_s=settings.uplink,
        traffic=settings.traffic,
        congestion=_stated(settings.congestion, CONGESTION),
        port_buffer_bytes=_stated(settings.port_buffer, PORT_BUFFER_BYTES),
        loss=settings.loss or 0.0,
    )


def _refuse_senseless(settings: LauncherSettings) -> None:
    """Refuse what nobody means; records of such networks stay readable."""
    buffer, slow, rate = settings.port_buffer, settings.slow_bandwidth, settings.bandwidth
    if buffer is not None and MIN_PORT_BUFFER_BYTES <= buffer < 2 * MIN_PORT_BUFFER_BYTES:
        raise UserError(
            f"--port-buffer {buffer} holds no second packet, so a port would lose nearly all that "
            f"is sent at once: state {2 * MIN_PORT_BUFFER_BYTES} bytes or more, for instance 128kB."
        )
    if slow is not None and rate is not None and slow > rate:
        raise UserError(
            f"--slow-bandwidth {render_rate(slow)} is faster than the other links "
            f"(--bandwidth {render_rate(rate)}): state a slower rate."
        )


def _stated(value: T | None, default: T) -> T:
    """Nothing and 0 are stated, too, and refused by the network."""
    return default if value is None else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Flows:
    """Streams of some hosts to one.

    Attributes:
        bits_per_s: payload of all of them together.
        dropped: packets that the port towards the one lost.
    """

    senders: int
    bits_per_s: float
    dropped: int


def measure_flows(site: EmulatedSite, seconds: float = FLOW_SECONDS) -> Iterator[Flows]:
    """One host sends to the first one, then all others do.

    Raises:
        UserError: this machine cannot or does not allow such a network.
        HostFault: a host is lost.
    """
    with site, site.servers(dict.fromkeys(site.hosts, 1), None) as servers:
        target, *others = site.hosts
        for number in sorted({1, len(others)}):
            before = site.dropped()[target]
            pairs = [(source, target) for source in others[:number]]
            links = measure_links(servers, pairs, site.preset_address, seconds)
            yield Flows(
                senders=number,
                bits_per_s=sum(link.bits_per_s for link in links),
                dropped=site.dropped()[target] - before,
            )


EMULATED = SiteKind(
    name="emulated",
    make=lambda settings: EmulatedSite(network_of(settings), num_ps_hosts=settings.ps_hosts or 0),
    understands=frozenset(
        {
            *("hosts", "ps_hosts", "bandwidth", "delay", "slow_host", "slow_bandwidth", "racks"),
            *("uplink", "traffic", "congestion", "port_buffer", "loss"),
        }
    ),
    network=network_of,
)
