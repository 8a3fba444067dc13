"""What can be stated about hosts, whichever launcher finds them.

Decides which settings there are, how they are typed, and which of them every launcher understands.
Which of the others a launcher understands is decided in its room of `sites`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from ps_allreduce.point.network import Traffic

#: In the place of a launcher's name: whichever fits this machine.
AUTO = "auto"

#: What every launcher understands.
COMMON_SETTINGS = frozenset({"launcher", "results", "allow_login_node", "interface", "mixed_hosts"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherSettings:
    """How runs are launched; None, False or an empty tuple is what was not stated.

    Attributes:
        launcher: the name of a site's kind.
        interface: the network whose addresses tasks use, by name or subnet.
        hosts: how many there are to be, without
        ps_hosts: those that are named for servers.
        bandwidth: of every link and direction, bits per second.
        delay: from host to host, one way, seconds.
        slow_host: the number, counted from 0, of a host whose link has the rate `slow_bandwidth`.
        racks: 1 or 2, joined by a link of the rate `uplink`.
        traffic: what links carry besides what tasks send.
        congestion: the algorithm of TCP on the hosts.
        port_buffer: bytes that a port of a switch holds.
        loss: share of packets that a port of a switch loses.
        time_limit: of a job, minutes.
        sbatch, ps_sbatch: further options for the scheduler, as they are typed there; of hosts
            of workers, and of those that are named for servers.
        setup: lines of the batch script.
        container: words before the measured program.
    """

    launcher: str = "local"
    results: Path = Path("results")
    allow_login_node: bool = False
    interface: str | None = None
    mixed_hosts: bool = False
    hosts: int | None = None
    ps_hosts: int | None = None
    bandwidth: float | None = None
    delay: float | None = None
    slow_host: int | None = None
    slow_bandwidth: float | None = None
    racks: int | None = None
    uplink: float | None = None
    traffic: tuple[Traffic, ...] = ()
    congestion: str | None = None
    port_buffer: int | None = None
    loss: float | None = None
    partition: str | None = None
    account: str | None = None
    time_limit: int | None = None
    constraint: str | None = None
    gpus_per_node: str | None = None
    sbatch: tuple[str, ...] = ()
    ps_sbatch: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    container: tuple[str, ...] = ()
    shared_nodes: bool = False
    copy_environment: bool = False
    host_file: Path | None = None

    @property
    def data_dir(self) -> Path:
        """Folder of the input files, absolute."""
        return (self.results / "data").resolve()

    @property
    def stated(self) -> tuple[str, ...]:
        """The names of the settings that are not at their default."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name) != each.default)


def option_of(name: str) -> str:
    """How a setting is typed."""
    return "--time" if name == "time_limit" else f"--{name.replace('_', '-')}"
